"""A server with pages and a fleet of 1,000 hosts, for the browsers of a whole test run."""

from __future__ import annotations

import functools
import io
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import requests

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.negotiation import extensions
from tests.fixtures.placement import wait_for_placement
from tests.fixtures.plain_trees import make_tree
from tests.fixtures.ports import free_port
from tests.fixtures.sample_fleet import consumer, hosts

WEB_PATH: Final = "/-/web"
PLAIN: Final = 976
CAPTURED: Final = 24
HEADERS: Final = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": f"placement 1.39, {extensions.SERVICE_TYPE} {extensions.MAX}",
}
_CONFIG: Final = """[placement_database]
connection = sqlite:///{directory}/placement.db
sync_on_startup = true
sqlite_synchronous = false
[api]
auth_strategy = noauth2
[oslo_policy]
enforce_new_defaults = false
[placement_server]
web_path = {web_path}
search_deadline = 600
"""


class Site:
    """The server, and what tests do there beside the browser."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages = f"{url}{WEB_PATH}/"
        self._session = requests.Session()
        self._session.headers.update(HEADERS)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request that succeeds; its answer."""
        response = self._session.request(method, self.url + path, json=body, headers=headers)
        assert response.ok, response.text
        return response.json() if response.content else None

    def claim(self, held: dict[str, dict[str, int]]) -> str:
        """A new consumer that holds these amounts, by provider."""
        made = str(uuid.uuid4())
        self("PUT", f"/allocations/{made}", {**consumer(held), "mappings": {"": list(held)}})
        return made

    def claim_often(self, held: dict[str, dict[str, int]], times: int) -> None:
        """So many new consumers that hold these amounts each, by provider."""
        record = {**consumer(held), "mappings": {"": list(held)}}
        self("POST", "/allocations", {str(uuid.uuid4()): record for _ in range(times)})


def start() -> dict[str, Any]:
    """Start a server with the fleet; as parts of a test run are described."""
    directory = Path(tempfile.mkdtemp(prefix="test-web-"))
    config = directory / "placement.conf"
    config.write_text(_CONFIG.format(directory=directory, web_path=WEB_PATH))
    load(config, hosts(directory, PLAIN, CAPTURED))
    port = free_port()
    log = directory / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "placement_server.cmd.serve", "serve", "--workers", "1"),
                *("--host", "127.0.0.1", "--port", str(port), "--config-file", str(config)),
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    wait_for_placement(url, server, log)
    return {"pid": server.pid, "directory": str(directory), "url": url}


def send_to(application: Any, method: str, path: str, body: Any) -> None:
    """Send a request that succeeds to an application in this process."""
    content = b"" if body is None else json.dumps(body).encode()
    environ = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(content)),
        "HTTP_X_AUTH_TOKEN": HEADERS["X-Auth-Token"],
        "HTTP_OPENSTACK_API_VERSION": HEADERS["OpenStack-API-Version"],
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(content),
    }
    statuses: list[str] = []
    answer = b"".join(application(environ, lambda status, *_: statuses.append(status)))
    assert statuses[0].startswith("2"), answer


def load(config: Path, bodies: Iterable[Any]) -> None:
    """Make the trees in a database, without a server: in a third of the time."""
    application = build_app(new_config(config_files=[str(config)]))
    send = functools.partial(send_to, application)
    for body in bodies:
        make_tree(body, send)
