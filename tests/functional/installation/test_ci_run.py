"""The command that CI runs."""

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / ".ci" / "run"
OUTPUT = """\
== 2 passed in 0.10s ==
=========== 1 failed, 8013 passed, 3 skipped in 540.11s (0:09:00) ===========
  tests: FAIL code 1
  evaluation failed :( (600.00 seconds)
"""


@pytest.mark.parametrize("status", [0, 2])
def test_it_ends_with_pytests_closing_line_and_the_exit_status_of_make(tmp_path, status):
    make = tmp_path / "make"
    make.write_text(f"#!/bin/sh\ncat <<'END'\n{OUTPUT}END\nexit {status}\n")
    make.chmod(0o755)
    done = subprocess.run(
        [str(RUN)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert done.stdout.startswith(OUTPUT)
    assert done.stdout.splitlines()[-1] == OUTPUT.splitlines()[1]
