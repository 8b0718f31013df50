"""Worker processes, and the end of all of them when one cannot work."""

import itertools
import sys
from pathlib import Path

from compute_agent.programs.systemd import ServiceManager
from compute_agent.scheduler.service.workers import Workers

REFUSED = """
import os, pathlib, sys
starts = pathlib.Path(sys.argv[1])
with starts.open("a") as file:
    file.write("x")
# not for ever, should it be started again and again
sys.exit(2 if len(starts.read_text()) < 8 else 3)
"""


def test_a_worker_that_fails_before_it_served_ends_all_however_slow_it_was(tmp_path: Path) -> None:
    # a slow machine: minutes pass between any two looks at the clock
    clock = itertools.count(0.0, 60.0).__next__
    command = [sys.executable, "-c", REFUSED, str(tmp_path / "starts")]
    assert Workers(command, 2, ServiceManager(), clock=clock).run() == 2
