"""A short form of the nemesis, on SQLite: each kind of fault but kills, for a second or less.

`python -m tests.integration.nemesis --help` has the long one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures import clocks
from tests.integration.nemesis.machine import step_clock

FAULTS = {
    "a worker stopped",
    "the server stopped",
    "workers without free descriptors",
    "workers without more memory",
    "the server's clock",
    "writes sent twice",
    "writes answered late",
    "writes carried out without an answer",
}
FULL_DISKS = {"disk of the database full", "disk of temporary files full"}


def test_nothing_is_lost_while_the_system_gives_out() -> None:
    # a process of its own: it mounts small disks that nobody else sees, and that end with it
    command = [sys.executable, "-m", "tests.integration.nemesis", "--database", "sqlite"]
    options = ["--seed", "1", "--longest", "1", "--tellers", "2", "--pace", "4"]
    kinds = ["--only", "stops", "limits", "disks", "clocks", "answers"]
    done = subprocess.run(
        [*command, *options, *kinds], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join([*command[1:], *options, *kinds])}\n{done}"
    expected = FAULTS | (FULL_DISKS if os.geteuid() == 0 else set())
    assert [fault for fault in expected if fault not in done.stdout] == [], done.stdout


@pytest.mark.skipif(clocks.missing() is not None, reason=str(clocks.missing()))
def test_a_step_of_the_clock_changes_it(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    clock, dice = clocks.Clock(tmp_path), random.Random(1)
    stage: Any = SimpleNamespace(clock=clock, dice=dice, await_writes=lambda _more: None)
    before = offset.read_bytes()
    for _ in range(9):
        step_clock(stage)
        assert offset.read_bytes() != before
        before = offset.read_bytes()
