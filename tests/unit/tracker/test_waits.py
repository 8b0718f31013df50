"""A pass that waits for placement lets claims in meanwhile, and has the node again after."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.agent.pass_loop import PassLoop
from compute_agent.placement.connection import Connection, Retries, stepping_aside
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.tracker.node import FairLock, LentLock
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import NEVER, PassSchedule
from compute_agent.tracker.resource_tracker import ResourceTracker, TrackerOptions
from compute_agent.tracker.status import StatusBoard
from tests.unit.tracker.scripted_pass import UUID, Report, ScriptedPass, no_contest


class Clock:
    """A wait is over when what is to happen in it has happened."""

    def __init__(self, meanwhile: Callable[[], Any]) -> None:
        self.meanwhile = meanwhile
        self.waits = 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, _seconds: float) -> None:
        self.waits += 1
        self.meanwhile()


class ConflictingCall:
    """What conflicts so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise errors.ResourceProviderUpdateConflict("somebody else was first")


def is_free(lock: FairLock) -> bool:
    """Whether somebody else gets the lock now."""
    got = threading.Event()

    def take() -> None:
        with lock:
            got.set()

    threading.Thread(target=take, daemon=True).start()
    return got.wait(10.0)


def tracker_of(scripted: ScriptedPass, **more: Any) -> ResourceTracker:
    """Return a tracker of host1 that makes this pass."""
    report: Any = Report()
    tracker = ResourceTracker(
        *(scripted, report, StatusBoard("agent1"), TrackerOptions(), no_contest()),
        wait=lambda _seconds: False,
        **more,
    )
    tracker.add_node("host1", UUID)
    return tracker


def test_a_claim_gets_the_node_while_its_pass_waits_and_another_pass_does_not() -> None:
    seen: list[tuple[bool, bool]] = []

    def meanwhile() -> None:
        node = tracker._nodes["host1"]
        seen.append((is_free(node.lock), node.at_work._is_held))

    clock = Clock(meanwhile)
    retries = Retries(clock, random.Random(1))

    class WaitingPass(ScriptedPass):
        def propose(self, target: Any, last: Any = None, *, reshape: bool = False) -> Any:
            retries.while_conflicting(ConflictingCall(2))
            assert tracker._nodes["host1"].lock._is_held, "after the wait it is the pass's again"
            return super().propose(target, last, reshape=reshape)

    tracker = tracker_of(WaitingPass(None))
    assert tracker.run_pass("host1").completed
    assert seen == [(True, True)]
    assert is_free(tracker._nodes["host1"].lock), "the pass is over"


def test_the_pass_of_another_node_is_made_while_one_waits_though_one_is_made_at_a_time() -> None:
    completed: list[str] = []

    def meanwhile() -> None:
        other = threading.Thread(
            target=lambda: completed.append(str(tracker.run_pass("host2").completed)), daemon=True
        )
        other.start()
        other.join(10.0)

    retries = Retries(Clock(meanwhile), random.Random(1))

    class WaitingPass(ScriptedPass):
        def propose(self, target: Any, last: Any = None, *, reshape: bool = False) -> Any:
            if target.name == "host1":
                retries.while_conflicting(ConflictingCall(2))
                completed.append("host1")
            return super().propose(target, last, reshape=reshape)

    tracker = tracker_of(WaitingPass(None, None))
    tracker.add_node("host2", str(uuid.uuid4()))
    assert tracker.run_pass("host1").completed
    assert completed == ["True", "host1"]


def test_a_lock_is_lent_while_any_thread_that_works_for_its_holder_waits() -> None:
    lock = FairLock()
    both = threading.Barrier(2)
    seen: list[bool] = []

    def meanwhile() -> None:
        both.wait(10)
        seen.append(not lock._is_held)
        both.wait(10)

    retries = Retries(Clock(meanwhile), random.Random(1))
    workers = RequestPool(2)
    lock.acquire()
    with stepping_aside(LentLock(lock)):
        workers.results([lambda: retries.while_conflicting(ConflictingCall(2))] * 2)
    workers.close()
    assert seen == [True, True]
    assert lock._is_held, "held again when all of them go on"
    lock.release()


def test_nothing_is_lent_while_versions_are_asked_for_as_claims_ask_for_them_too() -> None:
    lock = FairLock()
    seen: list[bool] = []
    retries = Retries(Clock(lambda: seen.append(lock._is_held)), random.Random(1))

    class AwayTransport:
        def send(self, _request: Any) -> Any:
            raise errors.PlacementAPIConnectFailure("away")

    connection = Connection(AwayTransport(), retries)  # type: ignore[arg-type]
    lock.acquire()
    with stepping_aside(LentLock(lock)), pytest.raises(errors.PlacementUnavailable):
        connection.versions()
    assert seen == [True, True]


def test_a_pass_that_waits_keeps_no_other_node_from_beginning_its_own() -> None:
    begun, go = threading.Barrier(3), threading.Event()

    def a_pass(_node: str, _reasons: frozenset[str]) -> PassResult:
        begun.wait(30)
        assert go.wait(30)
        return PassResult(True, NEVER)

    schedule = PassSchedule(lambda: 0.0)
    schedule.set_nodes(["host1", "host2"], first_due=0.0)
    loop = PassLoop(schedule, a_pass, clock=lambda: 0.0, on_fatal=lambda _result: None, workers=1)
    loop.start()
    begun.wait(30)
    go.set()
    loop.stop()
    assert loop.join(30)


def test_orders_for_a_node_whose_pass_does_not_end_are_refused_and_later_served() -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    class HangingPass(ScriptedPass):
        def propose(self, target: Any, last: Any = None, *, reshape: bool = False) -> Any:
            hangs.set()
            goes_on.wait(10.0)
            return super().propose(target, last, reshape=reshape)

        def steps(self, _proposal: Any) -> list[Any]:
            return []

    tracker = tracker_of(HangingPass(None), patience=0.01)
    results: list[PassResult] = []
    running = threading.Thread(target=lambda: results.append(tracker.run_pass("host1")))
    running.start()
    assert hangs.wait(10.0)
    with pytest.raises(errors.ComputeNodeBusy, match="host1"):
        tracker.plan("host1")
    with pytest.raises(errors.ComputeNodeBusy, match="host1"), tracker.hold("host1"):
        pytest.fail("a pass has the node")
    goes_on.set()
    running.join(10.0)
    assert [result.completed for result in results] == [True]
    assert tracker.plan("host1") == []
    with tracker.hold("host1"):
        assert not is_free_at_once(tracker._nodes["host1"].lock)


def is_free_at_once(lock: FairLock) -> bool:
    if not lock.acquire(timeout=0.0):
        return False
    lock.release()
    return True


def test_who_gave_up_waiting_for_a_lock_is_not_given_it() -> None:
    lock = FairLock()
    lock.acquire()
    assert not lock.acquire(timeout=0.001)
    assert not lock._waiting_turns
    lock.release()
    assert is_free_at_once(lock)
