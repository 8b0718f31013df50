"""How one request reaches placement: over HTTP with keystoneauth1, in process, or only recorded.

A transport returns whatever was answered, whatever its status, and raises only when there was no
answer: ``PlacementAPIConnectFailure`` (refused, reset, timed out) or ``PlacementUnauthorized`` (no
credentials or endpoint to ask with).  What an answer means is decided elsewhere.
"""

from __future__ import annotations

import io
import json as jsonlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import unquote

from compute_agent import errors, extras

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

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


class InProcessTransport:
    """Calls the server's WSGI callable directly: same requests, same middleware, no socket.

    :param app: a placement application that authenticates by headers (``auth_strategy = noauth2``).
        The caller has the roles admin, service and reader.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    @classmethod
    def from_config_files(cls, config_files: Sequence[str]) -> InProcessTransport:
        """The server as its own configuration file describes it, without its authentication.

        Whoever can read that file holds the database anyway.

        :raises errors.InvalidConfiguration: the server is not installed, or cannot use the file.
        :raises errors.PlacementUnavailable: its database cannot be used.
        """
        extras.require("server", "Placement in this process", "sqlalchemy", "numpy", "webob")
        from placement_server import app as server_app
        from placement_server import conf as server_conf
        from placement_server.store.errors import StoreError

        named = ", ".join(config_files)
        try:
            conf = server_conf.new_config(config_files=list(config_files))
            app = server_app.build_app(conf, auth_strategy="noauth2")
        except server_conf.InvalidConfiguration as exc:
            raise errors.InvalidConfiguration(f"Placement cannot use {named}: {exc}") from exc
        except StoreError as exc:
            raise errors.PlacementUnavailable(
                f"The database of placement, as {named} names it, cannot be used: {exc}"
            ) from exc
        return cls(app)

    def request(
        self,
        method: str,
        path: str,
        microversion: Microversion,
        json: object = None,
        global_request_id: str | None = None,
        timeout: Timeout | None = None,  # noqa: ARG002 - a function call has no read timeout
        *,
        extended: bool = False,
    ) -> Response:
        body = b"" if json is None else jsonlib.dumps(json).encode()
        plain, _, query = path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(plain, "latin-1"),
            "QUERY_STRING": query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if body:
            environ["CONTENT_TYPE"] = "application/json"
        headers = request_headers(microversion, global_request_id, extended=extended)
        headers |= {"X-Auth-Token": "admin", "X-Roles": "admin,service,reader"}
        environ |= {f"HTTP_{k.upper().replace('-', '_')}": v for k, v in headers.items()}
        answer: dict[str, Any] = {}

        def start_response(
            status: str,
            headers: list[tuple[str, str]],
            exc_info: object = None,  # noqa: ARG001 - part of the protocol
        ) -> Callable[[bytes], object]:
            answer["status"], answer["headers"] = int(status.split(" ", 1)[0]), headers
            return io.BytesIO().write

        chunks = self._app(environ, start_response)
        try:
            text = b"".join(chunks).decode("utf-8", "replace")
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        return make_response(answer["status"], answer["headers"], text)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that was made and what came of it (``response`` None: there was no answer)."""

    method: str
    path: str
    microversion: Microversion
    json: Any
    global_request_id: str | None
    response: Response | None


@dataclass
class RecordingTransport:
    """Keeps every request made through it.

    :param inner: what answers.
    :param before: called with method, path and body before a request goes out; it may answer in
        place of ``inner`` by returning a response, or raise as a transport does.
    :param after: called with method, path, body and the answer; what it returns is the answer, and
        it may raise, which is an answer lost on the way back.
    """

    inner: Transport
    before: Callable[[str, str, Any], Response | None] | None = None
    after: Callable[[str, str, Any, Response], Response] | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
        response: Response | None = None
        # only where it is wanted: a transport need not know of extensions
        asked = {"extended": True} if extended else {}
        try:
            if self.before is not None:
                response = self.before(method, path, json)
            if response is None:
                response = self.inner.request(
                    method, path, microversion, json, global_request_id, timeout, **asked
                )
            if self.after is not None:
                response = self.after(method, path, json, response)
            return response
        finally:
            exchange = Exchange(method, path, microversion, json, global_request_id, response)
            with self._lock:
                self.exchanges.append(exchange)

    @property
    def requests(self) -> list[str]:
        """``METHOD /path`` of every request, in the order they ended."""
        return [f"{exchange.method} {exchange.path}" for exchange in self.exchanges]

    @property
    def writes(self) -> list[str]:
        return [
            f"{exchange.method} {exchange.path}"
            for exchange in self.exchanges
            if exchange.method in WRITES
        ]

    def clear(self) -> None:
        with self._lock:
            self.exchanges.clear()


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


def __getattr__(name: str) -> Any:
    """``KeystoneTransport`` is loaded when it is asked for: it brings the HTTP library with it."""
    if name == "KeystoneTransport":
        from compute_agent.placement.keystone import KeystoneTransport

        return KeystoneTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
