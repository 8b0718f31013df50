"""One conversation with placement over a transport.

It settles versions, sends request ids, repeats requests and counts them.
"""

from __future__ import annotations

import collections
import contextvars
import logging
import threading
import uuid as uuidlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from compute_agent import errors
from compute_agent.daemon import tracing
from compute_agent.placement import responses
from compute_agent.placement.retries import Retries, stepping_aside
from compute_agent.placement.transports.transport import (
    EXTENSIONS,
    VERSION_HEADER,
    WRITES,
    Microversion,
    Request,
    Response,
    Timeout,
    Transport,
)
from compute_agent.state.shapes import Shape

LOG = logging.getLogger(__name__)

Refused: TypeAlias = type[errors.PlacementError]
Refusals: TypeAlias = Mapping[int | str, Refused]
"""Errors by status of an answer or, which goes first, by placement's error code."""

NO_REFUSALS: Final[Refusals] = MappingProxyType({})

NO_CONDITIONS: Final[Mapping[str, str]] = MappingProxyType({})

BASE: Final[Microversion] = (1, 30)
"""Asked for wherever nothing newer is needed: the oldest that can reshape, with error codes."""

REPARENT: Final[Microversion] = (1, 37)
CONSUMER_TYPE: Final[Microversion] = (1, 38)
NEWEST: Final[Microversion] = (1, 39)

_PLAIN_PATH_WITH_PARAMETERS: Final = "/allocation_candidates"
"""The path of the plain API to which the extensions add parameters."""

RESHAPE_TIMEOUT: Final[Timeout] = (10.0, 300.0)


def new_global_request_id() -> str:
    """Make an id under which placement logs every request of one errand."""
    return f"req-{uuidlib.uuid4()}"


def version_text(version: Microversion) -> str:
    return f"{version[0]}.{version[1]}"


def parse_version(text: str) -> Microversion:
    """Return ``1.39`` as a pair.

    :raises ValueError: the text is not a microversion.
    """
    major, _, minor = text.partition(".")
    return int(major), int(minor)


class OfferedVersions(NamedTuple):
    """Content of the version document.

    :ivar extensions: the newest version of this project's extensions; None when there are none.
    """

    minimum: Microversion
    maximum: Microversion
    extensions: Microversion | None = None


@dataclass
class Tally:
    """The requests made for one pass or errand, under one global request id."""

    global_request_id: str
    requests: int = 0
    writes: int = 0
    failed_count: int = 0
    by_call: collections.Counter[str] = field(default_factory=collections.Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, method: str, path: str, status: int | None) -> None:
        with self._lock:
            self.requests += 1
            self.writes += method in WRITES
            self.failed_count += status is None or status >= 400
            self.by_call[f"{method} {_shape(path)}"] += 1


_tally: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("tally", default=None)


