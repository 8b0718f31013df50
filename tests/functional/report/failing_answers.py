"""Placement as a host sees it when answers get lost, nobody listens, or another one answers."""

import json

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Response

# What the client makes of broken answers does not depend on who did not break them.
OURS_ALONE = pytest.mark.parametrize("placement", ["ours"], indirect=True)


def lost_after(host, method: str, ending: str, times: int = 1) -> list[str]:
    """The next such requests reach placement, their answers get lost on the way back."""
    lost: list[str] = []

    def hook(sent_method, path, body, response):
        if len(lost) < times and sent_method == method and path.split("?")[0].endswith(ending):
            lost.append(path)
            raise errors.PlacementAPIConnectFailure("connection reset", method=method, path=path)
        return response

    host.transport.after = hook
    return lost


def refused(host, times: int = 10**6) -> None:
    """Nobody listens."""
    left = [times]

    def hook(method, path, body):
        if left[0] > 0:
            left[0] -= 1
            raise errors.PlacementAPIConnectFailure("refused", method=method, path=path)

    host.transport.before = hook


def answering(host, status: int, text: str, when, headers: dict | None = None) -> None:
    """Answer matching requests in placement's place."""

    def hook(method, path, sent):
        return Response(status, headers or {}, text.encode()) if when(method, path) else None

    host.transport.before = hook


def explained(status: int, detail: str, code: str = "placement.undefined_code") -> str:
    return json.dumps(
        {"errors": [{"status": status, "title": "x", "detail": detail, "code": code}]}
    )
