"""Options that limit how long a request waits, with a real server."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.fixtures.placement import placement_process

pytestmark = pytest.mark.waiting

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
OPTIONS = """lock_timeout = 1
[api]
auth_strategy = noauth2
"""


def test_a_write_that_does_not_get_its_lock_is_503_in_time_and_in_the_log(tmp_path: Path) -> None:
    with placement_process(tmp_path, OPTIONS) as url:

        def create(name: str) -> requests.Response:
            address = f"{url}/resource_providers"
            return requests.post(address, json={"name": name}, headers=HEADERS, timeout=60)

        with closing(sqlite3.connect(tmp_path / "placement.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = create("first")
        assert refused.status_code == 503
        assert "[placement_database]lock_timeout" in refused.json()["errors"][0]["detail"]
        assert create("second").status_code == 200
        found = requests.get(f"{url}/resource_providers", headers=HEADERS, timeout=60).json()
        assert [provider["name"] for provider in found["resource_providers"]] == ["second"]
    log = (tmp_path / "log").read_text()
    assert "POST /resource_providers: The database did not give a lock within" in log
