"""Calls that hang are given up, and what else waits for the source is told so at once."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from compute_agent.discovery import bounded_calls
from compute_agent.discovery.bounded_calls import BoundedCalls, step
from compute_agent.discovery.errors import CallHangs

SHORT = 0.01
PATIENCE = 60.0


class HangingFunction:
    """A function that hangs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return "late"


class InThread:
    """The outcome of a call that another thread waits for."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.outcome: object = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except CallHangs as error:
            self.outcome = error

    def wait(self) -> object:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.outcome


@pytest.fixture
def hanging() -> Iterator[HangingFunction]:
    """Give a function that hangs for the length of the test."""
    function = HangingFunction()
    yield function
    function.let_go.set()


def until_it_returned(calls: BoundedCalls) -> None:
    """Wait until the source takes calls again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            calls.run("probe", lambda: None)
        except CallHangs:
            assert time.monotonic() < deadline
        else:
            return


def test_a_call_raises_what_the_function_raises() -> None:
    def fail() -> None:
        raise KeyError("which")

    with pytest.raises(KeyError, match="which"):
        BoundedCalls("source").run("call", fail)


def test_calls_one_after_another_run_in_one_thread_that_is_not_the_callers() -> None:
    calls = BoundedCalls("source")
    threads = {calls.run("call", threading.get_ident) for _ in range(20)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_call_that_hangs_is_given_up_and_named_with_its_source_and_time(
    hanging: HangingFunction,
) -> None:
    calls = BoundedCalls("libvirt at test:///default", SHORT)
    with pytest.raises(
        CallHangs,
        match=r"libvirt at test:///default: listAllDomains has not returned since \d{4}-\d\d-\d\dT",
    ):
        calls.run("listAllDomains", hanging)
    [hung_call] = calls.hanging()
    assert (hung_call.source, hung_call.call) == ("libvirt at test:///default", "listAllDomains")
    assert abs(hung_call.since - time.time()) < PATIENCE


def test_while_a_call_hangs_others_fail_at_once_with_its_name_and_start_no_thread(
    hanging: HangingFunction,
) -> None:
    calls = BoundedCalls("source", SHORT)
    with pytest.raises(CallHangs):
        calls.run("first", hanging)
    threads = threading.active_count()
    for _ in range(20):
        with pytest.raises(CallHangs, match="source: first has not returned since"):
            calls.run("second", lambda: pytest.fail("it was called"))
    assert threading.active_count() == threads


def test_a_source_is_asked_again_once_the_hung_call_returned(hanging: HangingFunction) -> None:
    calls = BoundedCalls("source", SHORT)
    with pytest.raises(CallHangs):
        calls.run("call", hanging)
    hanging.let_go.set()
    until_it_returned(calls)
    assert calls.hanging() == ()


def test_another_source_is_asked_while_one_hangs(hanging: HangingFunction) -> None:
    with pytest.raises(CallHangs):
        BoundedCalls("one", SHORT).run("call", hanging)
    assert BoundedCalls("other").run("call", lambda: 7) == 7


def test_calls_of_several_threads_run_at_once(hanging: HangingFunction) -> None:
    calls = BoundedCalls("source")
    slow = InThread(lambda: calls.run("slow", hanging))
    assert hanging.begun.wait(PATIENCE)
    assert calls.run("fast", lambda: 7) == 7
    hanging.let_go.set()
    assert slow.wait() == "late"


def test_a_source_for_one_thread_is_asked_one_call_at_a_time(hanging: HangingFunction) -> None:
    calls = BoundedCalls("source", one_at_a_time=True)
    order = []
    first = InThread(lambda: calls.run("first", lambda: order.append(hanging())))
    assert hanging.begun.wait(PATIENCE)
    second = InThread(lambda: calls.run("second", lambda: order.append("second")))
    hanging.let_go.set()
    first.wait()
    second.wait()
    assert order == ["late", "second"]


def test_a_call_that_waits_for_its_turn_is_bounded_too(hanging: HangingFunction) -> None:
    calls = BoundedCalls("source", one_at_a_time=True)
    first = InThread(lambda: calls.run("first", hanging))
    assert hanging.begun.wait(PATIENCE)
    with pytest.raises(CallHangs, match="source: first has not returned since"):
        calls.run("second", lambda: None, timeout=SHORT)
    hanging.let_go.set()
    assert first.wait() == "late"


def test_a_call_for_which_no_thread_starts_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    calls = BoundedCalls("source", one_at_a_time=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            calls.run("first", lambda: None)
    assert calls.run("second", lambda: 2) == 2


def test_a_call_inside_a_call_runs_in_its_thread() -> None:
    calls = BoundedCalls("source", one_at_a_time=True)
    assert calls.run(
        "outer",
        lambda: calls.run("inner", threading.get_ident) == threading.get_ident(),
    )


def test_the_step_that_hangs_is_named(
    hanging: HangingFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = BoundedCalls("this machine", 3600.0)

    def look() -> None:
        step("/sys/first")
        step("/sys/second")
        hanging()

    monkeypatch.setattr(bounded_calls, "NOTICEABLE", 0.0)
    running = InThread(lambda: calls.run("look", look))
    assert hanging.begun.wait(PATIENCE)
    calls.stop_waiting()
    assert "this machine: /sys/second has not returned since" in str(running.wait())


def test_each_step_has_the_whole_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looked, caller = [1000.0], threading.Event(), threading.get_ident()

    def clock() -> float:
        if threading.get_ident() == caller:
            looked.set()
        return now[0]

    monkeypatch.setattr(bounded_calls.time, "monotonic", clock)
    monkeypatch.setattr(bounded_calls, "NOTICEABLE", 60.0)
    calls = BoundedCalls("this machine", 60.0)

    def look() -> str:
        for number in range(5):
            step(f"file {number}")
            now[0] += 59.0
            looked.clear()
            calls.stop_waiting()  # the deadline stays, and the caller looks at the clock
            assert looked.wait(PATIENCE)
        return "all"

    assert calls.run("look", look) == "all"


def test_a_step_outside_of_a_call_is_none_of_the_calls_of_others(hanging: HangingFunction) -> None:
    calls = BoundedCalls("source", SHORT)
    with pytest.raises(CallHangs):
        calls.run("call", hanging)
    step("/sys/first")
    assert [call.call for call in calls.hanging()] == ["call"]


def test_a_call_shows_as_hanging_only_after_a_noticeable_time(
    hanging: HangingFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = BoundedCalls("source")
    running = InThread(lambda: calls.run("call", hanging))
    assert hanging.begun.wait(PATIENCE)
    assert calls.hanging() == ()
    monkeypatch.setattr(bounded_calls, "NOTICEABLE", 0.0)
    assert [call.call for call in calls.hanging()] == ["call"]
    hanging.let_go.set()
    assert running.wait() == "late"


def test_a_process_that_ends_does_not_wait_for_the_deadline(
    hanging: HangingFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_calls, "NOTICEABLE", SHORT)
    calls = BoundedCalls("source", 3600.0)
    running = InThread(lambda: calls.run("call", hanging))
    assert hanging.begun.wait(PATIENCE)
    calls.stop_waiting()
    assert isinstance(running.wait(), CallHangs)


def test_what_a_call_returned_too_late_is_dropped() -> None:
    class Domain:
        """Something that asks the daemon when it is let go."""

    let_go, kept = threading.Event(), []

    def late() -> Domain:
        assert let_go.wait(PATIENCE)
        domain = Domain()
        kept.append(weakref.ref(domain))
        return domain

    calls = BoundedCalls("source", SHORT)
    with pytest.raises(CallHangs):
        calls.run("call", late)
    let_go.set()
    until_it_returned(calls)
    assert kept[0]() is None


def test_threads_without_work_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_calls, "IDLE", SHORT)
    calls = BoundedCalls("source")
    thread = calls.run("call", threading.current_thread)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert calls.run("call", lambda: 7) == 7
