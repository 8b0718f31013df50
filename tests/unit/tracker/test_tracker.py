"""Passes and the loop around them, with a pass that does what a test says."""

import random
import threading
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.agent.pass_loop import PassLoop
from compute_agent.tracker.decisions import ExitCode
from compute_agent.tracker.pass_attempt import PassResult, subject_of
from compute_agent.tracker.pass_schedule import NEVER, PassSchedule
from compute_agent.tracker.resource_tracker import ResourceTracker, TrackerOptions
from compute_agent.tracker.status import StatusBoard
from tests.unit.tracker.scripted_pass import UUID, Report, ScriptedPass, no_contest


class Bench:
    """A tracker on a bench: its waits are recorded and its clock stands still."""

    def __init__(self, *outcomes: Exception | None, **options: Any) -> None:
        self.scripted = ScriptedPass(*outcomes)
        self.waits: list[float] = []
        self.locked_while_waiting: list[bool] = []
        self.stop = False
        self.report = Report()
        self.board = StatusBoard("agent1")
        self.now = 0.0
        self.tracker = ResourceTracker(
            self.scripted,
            self.report,
            self.board,
            TrackerOptions(**options),
            no_contest(),
            wait=self._wait,
            clock=lambda: self.now,
            rng=random.Random(1),
        )
        self.tracker.add_node("host1", UUID)

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        lock = self.tracker._nodes["host1"].lock
        self.locked_while_waiting.append(lock._is_held)
        return self.stop

    def run(self) -> PassResult:
        return self.tracker.run_pass("host1")


CONFLICT = errors.ResourceProviderUpdateConflict("somebody else was first")


def test_a_completed_pass_ends_the_start_and_registers_the_node_once():
    bench = Bench(None, period=30.0)
    assert bench.tracker.in_startup()
    registered: list[str] = []
    result = bench.tracker.run_pass("host1", on_first=registered.append)
    assert (result.completed, result.next_in) == (True, 30.0)
    assert not bench.tracker.in_startup()
    bench.tracker.run_pass("host1", on_first=registered.append)
    assert registered == ["host1"]
    assert bench.board.node("host1").last_success


def test_a_pass_that_completed_asks_placement_nothing_more():
    bench = Bench(None)
    bench.run()
    assert bench.board.placement.max_version == "1.39"
    # forgotten, because a request of the pass had to be repeated
    bench.report.offered_versions = None
    assert bench.run().completed
    assert bench.board.placement.max_version == "1.39"


def test_a_node_dropped_while_its_pass_was_waiting_gets_none():
    bench = Bench(None, period=30.0)
    bench.tracker.drop_node("host1")
    assert bench.run() == PassResult(False, 30.0)
    assert not bench.scripted.reshapes, "nothing was proposed"


def test_a_node_dropped_during_its_pass_is_not_shown_again():
    bench = Bench(None)
    bench.scripted.flush = lambda _proposal: bench.tracker.drop_node("host1") or []
    assert bench.run().completed
    assert bench.board.node("host1") is None


def test_a_conflict_is_repeated_after_short_waits_without_the_nodes_lock():
    bench = Bench(CONFLICT, CONFLICT, CONFLICT, None)
    assert bench.run().completed
    assert len(bench.waits) == 3
    assert bench.waits[0] == 0.0
    assert 0 <= bench.waits[1] <= 2
    assert 0 <= bench.waits[2] <= 4
    assert bench.locked_while_waiting == [False] * 3
    assert bench.board.counters().retries == 3


def test_conflicts_without_end_are_fatal_at_start_and_a_matter_of_the_next_period_later(caplog):
    bench = Bench(CONFLICT)
    assert bench.run().exit_code is ExitCode.PLACEMENT_REJECTED
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "CRITICAL"]
    assert "next period" not in said
    assert said.endswith("The agent ends; systemd starts it again.")
    later = Bench(None, CONFLICT)
    later.run()
    result = later.run()
    assert result.exit_code is None
    assert result.next_in == 60.0


def test_a_stop_during_a_wait_ends_the_pass():
    bench = Bench(CONFLICT)
    bench.stop = True
    assert bench.run() == PassResult(False, NEVER)


def test_a_reshape_is_proposed_at_start_and_refused_later():
    bench = Bench(errors.ReshapeNeeded("x"), None, errors.ReshapeNeeded("y"))
    assert bench.run().completed
    assert bench.scripted.reshapes == [False, True]
    assert not bench.run().completed
    assert bench.scripted.reshapes == [False, True, False]
    assert bench.board.node("host1").reshape_pending


def test_an_outage_leaves_the_start_a_start_and_asks_to_come_back_soon():
    bench = Bench(errors.PlacementUnavailable("away"), None)
    result = bench.run()
    assert not result.completed
    assert 0 <= result.next_in <= 1
    assert bench.tracker.in_startup()
    assert bench.board.placement.up is False
    assert bench.run().completed
    assert bench.board.placement.up is True


