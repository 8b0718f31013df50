"""One conversation with placement over a transport.

It settles versions, sends request ids, repeats requests and counts them. Tries, with the waits
before each further one:

    placement cannot answer (GET, PUT, DELETE)  3   0.5 s, 1 s, each +-25 %; Retry-After if longer
    generation conflict, lost race              4   uniform in [0, 2 x try]
"""

from __future__ import annotations

import collections
import contextvars
import logging
import random as randomlib
import threading
import time
import uuid as uuidlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.daemon import tracing
from compute_agent.discovery.bounded_calls import NOTICEABLE, HungCall
from compute_agent.placement import responses
from compute_agent.placement.answers import VersionDocument
from compute_agent.placement.transports.transport import (
    BASE,
    EXTENSIONS,
    EXTENSIONS_VERSION,
    VERSION_HEADER,
    WRITES,
    Microversion,
    Request,
    Response,
    Timeout,
    Transport,
    clock_offset,
    version_text,
)

UNAVAILABLE_TRIES: Final = 3
CONFLICT_TRIES: Final = 4
LONGEST_WAIT: Final = 5.0
"""A longer Retry-After is left to the planner of the pass: no request sleeps for minutes."""

T = TypeVar("T")
Aside = Callable[[], AbstractContextManager[None]]

_aside: ContextVar[Aside] = ContextVar("aside", default=nullcontext)


@contextmanager
def stepping_aside(aside: Aside) -> Iterator[None]:
    """Enter `aside` around every wait inside, in this thread and in those that work for it.

    :param aside: lets others have meanwhile what the caller holds; `nullcontext` keeps it.
    """
    token = _aside.set(aside)
    try:
        yield
    finally:
        _aside.reset(token)