class Connection:
    """Requests that either have an answer worth reading or raise.  Safe in several threads."""

    def __init__(
        self,
        transport: Transport,
        retries: Retries | None = None,
        on_request: Callable[[str, str, int | None], None] | None = None,
        *,
        use_extensions: bool = False,
    ) -> None:
        self.transport = transport
        self.retries = retries or Retries()
        self._on_request = on_request
        self._use_extensions = use_extensions
        self.total = Tally(new_global_request_id())
        self._versions: OfferedVersions | None = None
        self._discovering = threading.Lock()

    @contextmanager
    def tracing(self, global_request_id: str | None = None) -> Iterator[Tally]:
        """Everything asked inside carries one global request id and is counted together."""
        tally = Tally(global_request_id or new_global_request_id())
        token = _tally.set(tally)
        try:
            yield tally
        finally:
            _tally.reset(token)

    @property
    def tally(self) -> Tally | None:
        """That of the innermost ``tracing`` this thread is in."""
        return _tally.get()

    def call(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        version: Microversion = BASE,
        json: object = None,
        timeout: Timeout | None = None,
        repeat: bool | None = None,
        extensions: Microversion | None = None,
        conditions: Mapping[str, str] = NO_CONDITIONS,
    ) -> Response:
        """Ask, and return an answer below 500 that is placement's own.

        :param doing: what this is for, as the beginning of a sentence.
        :param extensions: the version of the extensions that this needs, which placement announced.
        :param conditions: headers such as ``If-Match``.
        :param repeat: whether the same request may simply be sent again when placement cannot
            answer; None: unless it is a POST, which may have happened though its answer was lost.
        :raises errors.PlacementTooOld: the version is not offered, or the extensions not any more,
            as after a return to an older version; then the next question about versions asks again.
        :raises errors.PlacementError: as :func:`answers.raise_unless_answered`.
        """
        request = Request(
            method,
            path,
            version,
            json,
            timeout=timeout,
            extensions=version_text(extensions) if extensions else None,
            conditions=conditions,
        )
        if repeat is None:
            repeat = method != "POST"
        if extensions is None:
            return self._exchange(request, doing, repeat=repeat)
        try:
            response = self._exchange(request, doing, repeat=repeat)
            if _is_unknown(path, response):
                raise responses.failure(errors.PlacementTooOld, doing, method, path, response)
        except errors.PlacementTooOld:
            self.forget_versions()
            raise
        return response

    def read(
        self,
        path: str,
        doing: str,
        shape: Shape,
        error: Refused,
        *,
        version: Microversion = BASE,
        extensions: Microversion | None = None,
        refusals: Refusals = NO_REFUSALS,
    ) -> Response:
        """Ask for something that must be there, and return the answer, a 200 of this shape.

        :param doing: what this is for, as the beginning of a sentence.
        :param error: raised for any other answer.
        :param refusals: raised instead, by status or code of the answer.
        """
        response = self.call("GET", path, doing, version=version, extensions=extensions)
        self._require(response, (200,), "GET", path, doing, error, refusals)
        responses.body_of(response, error, doing, "GET", path, shape)
        return response

    def get(
        self,
        path: str,
        doing: str,
        shape: Shape,
        error: Refused,
        *,
        version: Microversion = BASE,
        extensions: Microversion | None = None,
        refusals: Refusals = NO_REFUSALS,
    ) -> Any:
        """As :meth:`read`, and return the body."""
        return self.read(
            path, doing, shape, error, version=version, extensions=extensions, refusals=refusals
        ).json

    def put(
        self,
        path: str,
        body: object,
        doing: str,
        shape: Shape,
        error: Refused,
        *,
        version: Microversion = BASE,
        refusals: Refusals = NO_REFUSALS,
    ) -> Any:
        """Write something that is answered with a 200, and return the body, which has this shape.

        The parameters are those of :meth:`read`.
        """
        response = self.call("PUT", path, doing, version=version, json=body)
        self._require(response, (200,), "PUT", path, doing, error, refusals)
        return responses.body_of(response, error, doing, "PUT", path, shape)

    def delete(
        self, path: str, doing: str, error: Refused, *, refusals: Refusals = NO_REFUSALS
    ) -> bool:
        """Delete something, and return whether it was there.

        The parameters are those of :meth:`read`.
        """
        response = self.call("DELETE", path, doing)
        self._require(response, (204, 404), "DELETE", path, doing, error, refusals)
        return response.status == 204

    def _require(
        self,
        response: Response,
        statuses: Collection[int],
        method: str,
        path: str,
        doing: str,
        error: Refused,
        refusals: Refusals,
    ) -> None:
        if response.status in statuses:
            return
        refusal = refusals.get(response.status, error)
        if code := responses.code_of(response):
            refusal = refusals.get(code, refusal)
        raise responses.failure(refusal, doing, method, path, response)

    def _exchange(self, request: Request, doing: str, *, repeat: bool) -> Response:
        def attempt() -> Response:
            return self._once(request, doing)

        return self.retries.while_unavailable(attempt) if repeat else attempt()

    def _once(self, request: Request, doing: str) -> Response:
        method, path = request.method, request.path
        tally = _tally.get()
        global_id = tally.global_request_id if tally else new_global_request_id()
        status = None
        try:
            response = self._send(replace(request, global_request_id=global_id))
            status = response.status
        except errors.PlacementUnavailable:
            # The next answer may come from another placement.
            self._versions = None
            raise
        finally:
            self.total.count(method, path, status)
            if tally is not None:
                tally.count(method, path, status)
            if self._on_request is not None:
                self._on_request(method, path, status)
        LOG.debug("%s -> %s [%s] global [%s]", request, status, response.request_id, global_id)
        responses.raise_unless_answered(doing, method, path, request.microversion, response)
        return response

    def _send(self, request: Request) -> Response:
        if not tracing.is_on():
            return self.transport.send(request)
        with tracing.span(
            f"{request.method} {_shape(request.path)}",
            "CLIENT",
            http__request__method=request.method,
            openstack__global_request_id=request.global_request_id or "",
        ) as span:
            response = self.transport.send(replace(request, trace=tracing.context_to_send()))
            span.set_attribute("http.response.status_code", response.status)
            span.set_attribute("openstack.request_id", response.request_id or "")
            return response

    @property
    def known_versions(self) -> OfferedVersions | None:
        """What placement offers, if that need not be asked again; no request."""
        return self._versions

    def versions(self) -> OfferedVersions:
        """Return what placement offers; asked once, and again after it could not be reached."""
        # a thread let in by stepping aside would wait here for the thread that stepped aside
        with self._discovering, stepping_aside(nullcontext):
            offered_versions = self._versions or self._discover()
            self._versions = offered_versions
        return offered_versions

    def ask_again(self) -> OfferedVersions:
        """Ask placement again what it offers, and once only: the question is whether it answers.

        A caller that waits for the end of an outage waits longer each time, so no second try is
        needed here.
        """
        self._versions = None
        with self._discovering:
            offered_versions = self._versions = self._discover(repeat=False)
        return offered_versions

    def forget_versions(self) -> None:
        """Ask again what placement offers before it matters: another one answers by now."""
        self._versions = None

    def newest(self, at_most: Microversion = NEWEST) -> Microversion:
        """Return the newest version both sides know."""
        return min(self.versions().maximum, at_most)

    def understands_extensions(self, version: Microversion = (1, 0)) -> bool:
        """Whether placement announces these extensions of ours and they are to be used."""
        newest = self.versions().extensions if self._use_extensions else None
        return newest is not None and newest >= version

    def _discover(self, *, repeat: bool = True) -> OfferedVersions:
        doing = "Asking placement for its versions"
        requested_version = "latest" if self._use_extensions else None
        request = Request("GET", "/", (1, 0), extensions=requested_version)
        response = self._exchange(request, doing, repeat=repeat)
        try:
            document = response.json["versions"][0]
            offered_versions = OfferedVersions(
                parse_version(document["min_version"]),
                parse_version(document["max_version"]),
                next(
                    (
                        parse_version(entry["max_version"])
                        for entry in response.json.get("extensions", ())
                        if entry["id"] == EXTENSIONS
                    ),
                    None,
                ),
            )
        except (TypeError, KeyError, IndexError, ValueError, AttributeError):
            responses.raise_malformed(
                response, errors.PlacementError, doing, "GET", "/", "a version document"
            )
        if offered_versions.maximum < BASE:
            raise errors.PlacementTooOld(
                f"placement offers microversions {version_text(offered_versions.minimum)} to "
                f"{version_text(offered_versions.maximum)}, at least {version_text(BASE)} is "
                "needed: upgrade placement first"
            )
        return offered_versions


def _is_unknown(path: str, response: Response) -> bool:
    """Whether a placement without extensions answered a request that needs them."""
    unknown_status = 400 if path.startswith(_PLAIN_PATH_WITH_PARAMETERS) else 404
    knows_extensions = EXTENSIONS in response.headers.get(VERSION_HEADER.lower(), "")
    return response.status == unknown_status and not knows_extensions


def _shape(path: str) -> str:
    """``path`` with what identifies one thing left out, as a label of few values."""
    plain = path.partition("?")[0]
    parts = plain.strip("/").split("/")
    if len(parts) > 1:
        parts[1] = "*"
    return "/" + "/".join(parts[:3])