def test_a_placement_that_names_a_time_is_not_asked_before_it():
    bench = Bench(errors.PlacementUnavailable("busy", retry_after=40.0))
    assert bench.run().next_in >= 40.0


def test_after_an_outage_a_node_waits_for_its_turn_once_and_asks_only_whether_it_is_over():
    bench = Bench(errors.PlacementUnavailable("away"), None, fuzzy_delay=60.0)
    bench.run()
    bench.now, bench.report.away = 30.0, True
    assert not bench.run().completed
    assert len(bench.scripted.reshapes) == 1, "a placement that is away gets one question"
    bench.now, bench.report.away = 40.0, False
    waiting = bench.run()
    assert not waiting.completed
    assert 0.0 < waiting.next_in <= 40.0
    assert len(bench.scripted.reshapes) == 1, "it is back, and its turn has not come"
    assert bench.board.placement.up
    assert bench.run().completed
    assert bench.report.reconnected == 2


def test_a_pass_that_somebody_asked_for_does_not_wait_for_its_turn():
    bench = Bench(errors.PlacementUnavailable("away"), None, fuzzy_delay=60.0)
    bench.run()
    bench.now = 40.0
    assert bench.tracker.run_pass("host1", asked_for=True).completed
    assert bench.report.reconnected == 0


def test_a_problem_of_a_part_is_fatal_at_start_and_only_told_later():
    bench = Bench(None)
    bench.scripted.problems = [errors.InvalidConfiguration("a bad file")]
    assert bench.run().exit_code is ExitCode.CONFIGURATION
    later = Bench(None)
    later.run()
    later.scripted.problems = [errors.InvalidConfiguration("a bad file")]
    assert later.run().completed
    assert "a bad file" in later.board.node("host1").trouble.message
    later.scripted.problems = []
    later.run()
    assert later.board.node("host1").trouble is None


def test_all_problems_of_parts_are_in_the_error_that_ends_a_start_and_a_single_one_is_it():
    bench = Bench(None)
    bench.scripted.problems = [
        errors.ProviderConfigConflict("the class of a.yaml is the driver's"),
        errors.InvalidConfiguration("a reserve above its total"),
    ]
    result = bench.run()
    assert result.exit_code is ExitCode.CONFIGURATION
    for problem in bench.scripted.problems:
        assert str(problem) in result.message
    assert bench.tracker.in_startup()
    del bench.scripted.problems[1:]
    assert bench.run().message == "the class of a.yaml is the driver's"


def test_a_node_that_comes_back_with_another_uuid_starts_anew():
    bench = Bench(None)
    bench.run()
    bench.tracker.add_node("host1", UUID)
    assert not bench.tracker.in_startup()
    bench.tracker.add_node("host1", UUID.replace("1", "2"))
    assert bench.tracker.in_startup()
    bench.tracker.drop_node("host1")
    assert bench.tracker.nodes() == {}
    assert bench.board.node("host1") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            errors.InvalidInventory("a [req-1]", status=400, path="/x"),
            errors.InvalidInventory("a [req-2]", status=400, path="/x"),
            True,
        ),
        (errors.InvalidConfiguration("a"), errors.InvalidConfiguration("b"), False),
        (
            errors.ResourceProviderSyncFailed(
                [errors.SyncFailure("u1", "n", "traits", errors.TraitCreationFailed("t"))]
            ),
            errors.ResourceProviderSyncFailed(
                [errors.SyncFailure("u2", "n", "traits", errors.TraitCreationFailed("t"))]
            ),
            False,
        ),
    ],
)
def test_two_faults_are_told_apart_by_what_they_are_about(one, other, same):
    assert (subject_of(one) == subject_of(other)) is same


class Loop:
    """A loop of passes that block until a test lets them go."""

    def __init__(self, workers: int = 1, watchdog_seconds: float | None = None) -> None:
        self.schedule = PassSchedule(lambda: 0.0)
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.passes: list[str] = []
        self.fatal: list[PassResult] = []
        self.notified = threading.Event()
        self.result = PassResult(True, NEVER)
        self.loop = PassLoop(
            self.schedule,
            self._pass,
            clock=lambda: 0.0,
            on_fatal=self.fatal.append,
            notify_watchdog=self.notified.set,
            watchdog_seconds=watchdog_seconds,
            workers=workers,
        )

    def _pass(self, node: str, reasons: frozenset[str]) -> PassResult:
        self.passes.append(node)
        self.reasons = reasons
        self.begun.release()
        assert self.go.acquire(timeout=30)
        return self.result


@pytest.fixture
def loop():
    bench = Loop()
    bench.schedule.set_nodes(["a"], first_due=0.0)
    bench.loop.start()
    yield bench
    for _ in range(10):
        bench.go.release()
    bench.loop.stop()
    assert bench.loop.join(30)