class Clock:
    """The machine's own clock; a test may have another."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Retries(Struct, frozen=True):
    """The policies, over one clock and one source of chance."""

    clock: Clock = field(default_factory=Clock)
    random: randomlib.Random = field(default_factory=randomlib.Random)

    def while_unavailable(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while placement cannot answer; the last failure is raised."""
        tries = 0
        while True:
            try:
                return attempt()
            except errors.PlacementUnavailable as outage:
                tries += 1
                self.wait_out(outage, tries)

    def wait_out(self, outage: errors.PlacementUnavailable, tries: int) -> None:
        """Wait before the next try; raise the outage where none is worth it any more.

        :param tries: so many have failed.
        """
        # an answer that was refused would cost as much the next time, in time or memory
        is_hopeless = isinstance(outage, errors.PlacementAnswerRefused)
        requested_wait = outage.retry_after or 0.0
        if tries >= UNAVAILABLE_TRIES or is_hopeless or requested_wait > LONGEST_WAIT:
            raise outage
        self._sleep(max(self.with_jitter(0.5 * 2 ** (tries - 1), 0.25), requested_wait))

    def while_conflicting(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while another writer is first; the last conflict is raised.

        `attempt` must read again what it builds upon.
        """
        for tries in range(1, CONFLICT_TRIES):
            try:
                return attempt()
            except errors.ResourceProviderUpdateConflict:
                # The first repetition is at once: nearly always one other writer, who is done.
                if (seconds := self.random.uniform(0, 2 * (tries - 1))) > 0:
                    self._sleep(seconds)
        return attempt()

    def with_jitter(self, seconds: float, share: float) -> float:
        """`seconds` more or less by up to `share` of them."""
        return seconds * self.random.uniform(1 - share, 1 + share)

    def _sleep(self, seconds: float) -> None:
        with _aside.get()():
            self.clock.sleep(seconds)


LOG = logging.getLogger(__name__)

REPARENT: Final[Microversion] = (1, 37)
CONSUMER_TYPE: Final[Microversion] = (1, 38)
NEWEST: Final[Microversion] = (1, 39)

_PLAIN_PATH_WITH_PARAMETERS: Final = "/allocation_candidates"
"""The path of the plain API to which the extensions add parameters."""

RESHAPE_TIMEOUT: Final[Timeout] = (10.0, 300.0)


def new_global_request_id() -> str:
    """Make an id under which placement logs every request of one errand."""
    return f"req-{uuidlib.uuid4()}"


def parse_version(text: str) -> Microversion:
    """Return `1.39` as a pair.

    :raises ValueError: the text is not a microversion.
    """
    major, _, minor = text.partition(".")
    return int(major), int(minor)


class OfferedVersions(Struct, frozen=True):
    """Content of the version document.

    :ivar extensions: the newest version of this project's extensions; None when there are none.
    """

    minimum: Microversion
    maximum: Microversion
    extensions: Microversion | None = None


class Tally(Struct):
    """The requests made for one pass or errand, under one global request id."""

    global_request_id: str
    requests: int = 0
    writes: int = 0
    failed_count: int = 0
    by_call: collections.Counter[str] = field(default_factory=collections.Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
        on_request: Callable[[str, int | None, float | None], None] | None = None,
        *,
        use_extensions: bool = False,
    ) -> None:
        self.transport = transport
        self.retries = retries or Retries()
        self._on_request = on_request
        self._last_answer = "", 0.0
        self._use_extensions = use_extensions
        self.total = Tally(new_global_request_id())
        self._versions: OfferedVersions | None = None
        self._discovering = threading.Lock()
        self._unanswered: dict[int, tuple[Request, float]] = {}

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
        """That of the innermost `tracing` this thread is in."""
        return _tally.get()

    def call(self, request: Request) -> Response:
        """Ask, and return a good answer, or where the request names none, what placement answered.

        :raises errors.PlacementTooOld: the version is not offered, or the extensions not any more,
            as after a return to an older version; then the next question about versions asks again.
        :raises errors.PlacementError: as `responses.raise_unless_answered`, or what the
            request names for its answer.
        """
        tally = _tally.get()
        global_id = tally.global_request_id if tally else new_global_request_id()
        request = replace(request, global_request_id=global_id)
        repeats = request.method != "POST" if request.repeat is None else request.repeat
        tries = 0
        while True:
            response: Response | None = None
            try:
                try:
                    self._unanswered[threading.get_ident()] = request, time.monotonic()
                    send = self._send_traced if tracing.is_on() else self.transport.send
                    response = send(request)
                finally:
                    del self._unanswered[threading.get_ident()]
                    self._count(request, response, tally)
                if response.status >= 400:
                    responses.raise_unless_answered(request, response)
                    self._raise_if_unknown(request, response)
                break
            except errors.PlacementUnavailable as outage:
                if response is None:
                    # The next answer may come from another placement.
                    self._versions = None
                if not repeats:
                    raise
                tries += 1
                self.retries.wait_out(outage, tries)
            except errors.PlacementTooOld:
                if request.extensions is not None:
                    # another placement answers by now, so what it offers is asked again
                    self._versions = None
                raise
        if request.good and response.status not in request.good:
            raise responses.refused(request, response)
        return response

    def read(self, request: Request, kind: type[T]) -> T:
        """Ask, and return the body of the answer, which has the status 200.

        :param kind: its type.
        :raises errors.PlacementError: as `call`, or the body is of no such type.
        """
        request = replace(request, good=(200,))
        return responses.body_of(request, self.call(request), kind)

    def hanging(self) -> tuple[HungCall, ...]:
        """Return the requests that have had no answer for a noticeable time."""
        now, wall = time.monotonic(), time.time()
        return tuple(
            HungCall("placement", f"{request.method} {request.path}", wall - (now - began))
            for request, began in self._unanswered.copy().values()
            if now - began >= NOTICEABLE
        )

    def _send_traced(self, request: Request) -> Response:
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

    def _count(self, request: Request, response: Response | None, tally: Tally | None) -> None:
        status = response.status if response is not None else None
        self.total.count(request.method, request.path, status)
        if tally is not None:
            tally.count(request.method, request.path, status)
        if response is not None:
            self._last_answer = response.headers.get("date", ""), time.time()
        if self._on_request is not None:
            self._on_request(request.method, status, self.clock_offset)
        if response is not None:
            LOG.debug(
                "%s -> %s [%s] global [%s]",
                *(request, status, response.request_id, request.global_request_id),
            )

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which this machine's clock is ahead of placement's, by its last answer."""
        return clock_offset(*self._last_answer)

    @staticmethod
    def _raise_if_unknown(request: Request, response: Response) -> None:
        """Raise for the answer of a placement without the extensions that the request needs."""
        if request.extensions in (None, "latest"):
            return
        unknown_status = 400 if request.path.startswith(_PLAIN_PATH_WITH_PARAMETERS) else 404
        knows_extensions = EXTENSIONS in response.headers.get(VERSION_HEADER.lower(), "")
        if response.status == unknown_status and not knows_extensions:
            raise responses.failure(errors.PlacementTooOld, request, response)

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

    def newest(self, at_most: Microversion = NEWEST) -> Microversion:
        """Return the newest version both sides know."""
        return min(self.versions().maximum, at_most)

    def understands_extensions(self) -> bool:
        """Whether placement announces these extensions of ours and they are to be used."""
        newest = self.versions().extensions if self._use_extensions else None
        return newest is not None and newest >= EXTENSIONS_VERSION

    def _discover(self, *, repeat: bool = True) -> OfferedVersions:
        request = Request(
            "GET",
            "/",
            (1, 0),
            extensions="latest" if self._use_extensions else None,
            doing="Asking placement for its versions",
            repeat=repeat,
        )
        response = self.call(request)
        document = responses.body_of(request, response, VersionDocument)
        try:
            versions = document.versions[0]
            own = [entry for entry in document.extensions if entry.id == EXTENSIONS]
            offered_versions = OfferedVersions(
                parse_version(versions.min_version),
                parse_version(versions.max_version),
                parse_version(own[0].max_version) if own else None,
            )
        except (IndexError, ValueError):
            raise responses.malformed(request, response, "a version document") from None
        if offered_versions.maximum < BASE:
            raise errors.PlacementTooOld(
                f"placement offers microversions {version_text(offered_versions.minimum)} to "
                f"{version_text(offered_versions.maximum)}, at least {version_text(BASE)} is "
                "needed: upgrade placement first"
            )
        return offered_versions


def _shape(path: str) -> str:
    """`path` with what identifies one thing left out, as a label of few values."""
    plain = path.partition("?")[0]
    parts = plain.strip("/").split("/")
    if len(parts) > 1:
        parts[1] = "*"
    return "/" + "/".join(parts[:3])
