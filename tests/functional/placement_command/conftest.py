"""The command placement, run against a placement in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compute_agent.cmd.placement.main import main
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Transport
from tests.functional.either_placement import KINDS, ours, placement_of


@dataclass(frozen=True)
class CommandEnd:
    """The end of one run of the command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., CommandEnd]


def done(ended: CommandEnd) -> CommandEnd:
    """Return the end of a command, which has to be a good one."""
    assert ended.status == 0, ended.err
    return ended


@pytest.fixture(scope="session", params=KINDS)
def any_placement(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    """This project's server, and the published one: the plain commands work with either."""
    with placement_of(request.param, tmp_path_factory.mktemp("placement")) as made:
        yield made


@pytest.fixture(scope="session")
def our_placement(tmp_path_factory: pytest.TempPathFactory) -> Transport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("ours")))


@pytest.fixture
def run_on(capsys: pytest.CaptureFixture[str]) -> Callable[[Transport | None], Run]:
    def runner(transport: Transport | None) -> Run:
        def run(*arguments: str | Path) -> CommandEnd:
            status = main([str(argument) for argument in arguments], transport)
            shown = capsys.readouterr()
            return CommandEnd(status, shown.out, shown.err)

        return run

    return runner


@pytest.fixture
def run(any_placement: Transport, run_on: Callable[[Transport | None], Run]) -> Run:
    """Run a command of the plain API."""
    return run_on(any_placement)


@pytest.fixture
def run_ours(our_placement: Transport, run_on: Callable[[Transport | None], Run]) -> Run:
    """Run a command on this project's server."""
    return run_on(our_placement)
