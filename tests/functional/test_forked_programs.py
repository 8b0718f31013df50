"""Programs that tests fork end with what started them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = """
import tempfile, time
from tests.fixtures import programs
programs._PRELOAD = "os"
program = programs.start("sleeper", output=tempfile.TemporaryFile("w+"), new_session=True)
print(program.pid, flush=True)
time.sleep(600)
"""
SLEEPER = "import time\ndef main():\n    time.sleep(600)\n"


def test_a_program_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "PRELOADED": "yes"},
    )
    assert worker.stdout is not None
    with worker.stdout:
        program = psutil.Process(int(worker.stdout.readline()))
    worker.kill()
    worker.wait()
    deadline = time.monotonic() + 60
    # it is gone while it is asked about, or a zombie where nobody waits for orphans
    with contextlib.suppress(psutil.NoSuchProcess):
        while program.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                program.kill()
                raise AssertionError("the program runs on")
            time.sleep(0.02)
