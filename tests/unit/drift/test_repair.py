"""Healing beside the passes: handed over at once, done once, and no harm when it fails."""

import logging
import threading
from contextlib import contextmanager

import pytest

from compute_agent import errors
from compute_agent.drift.audit import Drift, End, Treatment
from compute_agent.drift.repair import DriftHealing, HealedKinds

PATIENCE = 30.0
FOUND = Drift(orphans=frozenset({"o"}), missing_consumers=frozenset({"m"}))


class Remedies:
    """Heals everything, unless told otherwise, and remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.opened = self.closed = 0
        self.ends = {}
        self.trouble = None
        self.on_close = lambda: None
        self.go_on = threading.Event()
        self.go_on.set()

    @contextmanager
    def open(self):
        self.opened += 1
        yield self
        self.on_close()
        self.closed += 1

    def delete_gone(self, root, suspects):
        assert self.go_on.wait(PATIENCE)
        self.asked.append(("orphans", root, set(suspects)))
        if self.trouble is not None:
            raise self.trouble
        return [
            Treatment(suspect, self.ends.get(suspect, End.HEALED), "is told")
            for suspect in suspects
        ]

    def allocate(self, node, instances):
        self.asked.append(("missing", node, set(instances)))
        return [
            Treatment(instance, self.ends.get(instance, End.HEALED), "is told")
            for instance in instances
        ]


class ScriptedHealing:
    """A healing whose switches and answers a test sets."""

    def __init__(self):
        self.remedies = Remedies()
        self.wanted = HealedKinds(orphans=True, missing_consumers=True)
        self.healed = []
        self.healing = DriftHealing(
            self.remedies.open, lambda: self.wanted, lambda *told: self.healed.append(told)
        )

    def found(self, drift=FOUND, node="host"):
        self.healing.take_over(node, f"root of {node}", drift)

    def done(self):
        assert self.healing.wait(PATIENCE)
        assert self.remedies.opened == self.remedies.closed


def test_what_is_found_is_healed_and_told_and_everything_is_closed_again():
    healing = ScriptedHealing()
    healing.found()
    healing.done()
    assert healing.remedies.asked == [
        ("orphans", "root of host", {"o"}),
        ("missing", "host", {"m"}),
    ]
    assert healing.healed == [("host", "root of host", frozenset({"o", "m"}))]


def test_what_is_found_after_a_thread_could_not_be_started_is_healed(monkeypatch):
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    healing = ScriptedHealing()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            healing.found()
    healing.found()
    healing.done()
    assert healing.remedies.opened == 1


def test_what_is_found_while_everything_is_closed_is_healed_too():
    healing = ScriptedHealing()

    def find_more():
        healing.remedies.on_close = lambda: None
        healing.found(node="second")

    healing.remedies.on_close = find_more
    healing.found()
    healing.done()
    assert [node for node, _, _ in healing.healed] == ["host", "second"]
    assert healing.remedies.opened == 2


def test_only_what_is_switched_on_is_healed_and_nothing_is_opened_for_nothing():
    healing = ScriptedHealing()
    healing.wanted = HealedKinds()
    healing.found()
    healing.wanted = HealedKinds(orphans=True, missing_consumers=True)
    healing.found(Drift())
    healing.done()
    assert healing.remedies.opened == 0
    healing.wanted = HealedKinds(missing_consumers=True)
    healing.found()
    healing.done()
    assert healing.remedies.asked == [("missing", "host", {"m"})]


def test_whoever_finds_something_never_waits_and_the_newest_finding_of_a_node_counts():
    healing = ScriptedHealing()
    healing.wanted = HealedKinds(orphans=True)
    healing.remedies.go_on.clear()
    healing.found()
    # returns although the first is at work
    healing.found(Drift(orphans=frozenset({"b"})), "second")
    healing.found(Drift(orphans=frozenset({"c"})), "second")
    healing.found(Drift(orphans=frozenset({"d"})), "third")
    healing.found(Drift(), "third")
    healing.remedies.go_on.set()
    healing.done()
    asked = [(root, suspects) for _, root, suspects in healing.remedies.asked]
    assert ("root of second", {"c"}) in asked
    assert ("root of second", {"b"}) not in asked or ("root of second", {"b"}) == asked[0]
    assert all(root != "root of third" for root, _ in asked)


def test_what_cannot_be_healed_is_logged_once_and_is_not_told_as_healed(caplog):
    caplog.set_level(logging.INFO)
    healing = ScriptedHealing()
    healing.remedies.ends = {"m": End.FAILED, "o": End.LEFT}
    for _ in range(3):
        healing.found()
        healing.done()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert healing.healed == []


def test_a_remedy_that_fails_is_logged_once_and_the_other_is_applied(caplog):
    healing = ScriptedHealing()
    healing.remedies.trouble = errors.PlacementUnavailable("nobody answers")
    for _ in range(3):
        healing.found()
        healing.done()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not caplog.records[0].exc_info
    assert healing.healed == [("host", "root of host", frozenset({"m"}))] * 3
    healing.remedies.trouble = None
    healing.found()
    healing.done()
    healing.remedies.trouble = RuntimeError("a defect")
    healing.found()
    healing.done()
    assert len(caplog.records) == 2
    assert caplog.records[1].exc_info


def test_remedies_that_cannot_be_opened_are_tried_again_with_the_next_finding(caplog):
    opened = []

    @contextmanager
    def closed_source():
        opened.append(1)
        raise errors.InvalidConfiguration("no bus")
        yield

    healing = DriftHealing(closed_source, lambda: HealedKinds(orphans=True))
    for _ in range(2):
        healing.take_over("host", "root", FOUND)
        assert healing.wait(PATIENCE)
    assert len(opened) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