def test_whoever_asks_for_a_report_waits_for_a_pass_that_began_afterwards(loop):
    assert loop.begun.acquire(timeout=30)
    answers: list[bool] = []
    request = loop.schedule.request_pass("report", "a")
    asking = threading.Thread(
        target=lambda: answers.append(loop.schedule.wait_for_passes([request], 30.0))
    )
    asking.start()
    loop.go.release()
    assert loop.begun.acquire(timeout=30), "the pass at work does not count"
    assert answers == []
    loop.go.release()
    asking.join(30)
    assert answers == [True]


def test_a_report_that_ended_before_it_is_waited_for_is_not_run_again():
    schedule = PassSchedule(lambda: 0.0)
    schedule.set_nodes(["a"], first_due=NEVER)
    request = schedule.request_pass("report", "a")
    assert schedule.take_due() == [("a", {"report"})]
    schedule.finish("a", NEVER)
    assert schedule.wait_for_passes([request], 0.0)
    assert schedule.take_due() == []


def test_a_report_is_waited_for_until_a_pass_that_began_after_it_has_ended():
    schedule = PassSchedule(lambda: 0.0)
    schedule.set_nodes(["a"], first_due=NEVER)
    early = schedule.request_pass("report", "a")
    assert not schedule.wait_for_passes([early], 0.0)
    schedule.take_due()
    late = schedule.request_pass("report", "a")
    schedule.finish("a", NEVER)
    assert schedule.wait_for_passes([early], 0.0)
    assert not schedule.wait_for_passes([late], 0.0)


def test_a_stop_finishes_the_pass_at_work(loop):
    assert loop.begun.acquire(timeout=30)
    loop.loop.stop()
    assert not loop.loop.join(0.01)
    loop.go.release()
    assert loop.loop.join(30)


def test_a_pass_that_waits_for_a_thread_is_not_begun_after_a_stop():
    bench = Loop(workers=1)
    bench.schedule.set_nodes([f"node{number}" for number in range(40)], first_due=0.0)
    bench.loop.start()
    assert bench.begun.acquire(timeout=30)
    bench.loop.stop()
    for _ in range(40):
        bench.go.release()
    assert bench.loop.join(30)
    assert len(bench.passes) < 40


def test_a_stop_ends_the_wait_for_a_pass_that_will_not_begin(loop):
    assert loop.begun.acquire(timeout=30)
    request = loop.schedule.request_pass("report", "a")
    answers: list[bool] = []
    asking = threading.Thread(
        target=lambda: answers.append(loop.schedule.wait_for_passes([request], 300.0))
    )
    asking.start()
    loop.loop.stop()
    asking.join(30)
    assert answers == [False]


def test_a_pass_for_which_no_thread_starts_is_made_in_one_that_runs(loop, monkeypatch):
    assert loop.begun.acquire(timeout=30)
    start, has_failed = threading.Thread.start, threading.Event()

    def fail_for_passes(thread: threading.Thread) -> None:
        if thread.name.startswith("pass_"):
            has_failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_for_passes)
    loop.schedule.set_nodes(["a", "b", "c"], first_due=0.0)
    loop.loop.wake()
    assert has_failed.wait(30)
    for _ in range(2):
        loop.go.release()
        assert loop.begun.acquire(timeout=30)
    assert sorted(loop.passes) == ["a", "b", "c"]


def test_a_first_pass_for_which_no_thread_starts_does_not_wait_for_ever(monkeypatch):
    start = threading.Thread.start
    bench = Loop()
    bench.schedule.set_nodes(["a"], first_due=NEVER)
    bench.loop.start()

    def fail_for_passes(thread: threading.Thread) -> None:
        if thread.name.startswith("pass_"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_for_passes)
    bench.schedule.trigger("report", "a")
    bench.loop.wake()
    assert bench.begun.acquire(timeout=10)
    bench.go.release()
    bench.loop.stop()
    assert bench.loop.join(30)


def test_a_fatal_pass_is_told(loop):
    assert loop.begun.acquire(timeout=30)
    loop.result = PassResult(False, NEVER, ExitCode.RESHAPE_FAILED, "x")
    loop.go.release()
    loop.loop.stop()
    assert loop.loop.join(30)
    assert [result.exit_code for result in loop.fatal] == [ExitCode.RESHAPE_FAILED]


def test_several_nodes_are_worked_on_at_once_and_a_hung_pass_does_not_feed_the_watchdog():
    bench = Loop(workers=2, watchdog_seconds=0.03)
    bench.schedule.set_nodes(["a", "b", "c"], first_due=0.0)
    bench.loop.start()
    assert bench.begun.acquire(timeout=30)
    assert bench.begun.acquire(timeout=30)
    assert not bench.notified.wait(0.1)
    for _ in range(3):
        bench.go.release()
    assert bench.notified.wait(30)
    bench.loop.stop()
    assert bench.loop.join(30)
    assert sorted(bench.passes) == ["a", "b", "c"]
