"""Ends of the process, other releases and other rights in the middle of a pass."""

import json

from compute_agent.placement.transports.transport import Response
from tests.functional.report.failing_answers import answering, explained


def path(host) -> str:
    return f"/provider_trees/{host.root}"


def inventory_of(other, uuid: str):
    return other.find_provider(uuid).inventory


def may_not_replace_trees(host) -> None:
    answering(host, 403, explained(403, "policy"), lambda *sent: sent == ("PUT", path(host)))


class Killed(BaseException):
    """The process ends."""


def kill_at(host, step: int, *, done: bool) -> None:
    """End the process at a request: before it is sent, or after placement carried it out."""
    host.client  # noqa: B018 - asks for the versions first
    left = [step]

    def hook(*_sent):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return _sent[3] if done else None

    if done:
        host.transport.after = hook
    else:
        host.transport.before = hook


def older(host, *, release: str | None = "1.0", from_method: str = "") -> None:
    """Another placement answers from now on: one of an older release, or without extensions."""
    versions = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}
    if release is not None:
        entry = {"id": "placement-ext", "min_version": "1.0", "max_version": release}
        versions["extensions"] = [entry]
    seen = [not from_method]

    def hook(method, sent, body):
        seen[0] = seen[0] or method == from_method
        if not seen[0]:
            return None
        if sent == "/":
            return Response(200, {}, versions, json.dumps(versions))
        if not sent.startswith("/provider_trees/"):
            return None
        if release is None:
            headers = {"openstack-api-version": "placement 1.38"}
            text = explained(404, "The resource could not be found.")
            return Response(404, headers, json.loads(text), text)
        error = {"status": 406, "title": "x", "detail": "x", "min_version": "1.0"}
        document = {"errors": [error | {"max_version": "1.39"}]}
        return Response(406, {}, document, json.dumps(document))

    host.transport.before = hook
