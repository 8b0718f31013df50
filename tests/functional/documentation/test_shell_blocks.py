"""The shell blocks of docs/learn and docs/do, typed one after the other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_agent.cmd.dev.machine import ReportedMachine
from compute_agent.cmd.dev.state_directory import StateDirectory, default_path
from tests.fixtures.placement import placement_process
from tests.functional.documentation.shell_blocks import (
    Block,
    Manner,
    blocks_of,
    pages,
    script_of,
)

PAGES = pages()
RUN = [
    page
    for page in PAGES
    if any(
        block.manner not in (Manner.NEVER, Manner.IN_ANOTHER_TEST)
        for block in blocks_of(page.read_text())
    )
]
RUN_BY_OTHER_TESTS = {
    "with agents on a bus",
    "with a scheduler",
    "with a host that Nova reported",
    "with a database and no service",
    "with a database of OpenStack Placement",
    "with a message broker",
    "with installed packages",
    "with MariaDB",
    "with PostgreSQL",
}
"""What the tests that take blocks by `BlocksToRun` have."""
NOT_RUN = {
    ("do/drains", "it stops the agent of another machine"): 1,
    ("do/monitoring", "it goes on until it is ended"): 1,
    ("do/install", "it builds for minutes; a test of its own builds and installs such packages"): 1,
    ("do/install", "it needs the network"): 1,
    ("do/install", "it needs a container engine"): 1,
    ("do/production", "it needs the Keystone of a cloud"): 1,
    ("do/upgrades", "it needs a host with an agent"): 1,
    ("learn/first-steps", "it installs from the network, and a test of its own runs it"): 1,
    ("learn/first-steps", "it takes the place of the run above"): 1,
}
"""Numbers of blocks, by page and reason. Nothing is added here: a new block is run."""
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
    run.write_agent_config(1, placement, 10, is_nested=True, options=options, host=None)
    run.write_environment(placement, programs)
    # a page to act by is for hosts that are configured, as this one is by its environment
    configured = f"{run.path / 'bin'}:" if page.parent.name == "do" else ""
    environment = {
        "PATH": f"{configured}{programs}:{os.environ['PATH']}",
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
    assert "first-claim" in {page.stem for page in RUN}


def notes(manner: Manner) -> Counter[tuple[str, str]]:
    return Counter(
        (f"{page.parent.name}/{page.stem}", block.note)
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.manner is manner
    )


def test_no_more_blocks_are_not_run() -> None:
    assert notes(Manner.NEVER) == NOT_RUN


def test_other_tests_run_the_rest() -> None:
    assert {note for _, note in notes(Manner.IN_ANOTHER_TEST)} == RUN_BY_OTHER_TESTS


@pytest.mark.parametrize(
    ("block", "fails"),
    [("true", False), ("(exit 6)", False), ("(exit 1)", True), ("false\ntrue", True)],
)
def test_a_plan_may_find_changes_and_nothing_else(tmp_path: Path, block: str, fails: bool) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- run: it may find changes -->\n```sh\n{block}\n```\n")
    done = subprocess.run(["bash", "-c", script_of(page, {})], check=False)
    assert (done.returncode != 0) == fails


def test_marks_are_read() -> None:
    page = "```sh\na\n```\n<!-- not run: needs root -->\n```sh\nb\n```\n"
    page += "<!-- run with a bus -->\n```sh\nc\n```\n"
    assert list(blocks_of(page)) == [
        Block("a\n", Manner.ONCE),
        Block("b\n", Manner.NEVER, "needs root"),
        Block("c\n", Manner.IN_ANOTHER_TEST, "with a bus"),
    ]
    with pytest.raises(ValueError, match="perhaps"):
        list(blocks_of("<!-- perhaps -->\n```sh\na\n```\n"))
