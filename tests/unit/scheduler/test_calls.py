"""Calls in progress, which the watchdog goes by."""

from __future__ import annotations

import pytest

from compute_agent.placement.transports.transport import Request, Response
from compute_agent.scheduler.service.metrics import Calls, WatchedTransport


def test_without_calls_work_always_goes_on() -> None:
    calls = Calls()
    assert calls.move_on()
    assert calls.move_on()


def test_a_call_that_hangs_is_not_progress_and_time_alone_is_none() -> None:
    calls = Calls()
    with calls.answering("select_destinations"):
        assert not calls.move_on()
        calls.record_progress()
        assert calls.move_on()
        assert not calls.move_on()
    assert calls.move_on()


def test_the_end_of_one_call_is_progress_while_another_goes_on_also_when_it_fails() -> None:
    calls = Calls()
    with calls.answering("begin_move"):
        with pytest.raises(ValueError, match="defect"), calls.answering("select_destinations"):
            raise ValueError("defect")
        assert calls.move_on()
        assert not calls.move_on()


def test_every_answer_of_placement_is_progress() -> None:
    class AnsweringTransport:
        def send(self, request: Request) -> Response:
            return Response(204, {}, b"")

    calls = Calls()
    transport = WatchedTransport(AnsweringTransport(), calls.record_progress)
    with calls.answering("select_destinations"):
        transport.send(Request("GET", "/", (1, 0), None))
        assert calls.move_on()


def test_calls_in_progress_are_listed_with_their_age() -> None:
    now = [10.0]
    calls = Calls(lambda: now[0])
    with calls.answering("begin_move"):
        now[0] = 12.5
        assert calls.in_progress() == [{"method": "begin_move", "seconds": 2.5}]
    assert calls.in_progress() == []
