"""How one request reaches placement: over HTTP with keystoneauth1, in process, or only recorded.

A transport returns whatever was answered, whatever its status, and raises only when there was no
answer: ``PlacementAPIConnectFailure`` (refused, reset, timed out) or ``PlacementUnauthorized`` (no
credentials or endpoint to ask with).  What an answer means is decided elsewhere.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from compute_agent import errors

if TYPE_CHECKING:
    pass

Microversion: TypeAlias = tuple[int, int]
Timeout: TypeAlias = tuple[float, float]

VERSION_HEADER: Final = "OpenStack-API-Version"
EXTENSIONS: Final = "placement-ext"
"""Service type under which extensions of the API are asked for and announced."""

GLOBAL_ID_HEADER: Final = "X-Openstack-Request-Id"
WRITES: Final = frozenset({"POST", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Response:
    """One answer.  Header names are lower case; ``json`` is None when the body is not JSON."""

    status: int
    headers: Mapping[str, str]
    json: Any
    text: str

    @property
    def request_id(self) -> str | None:
        """Placement's own id of the request, to be found in its log."""
        return self.headers.get("x-openstack-request-id")


class Transport(Protocol):
    """Anything that carries one request to placement and brings the answer back."""

    def request(
        self,
        method: str,
        path: str,
        microversion: Microversion,
        json: object = None,
        global_request_id: str | None = None,
        timeout: Timeout | None = None,
        *,
        extended: bool = False,
    ) -> Response:
        """Send one request.

        :param path: path and query string, quoted, starting with ``/``.
        :param json: the body; None sends none.
        :param timeout: seconds to connect and to read; None takes the transport's own.
        :param extended: ask for this project's extensions of the API beside the microversion.
        :raises errors.PlacementAPIConnectFailure: there was no answer.
        :raises errors.PlacementUnauthorized: there is nothing to ask with.
        """


def request_headers(
    microversion: Microversion, global_request_id: str | None, *, extended: bool = False
) -> dict[str, str]:
    """The headers every request carries.

    :param extended: ask for the extensions; a placement that has none ignores that.
    """
    from compute_agent import __version__

    extensions = f", {EXTENSIONS} 1.0" if extended else ""
    headers = {
        "Accept": "application/json",
        VERSION_HEADER: f"placement {microversion[0]}.{microversion[1]}{extensions}",
        "User-Agent": f"compute-agent/{__version__}",
    }
    if global_request_id:
        headers[GLOBAL_ID_HEADER] = global_request_id
    return headers


def make_response(status: int, headers: Iterable[tuple[str, str]], text: str) -> Response:
    """An answer as the transports return it; a body that is not JSON is no error here."""
    lowered = {name.lower(): value for name, value in headers}
    body = None
    if text:
        try:
            body = jsonlib.loads(text)
        except ValueError:
            body = None
    return Response(status, lowered, body, text)


@dataclass(frozen=True, slots=True)
class ReadOnlyTransport:
    """Lets reads through and refuses writes: what shows a plan cannot carry it out by accident."""

    inner: Transport

    def request(
        self,
        method: str,
        path: str,
        microversion: Microversion,
        json: object = None,
        global_request_id: str | None = None,
        timeout: Timeout | None = None,
        *,
        extended: bool = False,
    ) -> Response:
        if method in WRITES:
            raise errors.PlacementError(
                f"{method} {path} was not sent: this command only reads", method=method, path=path
            )
        return self.inner.request(
            method, path, microversion, json, global_request_id, timeout, extended=extended
        )
