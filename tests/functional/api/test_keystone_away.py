"""A Keystone that does not answer is a warning at the start, one that refuses ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

from tests.fixtures import programs
from tests.fixtures.ports import free_port
from tests.fixtures.stub_server import StubHandler, StubServer

from .served import ServerProcess


@pytest.mark.parametrize("version", ["", "/v3"])
def test_the_server_starts_with_a_warning_and_answers_503(tmp_path: Path, version: str) -> None:
    url = f"http://127.0.0.1:{free_port()}{version}"
    server = ServerProcess(
        tmp_path,
        *("--workers", "1", "--auth-strategy", "keystone"),
        config=(
            f"[keystone_authtoken]\nauth_type = password\nauth_url = {url}\nusername = placement\n"
            "password = s3cret\nproject_name = service\nuser_domain_id = default\n"
            "project_domain_id = default\n"
        ),
    )
    assert f"Keystone does not answer at [keystone_authtoken]auth_url {url}: " in server.output
    assert requests.get(server.url, timeout=30).status_code == 200
    answer = requests.get(f"{server.url}/traits", headers={"X-Auth-Token": "t"}, timeout=60)
    assert answer.status_code == 503
    (error,) = answer.json()["errors"]
    assert "The Keystone service is temporarily unavailable." in error["detail"]
    assert error["request_id"] == answer.headers["x-openstack-request-id"]
    assert server.stop() == 0
    assert "Traceback" not in server.output


class RefusingKeystone(StubHandler):
    """A Keystone that lets nobody in."""

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(401, {"error": {"code": 401, "message": "no", "title": "Unauthorized"}})

    def _answer(self, status: int, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_wrong_password_ends_the_start(tmp_path: Path) -> None:
    config = tmp_path / "placement.conf"
    with StubServer(RefusingKeystone) as keystone:
        config.write_text(
            f"[placement_database]\nconnection = sqlite:///{tmp_path}/placement.db\n"
            "sync_on_startup = true\n[keystone_authtoken]\nauth_type = password\n"
            f"auth_url = {keystone.url}/v3\nusername = placement\n"
            "password = wrong\nproject_name = service\nuser_domain_id = default\n"
            "project_domain_id = default\n"
        )
        ended = programs.run(
            "placement-server", "serve", "--config-file", str(config), "--port", "0", timeout=60
        )
    assert ended.returncode == 1
    assert "refuses the user of [keystone_authtoken]" in ended.stderr
    assert "Traceback" not in ended.stderr
