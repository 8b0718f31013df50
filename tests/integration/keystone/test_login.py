"""Login on the pages: a token of Keystone for a name and a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.fixtures.keystone import PASSWORD, Keystone, credentials
from tests.fixtures.placement import placement_process

ADMIN = {"user": "admin", "password": PASSWORD, "domain": "Default", "project": "admin"}


@pytest.fixture(scope="module")
def pages(keystone: Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = f"{credentials(keystone.url)}[placement_server]\nweb_path = /pages\n"
    with placement_process(tmp_path_factory.mktemp("placement"), options) as url:
        yield f"{url}/pages"


def log_in(pages: str, body: Any) -> requests.Response:
    return requests.post(f"{pages}/login", json=body, timeout=60)


def test_a_name_and_a_password_give_a_token_with_the_rights_of_the_person(pages: str) -> None:
    answer = log_in(pages, ADMIN)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["expires_at"] > "20"
    versions = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
    headers = {"X-Auth-Token": answer.json()["token"], **versions}
    assert requests.get(f"{pages}/fleet", headers=headers, timeout=60).status_code == 200
    reader = log_in(pages, {"user": "reader", "password": PASSWORD, "project": "demo"}).json()
    headers["X-Auth-Token"] = reader["token"]
    assert requests.get(f"{pages}/fleet", headers=headers, timeout=60).status_code == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"password": "wrong"}, 401),
        ({"user": "nobody"}, 401),
        ({"project": "no-such-project"}, 401),
        ({"domain": "no-such-domain"}, 401),
        ({"password": 5}, 400),
        ({"unknown": "field"}, 400),
        ({"password": "x" * 10000}, 400),
    ],
)
def test_what_is_no_login_gives_no_token(pages: str, change: dict[str, Any], status: int) -> None:
    answer = log_in(pages, {**ADMIN, **change})
    assert answer.status_code == status
    assert answer.json()["errors"][0]["detail"]
    assert PASSWORD not in answer.text


def test_a_form_of_another_site_cannot_log_in(pages: str) -> None:
    answer = requests.post(f"{pages}/login", data=ADMIN, timeout=60)
    assert answer.status_code == 400
    assert requests.get(f"{pages}/login", timeout=60).status_code == 400
