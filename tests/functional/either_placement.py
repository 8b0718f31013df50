"""A placement in this process: this project's server, or the published one behind a pipe."""

from __future__ import annotations

import json as jsonlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import (
    Microversion,
    Request,
    Response,
    Transport,
    make_response,
)
from placement_server.app import build_app
from placement_server.conf import new_config
from tests.fixtures.databases import migrated_sqlite
from tests.fixtures.environments import skip_without_environment
from tests.functional.api.differential.reference import Reference

KINDS = ("ours", "published")


def ours(directory: Path) -> Any:
    """This project's application on a database file in a directory."""
    conf = new_config(config_files=[])
    for name, value in {
        "connection": migrated_sqlite(directory / "placement.db"),
        "sync_on_startup": True,
        "sqlite_synchronous": False,
    }.items():
        conf.set_override(name, value, group="placement_database")
    return build_app(conf, auth_strategy="noauth2")


class PipeTransport:
    """The published placement at the other end of a pipe; one request at a time."""

    def __init__(self, published: Reference) -> None:
        self._published = published
        self._lock = threading.Lock()

    def send(self, request: Request) -> Response:
        headers = request.headers()
        headers["X-Auth-Token"] = "admin"
        body = None
        if request.json is not None:
            headers["Content-Type"] = "application/json"
            body = jsonlib.dumps(request.json).encode()
        with self._lock:
            answer = self._published(request.method, request.path, headers=headers, body=body)
        return make_response(answer.status, answer.headers.items(), answer.body.decode())


class OlderPlacement:
    """A placement that refuses what came after `newest`, as one of that age would."""

    def __init__(self, inner: Transport, newest: Microversion) -> None:
        self._inner = inner
        self._newest = newest

    def send(self, request: Request) -> Response:
        if request.microversion > self._newest:
            offered = {"min_version": "1.0", "max_version": self._text}
            error = {"status": 406, "detail": "Unacceptable version header", **offered}
            return make_response(406, [], jsonlib.dumps({"errors": [error]}))
        answer = self._inner.send(request)
        if request.path != "/":
            return answer
        document = jsonlib.loads(answer.content)
        document["versions"][0] |= {"max_version": self._text}
        document["versions"][0].pop("extensions", None)
        return make_response(200, answer.headers.items(), jsonlib.dumps(document))

    @property
    def _text(self) -> str:
        return f"{self._newest[0]}.{self._newest[1]}"


@contextmanager
def placement_of(kind: str, directory: Path) -> Iterator[Transport]:
    """A placement of one of the kinds, with its database in a directory.

    The test is skipped where the published package cannot be had.
    """
    if kind == "ours":
        yield InProcessTransport(ours(directory))
        return
    with skip_without_environment():
        published = Reference(directory)
    yield PipeTransport(published)
    published.close()
