"""The shell blocks of docs/learn and docs/do, typed one after the other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_agent.cmd.dev.machine import ReportedMachine
from compute_agent.cmd.dev.state_directory import StateDirectory, default_path
from tests.fixtures.placement import placement_process
from tests.functional.documentation.shell_blocks import Block, Manner, blocks_of, script_of

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(path for kind in ("learn", "do") for path in (DOCS / kind).glob("*.md"))
RUN = [
    page
    for page in PAGES
    if any(block.manner is not Manner.NEVER for block in blocks_of(page.read_text()))
]
PLACEMENT = "http://127.0.0.1:8778"
"""The address of `make run`, in all pages."""


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of these pages alone, because their hosts have any scheduler's attention."""
    with placement_process(tmp_path_factory.mktemp("placement")) as url:
        yield url


@pytest.mark.parametrize("page", RUN, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_commands_of_a_page_work_as_they_are_written(
    page: Path, placement: str, tmp_path: Path
) -> None:
    programs = Path(sys.executable).parent
    # what `make run` leaves for the reader's shell
    run = StateDirectory(default_path({"HOME": str(tmp_path)}))
    run.prepare()
    options = ReportedMachine().options
    run.write_agent_config(1, placement, 10, nested=True, options=options, host=None)
    run.write_environment(placement, programs)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
    }
    with (tmp_path / "output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page, {PLACEMENT: placement})],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(240)
        finally:
            # programs that a page started in the background
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        assert status == 0, output.read()


def test_pages_that_are_run_are_found() -> None:
    assert DOCS / "learn" / "first-claim.md" in RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    for block in blocks_of(page.read_text()):
        assert block.manner is not Manner.NEVER or len(block.reason) > 8


def test_marks_are_read() -> None:
    page = "```sh\na\n```\n<!-- not run: needs root -->\n```sh\nb\n```\n"
    assert list(blocks_of(page)) == [
        Block("a\n", Manner.ONCE),
        Block("b\n", Manner.NEVER, "needs root"),
    ]
    with pytest.raises(ValueError, match="perhaps"):
        list(blocks_of("<!-- perhaps -->\n```sh\na\n```\n"))
