"""Diagnoses that `doctor` makes of the status of a running agent: no fault shown is fine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.agent.availability import BUILDS, HYPERVISOR
from compute_agent.cmd.agent.doctor import shown_faults
from compute_agent.daemon.message_bus import BusState
from compute_agent.daemon.trouble import Trouble
from compute_agent.discovery.bounded_calls import HungCall
from compute_agent.manage.diagnosis import Level
from compute_agent.state.files import StateUnusable
from compute_agent.state.ledger import Ledger
from compute_agent.tracker.status import FeedState, StatusBoard

TROUBLE = Trouble("conflict", "another agent writes it.", time.time(), 3)
Change = Callable[[StatusBoard], None]


def disabled(reason: str) -> Change:
    return lambda board: board.set_availability(is_enabled=False, reason=reason)


def hung(board: StatusBoard) -> None:
    board.hung_calls = lambda: [HungCall("libvirt", "listAllDomains", time.time())]


def in_search(board: StatusBoard) -> None:
    board.search_trouble = TROUBLE


def unheard(board: StatusBoard) -> None:
    board.bus_is(BusState.REFUSED, "the password is wrong")


def unfollowed(state: FeedState) -> Change:
    return lambda board: board.feed_is(state, "it answered 500")


def not_reloaded(board: StatusBoard) -> None:
    board.reload_trouble = Trouble("not reloaded", "[a]b is wrong", time.time(), 1)


def unwritten(path: Path) -> Change:
    """A directory lies where the state is to be written."""

    def change(board: StatusBoard) -> None:
        ledger = Ledger(path)
        board.state_files = ledger.files
        (path / "ledger.json").mkdir(parents=True)
        with pytest.raises(StateUnusable):
            ledger.remember_providers(["provider"])

    return change


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        (lambda _board: None, None, ""),
        (lambda board: board.set_node("host1", "u", trouble=TROUBLE), Level.ERROR, "another agent"),
        (in_search, Level.ERROR, "another agent"),
        (hung, Level.ERROR, "listAllDomains"),
        ("unwritten", Level.ERROR, "ledger.json"),
        (not_reloaded, Level.ERROR, "[a]b is wrong"),
        (unheard, Level.ERROR, "the password is wrong"),
        (unfollowed(FeedState.FAILING), Level.WARNING, "it answered 500"),
        (unfollowed(FeedState.NOT_OFFERED), Level.WARNING, "only periodic passes find changes"),
        (unfollowed(FeedState.FOLLOWING), None, ""),
        (lambda board: board.set_node("host1", "u", faulty=["gpu"]), Level.WARNING, "broken: gpu"),
        (disabled(f"{HYPERVISOR}: it is gone"), Level.WARNING, "it is gone"),
        (disabled(f"{BUILDS}: 3 in a row"), Level.WARNING, "3 in a row"),
        (disabled("fan"), Level.FINE, "host1 takes no new instances: fan"),
        (disabled(""), Level.FINE, "no reason given"),
    ],
)
def test_each_fault_is_a_diagnosis(
    tmp_path: Path, change: Change | str, level: Level | None, text: str
) -> None:
    board = StatusBoard("host1")
    board.set_node("host1", "u", startup=False)
    (unwritten(tmp_path / "state") if isinstance(change, str) else change)(board)
    diagnoses = list(shown_faults(json.loads(json.dumps(board.document()))))
    assert [d.level for d in diagnoses] == ([] if level is None else [level])
    assert all(text in d.text for d in diagnoses)


def test_an_agent_of_another_version_is_to_be_restarted_whatever_its_status_has() -> None:
    (diagnosis,) = shown_faults({"version": "0.0.9"})
    assert diagnosis.level is Level.WARNING
    assert "0.0.9" in diagnosis.text
    assert "restart it" in diagnosis.text
