"""Placement called in process: same requests, same middleware, no socket."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from compute_agent import errors, extras

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication
from compute_agent.placement.transports.transport import Request, Response, make_response


class InProcessTransport:
    """Calls the server's WSGI callable directly: same requests, same middleware, no socket.

    :param app: a placement application that authenticates by headers (`auth_strategy = noauth2`).
        The caller has the roles admin, service and reader.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    @classmethod
    def from_config_files(cls, config_files: Sequence[str]) -> InProcessTransport:
        """Make the server as its configuration file describes it, without its authentication.

        A process that can read that file can reach the database anyway.

        :raises errors.InvalidConfiguration: the server is not installed, or cannot use the file.
        :raises errors.PlacementUnavailable: its database cannot be used.
        """
        extras.require("server", "Placement in this process", "sqlalchemy", "numpy", "webob")
        from placement_server import app as server_app
        from placement_server import conf as server_conf
        from placement_server.store.errors import StoreError

        file_names = ", ".join(config_files)
        try:
            conf = server_conf.new_config(config_files=list(config_files))
            app = server_app.build_app(conf, auth_strategy="noauth2")
        except server_conf.InvalidConfiguration as exc:
            raise errors.InvalidConfiguration(f"Placement cannot use {file_names}: {exc}") from exc
        except StoreError as exc:
            raise errors.PlacementUnavailable(
                f"The database of placement, as {file_names} names it, cannot be used: {exc}"
            ) from exc
        return cls(app)

    def send(self, request: Request) -> Response:
        """See `Transport.send`; a function call has no read timeout."""
        body = b"" if request.json is None else json.dumps(request.json).encode()
        plain, _, query = request.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
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
        headers = request.headers() | {"X-Auth-Token": "admin", "X-Roles": "admin,service,reader"}
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
