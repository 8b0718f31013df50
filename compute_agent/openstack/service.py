"""Client of one service of the cloud over HTTP, with an administrator's credential."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from keystoneauth1 import exceptions as ka_exc
from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.transports.keystone import MISREAD, load_adapter, refused_answer
from compute_agent.programs.exit_status import Exit

TRIES: Final = 4
TRANSIENT: Final = (429, 500, 502, 503, 504)
READS: Final = ("GET",)


class ServiceUnusable(errors.ComputeAgentError):
    """A service could not be reached, or refused; the message names the purpose and what to check.

    :ivar status: of its answer; `None` without one.
    """

    exit_status = Exit.PLACEMENT

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Service(Struct, eq=False):
    """Requests to one service through keystoneauth1; reads are repeated while it is away.

    :ivar title: its name in messages.
    :ivar group: the group of options for the way to it.
    :ivar version: a path that every request begins with, unless the endpoint ends with it.
    :ivar wait: waits so many seconds.
    """

    conf: Any
    group: str
    title: str
    version: str = ""
    wait: Callable[[float], None] = time.sleep
    _adapter: Any = None
    headers: dict[str, str] = {}

    def get(self, path: str, doing: str, **query: str) -> dict[str, Any]:
        """Return the JSON object at a path.

        :raises ServiceUnusable: it cannot be read.
        """
        return self._object("GET", f"{path}?{urlencode(query)}" if query else path, doing)

    def put(self, path: str, doing: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Write an object, and return it as the service stored it.

        :raises ServiceUnusable: it was refused, or it is not known whether it was done.
        """
        return self._object("PUT", path, doing, body)

    def pages(self, path: str, key: str, doing: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield every entry of a list, over all its pages.

        :raises ServiceUnusable: a page cannot be read.
        """
        target = f"{path}?{urlencode(query)}"
        visited_targets = set()
        while target not in visited_targets:
            visited_targets.add(target)
            body = self._object("GET", target, doing)
            entries = self._objects(body.get(key), key, doing)
            links = self._objects(body.get(f"{key}_links", []), f"{key}_links", doing)
            yield from entries
            next_links = [str(link.get("href")) for link in links if link.get("rel") == "next"]
            if not next_links:
                return
            # the link may name a host that cannot be reached from here: only its query is used
            target = f"{path}?{next_links[0].partition('?')[2]}"

    def _objects(self, answer: Any, key: str, doing: str) -> list[dict[str, Any]]:
        if isinstance(answer, list) and all(isinstance(entry, dict) for entry in answer):
            return answer
        raise ServiceUnusable(
            f"{doing} failed: the answer of {self.title} has no list {key!r} of objects. Check "
            f"what answers at the endpoint of group [{self.group}]."
        )

    def _object(
        self, method: str, path: str, doing: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        answer = self._answer(method, path, doing, body)
        try:
            document = answer.json()
        except ValueError as error:
            raise ServiceUnusable(
                f"{doing} failed: {self.title} answered {answer.status_code} with something that "
                f"is not JSON. Check what answers at the endpoint of group [{self.group}]."
            ) from error
        if answer.status_code >= 300 or not isinstance(document, dict):
            explanation = " ".join(re.sub(r"[{}\"]", "", answer.text).split())[:300]
            raise ServiceUnusable(
                f"{doing} failed: {self.title} answered {answer.status_code} ({explanation}). "
                f"Check the options of group [{self.group}] and the roles of its user.",
                answer.status_code,
            )
        return document

    def _answer(self, method: str, path: str, doing: str, body: Mapping[str, Any] | None) -> Any:
        last = None
        for attempt in range(TRIES if method in READS else 1):
            if attempt:
                self.wait(2.0**attempt / 2)
            try:
                answer = self._send(method, path, body)
            except (ka_exc.ConnectionError, ka_exc.HttpServerError) as error:
                if refusal := refused_answer(error):
                    raise ServiceUnusable(f"{doing} failed: {refusal}") from error
                # only keystone's own answers are raised
                last = error
                continue
            except (ka_exc.ClientException, OSError) as error:
                raise ServiceUnusable(
                    f"{doing} failed: {error}. Check the options of group [{self.group}] and the "
                    "catalogue of keystone."
                ) from error
            except MISREAD as error:
                raise ServiceUnusable(
                    f"{doing} failed: keystone answered something that cannot be used "
                    f"({type(error).__name__}: {error}). Check what answers at auth_url of group "
                    f"[{self.group}]."
                ) from error
            if answer.status_code not in TRANSIENT or attempt == TRIES - 1 or method not in READS:
                return answer
        raise ServiceUnusable(
            f"{doing} failed: {self.title} does not answer ({last}). Try again when it does."
        ) from last

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        if self._adapter is None:
            self._adapter = load_adapter(self.conf, self.group)
        arguments: dict[str, Any] = {"raise_exc": False, "headers": dict(self.headers)}
        if body is not None:
            arguments["json"] = body
        endpoint = str(self._adapter.get_endpoint() or "").rstrip("/")
        prefix = "" if endpoint.endswith(self.version) else self.version
        return self._adapter.request(prefix + path, method, **arguments)
