"""Transports of one request to placement: over HTTP, in process, or only recorded.

A transport returns whatever was answered, whatever its status, and raises only when there was no
answer: `PlacementAPIConnectFailure` (refused, reset, timed out) or `PlacementUnauthorized` (no
credentials or endpoint to ask with).  What an answer means is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from compute_agent import errors

Microversion: TypeAlias = tuple[int, int]
Timeout: TypeAlias = tuple[float, float]
Refused: TypeAlias = type[errors.PlacementError]
Refusals: TypeAlias = Mapping[int | str, Refused]
"""Errors by status of an answer or, which goes first, by placement's error code."""

BASE: Final[Microversion] = (1, 30)
"""Asked for wherever nothing newer is needed: the oldest that can reshape, with error codes."""

VERSION_HEADER: Final = "OpenStack-API-Version"
EXTENSIONS: Final = "placement-ext"
"""Service type under which extensions of the API are asked for and announced."""
EXTENSIONS_VERSION: Final[Microversion] = (1, 1)
"""The one in which they are asked for; a placement that offers older ones only is taken for one
without.
"""

CLOCK_SECONDS: Final = 5
"""By which clocks may differ without harm."""
GLOBAL_ID_HEADER: Final = "X-Openstack-Request-Id"
WRITES: Final = frozenset({"POST", "PUT", "DELETE"})


def version_text(version: Microversion) -> str:
    return f"{version[0]}.{version[1]}"


class Request(Struct, frozen=True):
    """One request to placement, and what an answer to it means.

    :ivar path: path and query string, quoted, starting with `/`.
    :ivar json: the body; None sends none.
    :ivar timeout: seconds to connect and to read; None takes the transport's own.
    :ivar extensions: the version of this project's extensions of the API to ask for beside the
        microversion, or `latest`; a placement that has none ignores that.
    :ivar own_headers: further headers, by name, such as a condition of the request.
    :ivar trace: headers that make placement go on with a trace.
    :ivar doing: what it is for, as the beginning of a sentence.
    :ivar good: the statuses of an answer that is not an error; empty: the caller judges the answer.
    :ivar error: raised for an answer that is none of the good ones.
    :ivar refusals: raised instead, by status or code of the answer.
    :ivar repeat: whether it may simply be sent again when placement cannot answer; None: unless it
        is a POST, which may have happened though its answer was lost.
    """

    method: str
    path: str
    microversion: Microversion = BASE
    json: object = None
    global_request_id: str | None = None
    timeout: Timeout | None = None
    extensions: Microversion | Literal["latest"] | None = None
    own_headers: Mapping[str, str] = MappingProxyType({})
    trace: Mapping[str, str] = MappingProxyType({})
    doing: str = ""
    good: Collection[int] = ()
    error: Refused = errors.PlacementError
    refusals: Refusals = MappingProxyType({})
    repeat: bool | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method in WRITES

    def headers(self) -> dict[str, str]:
        """Return the headers that every transport sends with it."""
        from compute_agent import __version__

        version = f"placement {version_text(self.microversion)}"
        if self.extensions is not None:
            newest = self.extensions
            version += f", {EXTENSIONS} {newest if newest == 'latest' else version_text(newest)}"
        headers = {
            "Accept": "application/json",
            VERSION_HEADER: version,
            "User-Agent": f"compute-agent/{__version__}",
        }
        if self.global_request_id:
            headers[GLOBAL_ID_HEADER] = self.global_request_id
        return {**headers, **self.own_headers, **self.trace}


class Response(Struct, frozen=True):
    """One answer.  Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body, which placement writes in UTF-8."""
        return self.content.decode(errors="replace")

    @property
    def request_id(self) -> str | None:
        """Placement's own id of the request, to be found in its log."""
        return self.headers.get("x-openstack-request-id")


def clock_offset(date: str, now: float) -> float | None:
    """Return the seconds by which this machine's clock is ahead; None where there is no date.

    :param date: the header of an answer.
    :param now: when the answer came, in seconds since 1970.
    """
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    # the header has whole seconds, half a second too little on average
    return now - moment.timestamp() - 0.5


def clock_fault(offset: float | None) -> str:
    """Return what a clock that is so many seconds ahead does, and the remedy; empty: it is right.

    :param offset: None: it is not known.
    """
    if offset is None or abs(offset) < CLOCK_SECONDS:
        return ""
    direction = "ahead of" if offset > 0 else "behind"
    return (
        f"is {abs(offset):.0f} s {direction} placement's: tokens are taken for expired or not yet "
        "valid, and ages of claims and announcements are wrong. Let a time service run (`chronyc "
        "tracking`) on both"
    )


class Transport(Protocol):
    """Anything that carries one request to placement and brings the answer back."""

    def send(self, request: Request) -> Response:
        """Send one request.

        :raises errors.PlacementAPIConnectFailure: there was no answer.
        :raises errors.PlacementUnauthorized: there is nothing to ask with.
        """


def make_response(status: int, headers: Iterable[tuple[str, str]], text: str) -> Response:
    """Make an answer as the transports return it; a body may be other than JSON."""
    lowered_headers = {name.lower(): value for name, value in headers}
    return Response(status, lowered_headers, text.encode())


class ReadOnlyTransport(Struct, frozen=True):
    """Lets reads through and refuses writes: what shows a plan cannot carry it out by accident."""

    inner: Transport

    def send(self, request: Request) -> Response:
        if request.writes:
            raise errors.PlacementError(
                f"{request} was not sent: this command only reads",
                method=request.method,
                path=request.path,
            )
        return self.inner.send(request)
