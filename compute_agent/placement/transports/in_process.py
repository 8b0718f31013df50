"""Placement called in process: same requests, same middleware, no socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compute_agent import errors, extras

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication
from compute_agent.placement.transports.transport import Request, Response


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
        from webob import Request as WebRequest

        headers = request.headers() | {"X-Auth-Token": "admin", "X-Roles": "admin,service,reader"}
        web_request = WebRequest.blank(
            request.path,
            {"REMOTE_ADDR": "127.0.0.1", "wsgi.multithread": True},
            headers=headers,
            method=request.method,
        )
        if request.json is not None:
            web_request.content_type, web_request.json_body = "application/json", request.json
        answer = web_request.get_response(self._app)
        headers = {name.lower(): value for name, value in answer.headerlist}
        return Response(answer.status_int, headers, answer.body)
