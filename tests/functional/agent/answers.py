"""Answers of placement that a pass cannot go on with, and what a start makes of each."""

from __future__ import annotations

import json
from collections.abc import Callable

from compute_agent import errors
from compute_agent.placement.transports.transport import Response, make_response
from compute_agent.tracker.decisions import ExitCode


def refusal(status: int, code: str = "placement.undefined_code") -> Callable[[], Response]:
    entry = {"status": status, "title": "t", "detail": "scripted", "code": code, "request_id": "r"}
    return lambda: make_response(status, [], json.dumps({"errors": [entry]}))


def silence() -> Response:
    raise errors.PlacementAPIConnectFailure("the connection was closed without an answer")


ANSWERS = {
    "400": (refusal(400), ExitCode.PLACEMENT_REJECTED),
    "401": (refusal(401), ExitCode.PLACEMENT_REJECTED),
    "403": (refusal(403), ExitCode.PLACEMENT_REJECTED),
    "404": (refusal(404), ExitCode.PLACEMENT_REJECTED),
    "409": (refusal(409), ExitCode.PLACEMENT_REJECTED),
    "409 conflict": (refusal(409, "placement.concurrent_update"), ExitCode.PLACEMENT_REJECTED),
    "500": (refusal(500), None),
    "503": (refusal(503), None),
    "500 of a proxy": (lambda: make_response(500, [], "<html>"), None),
    "garbage": (lambda: make_response(200, [], "<html>log in</html>"), 3),
    "empty": (lambda: make_response(200, [], ""), 3),
    "nothing": (silence, None),
}
