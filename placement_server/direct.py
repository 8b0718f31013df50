"""The whole server in process, for work offline: only database traffic leaves the process.

    with direct("mysql+pymysql://.../placement") as session:
        session.get("/resource_providers").json()

The requests run through the same application as over the network, so they are validated and
versioned in the same way.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import requests
import webob
from oslo_config import cfg
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.middleware.observation import ANSWERS
from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

BASE_URL: Final = "http://placement.direct/placement"
"""Where the session finds the server. The host is never looked up."""


class DirectSession(requests.Session):
    """A session of requests whose relative URLs belong to the server in process.

    It also serves keystoneauth1, as `session.Session(session=direct_session)`.
    """

    def request(
        self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any
    ) -> requests.Response:
        address = url.decode() if isinstance(url, bytes) else url
        if address.startswith("/") or not address:
            address = BASE_URL + address
        return super().request(method, address, *args, **kwargs)


class WSGIAdapter(BaseAdapter):
    """Sends requests to a WSGI application mounted at a URL."""

    def __init__(self, application: WSGIApplication, base_url: str = BASE_URL) -> None:
        super().__init__()
        self._application = application
        self._mount = urlsplit(base_url).path

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Answer a prepared request; arguments about networks, such as timeouts, are ignored."""
        del kwargs
        url, body = urlsplit(str(request.url)), request.body or b""
        headers: dict[str, Any] = {"Host": url.netloc, **request.headers}
        sent = webob.Request.blank(
            request.path_url.removeprefix(self._mount),
            {"REMOTE_ADDR": "127.0.0.1", "SERVER_PROTOCOL": "HTTP/1.1"},
            f"{url.scheme}://{url.netloc}{self._mount}",
            {
                name: value.decode("latin-1") if isinstance(value, bytes) else value
                for name, value in headers.items()
            },
            method=request.method,
            body=body.encode() if isinstance(body, str) else bytes(body),
        )
        response = response_to(request, *sent.call_application(self._application))
        # the log of this process is its caller's
        ANSWERS.record_all()
        return response

    def close(self) -> None:
        """Do nothing: the store belongs to `direct`."""


def response_to(
    request: requests.PreparedRequest,
    status: str,
    headers: list[tuple[str, str]],
    chunks: Iterable[bytes],
) -> requests.Response:
    """Return what a WSGI application answered, as if it had come over the network."""
    code, _, reason = status.partition(" ")
    answer = HTTPResponse(
        io.BytesIO(b"".join(chunks)),
        HTTPHeaderDict(headers),
        int(code),
        reason=reason,
        request_url=request.url,
        # requests reads the body itself, and so do sessions that bound it
        preload_content=False,
    )
    response = HTTPAdapter().build_response(request, answer)
    response.encoding = "utf-8"
    return response


@contextmanager
def direct(
    conf_or_url: cfg.ConfigOpts | str, *, latest_microversion: bool = False
) -> Iterator[DirectSession]:
    """Open a session to a server that lives as long as the context.

    :param conf_or_url: a configuration from `placement_server.conf.new_config`, or just the
        SQLAlchemy URL of a database, whose schema is then brought up to date.
    :param latest_microversion: ask for the newest version where a request asks for none.
    :raises placement_server.store.errors.StoreError: the database cannot be used.
    """
    if isinstance(conf_or_url, str):
        conf = new_config(config_files=[])
        conf.set_override("connection", conf_or_url, group="placement_database")
        conf.set_override("sync_on_startup", True, group="placement_database")
    else:
        conf = conf_or_url
    store = Store.from_conf(conf)
    try:
        application = build_app(conf, store, auth_strategy="noauth2")
        with DirectSession() as session:
            session.mount(BASE_URL, WSGIAdapter(application))
            session.headers.update(
                {
                    "X-Auth-Token": "admin",
                    "X-Roles": "admin,service,reader",
                    "Accept": "application/json",
                }
            )
            if latest_microversion:
                session.headers["OpenStack-API-Version"] = "placement latest"
            yield session
    finally:
        store.close()
