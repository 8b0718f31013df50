"""A Keystone that does not answer is a warning at the start, and 503 for each request."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.fixtures.placement import free_port

from .served import Served


@pytest.mark.parametrize("version", ["", "/v3"])
def test_the_server_starts_with_a_warning_and_answers_503(tmp_path: Path, version: str) -> None:
    url = f"http://127.0.0.1:{free_port()}{version}"
    server = Served(
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
