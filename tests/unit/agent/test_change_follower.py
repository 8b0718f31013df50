"""The questions of the agent to the feed of changes, and what it does with the answers."""

from __future__ import annotations

import json
import random
from urllib.parse import parse_qs, urlsplit

import pytest

from compute_agent import errors
from compute_agent.agent import metrics
from compute_agent.agent.change_follower import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    NOT_OFFERED_PAUSE,
    ChangeFollower,
)
from compute_agent.placement.changes import ChangeFeed
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.tracker.status import FeedState, StatusBoard

NODES = {"first": "uuid-1", "second": "uuid-2"}


def page(last: int, *roots: str) -> Response:
    changes = [{"id": last, "root_provider_uuid": root, "kinds": ["structure"]} for root in roots]
    return Response(200, {}, json.dumps({"changes": changes, "last": last, "oldest": 1}).encode())


def refusal(status: int, code: str = "placement.undefined_code", **headers: str) -> Response:
    entry = {"status": status, "title": "", "detail": "no", "code": code, "request_id": "req-1"}
    if status == 406:
        entry |= {"min_version": "1.0", "max_version": "1.39"}
    return Response(status, headers, json.dumps({"errors": [entry]}).encode())


class ScriptedPlacement:
    """Answers in turn; None: there is no answer."""

    def __init__(self, *answers: Response | None) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)

    def send(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if answer is None:
            raise errors.PlacementAPIConnectFailure("no answer")
        return answer

    def asked(self) -> list[dict[str, list[str]]]:
        return [parse_qs(urlsplit(request.path).query) for request in self.requests]


class FollowerScene:
    def __init__(self, *answers: Response | None, seconds: float = 10.0) -> None:
        self.placement = ScriptedPlacement(*answers)
        self.nodes = dict(NODES)
        self.board = StatusBoard("host")
        self.changed: list[str] = []
        self.now = 0.0

        def clock() -> float:
            self.now += seconds
            return self.now

        self.follower = ChangeFollower(
            ChangeFeed(Connection(self.placement)),
            lambda: self.nodes,
            self.changed.append,
            self.board,
            rng=random.Random(1),
            clock=clock,
        )

    def ask(self, times: int = 1) -> list[float]:
        return [self.follower.ask_once() for _ in range(times)]

    @property
    def state(self) -> FeedState:
        return self.board.feed.state


def test_every_node_gets_a_pass_at_the_beginning_and_then_those_that_changed() -> None:
    following = FollowerScene(page(4), page(7, "uuid-2"), page(9, "uuid-3"))
    assert following.ask() == [0.0]
    assert following.changed == ["first", "second"]
    assert following.ask(2) == [0.0, 0.0]
    assert following.changed == ["first", "second", "second"]
    first, second, third = following.placement.asked()
    asked = {"root": ["uuid-1", "uuid-2"], "kind": ["structure"], "limit": ["1000"]}
    assert first == asked
    assert second == {**first, "after": ["4"], "wait": ["50"]}
    assert third["after"] == ["7"]
    assert {request.extensions for request in following.placement.requests} == {(1, 1)}
    assert following.board.feed.last == 9
    assert following.state is FeedState.FOLLOWING
    served = metrics.registry(following.board)
    assert served.get_sample_value("compute_agent_changes_followed") == 1
    assert served.get_sample_value("compute_agent_changes_total") == 2


def test_a_node_that_came_during_a_question_gets_a_pass_as_its_changes_were_not_asked_for() -> None:
    following = FollowerScene(page(4), page(7), page(8))
    following.ask()
    following.changed.clear()
    send = following.placement.send

    def come_meanwhile(request: Request) -> Response:
        following.nodes = {**NODES, "third": "uuid-3"}
        return send(request)

    following.placement.send = come_meanwhile  # type: ignore[method-assign]
    following.ask(2)
    assert following.changed == ["third"]


def test_changes_that_were_deleted_give_every_node_a_pass() -> None:
    following = FollowerScene(page(4), refusal(410, "placement.changes_pruned"), page(90))
    assert following.ask(3) == [0.0, 0.0, 0.0]
    assert following.changed == ["first", "second", "first", "second"]
    assert "after" not in following.placement.asked()[2]


@pytest.mark.parametrize(
    "answer", [None, refusal(503), refusal(403), Response(200, {}, b'{"changes": []}')]
)
def test_failures_are_waited_for_longer_each_time_and_it_goes_on_where_it_was(
    answer: Response | None, caplog: pytest.LogCaptureFixture
) -> None:
    following = FollowerScene(page(4), *([answer] * 10), page(5, "uuid-1"))
    following.ask()
    pauses = following.ask(10)
    assert 0.5 * FIRST_PAUSE <= pauses[0] <= 1.5 * FIRST_PAUSE
    assert pauses[4] > 4 * FIRST_PAUSE
    assert 0.5 * LONGEST_PAUSE <= pauses[-1] <= 1.5 * LONGEST_PAUSE
    assert following.state is FeedState.FAILING
    assert following.board.feed.why in caplog.text
    assert following.board.feed.why
    assert "; changes not followed since" in following.board.summary()
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    following.changed.clear()
    assert following.ask() == [0.0]
    assert following.changed == ["first"]
    assert following.board.feed.why == ""
    assert "changes" not in following.board.summary()
    assert {query["after"][0] for query in following.placement.asked()[1:]} == {"4"}


def test_it_waits_as_long_as_placement_asks_it_to() -> None:
    following = FollowerScene(refusal(503, **{"retry-after": "20"}))
    assert following.ask() == [20.0]


@pytest.mark.parametrize("status", [404, 406])
def test_a_placement_without_a_feed_is_asked_again_later(status: int) -> None:
    following = FollowerScene(refusal(status), refusal(status), page(3))
    assert following.ask(2) == [NOT_OFFERED_PAUSE] * 2
    assert following.state is FeedState.NOT_OFFERED
    assert "; changes not followed since" in following.board.summary()
    assert "Asking for changes" in following.board.feed.why
    assert following.changed == []
    following.ask()
    assert following.changed == ["first", "second"]


def test_a_placement_that_does_not_wait_is_not_asked_without_a_pause() -> None:
    following = FollowerScene(page(4), page(4), seconds=0.01)
    assert following.ask(2) == [0.0, FIRST_PAUSE]


def test_after_the_stop_no_pass_is_asked_for() -> None:
    following = FollowerScene(page(4))
    following.follower.stop()
    following.ask()
    assert following.changed == []


def test_that_changes_are_followed_again_is_logged_after_a_defect_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    following = FollowerScene(page(1))
    ask_once = following.follower.ask_once

    def fail() -> float:
        following.follower.stop()
        raise ValueError("a defect")

    monkeypatch.setattr(ChangeFollower, "ask_once", lambda _follower: fail())
    following.follower._run()
    assert following.state is FeedState.FAILING
    ask_once()
    assert "followed again" in caplog.text
