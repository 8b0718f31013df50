"""Tokens that were revoked, have expired or come with another one, as Keystone issued them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
import time_machine

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.store import Store
from tests.fixtures.databases import migrated_sqlite
from tests.fixtures.keystone import PASSWORD, Keystone
from tests.functional.api.wsgi_client import Client

LIST = "/resource_providers"
MakeApi = Callable[..., Client]


@pytest.fixture
def make_api(keystone: Keystone, tmp_path: Path) -> Iterator[MakeApi]:
    """Make a server in process that asks Keystone, with the default policy and more options."""
    stores: list[Store] = []

    def make(options: str = "") -> Client:
        file = tmp_path / f"placement-{len(stores)}.conf"
        file.write_text(
            f"[placement_database]\nconnection = {migrated_sqlite(file.with_suffix('.db'))}\n"
            f"[oslo_policy]\nenforce_new_defaults = true\n"
            f"[keystone_authtoken]\nauth_type = password\nauth_url = {keystone.url}\n"
            f"www_authenticate_uri = {keystone.url}\nusername = placement\npassword = {PASSWORD}\n"
            "project_name = demo\nuser_domain_id = default\nproject_domain_id = default\n"
            f"interface = public\n{options}"
        )
        conf = new_config([], [file])
        stores.append(Store.from_conf(conf))
        return Client(build_app(conf, stores[-1]), stores[-1])

    yield make
    for store in stores:
        store.close()


def status(api: Client, token: str, service_token: str | None = None, path: str = LIST) -> int:
    headers = {} if service_token is None else {"X-Service-Token": service_token}
    return api.get(path, token=token, headers=headers).status


def revoke(keystone: Keystone, token: str) -> None:
    headers = {"X-Auth-Token": keystone.token("admin"), "X-Subject-Token": token}
    requests.delete(f"{keystone.url}/auth/tokens", headers=headers, timeout=30).raise_for_status()


def test_a_revoked_token_is_refused_at_the_latest_when_it_is_not_remembered_any_more(
    make_api: MakeApi, keystone: Keystone
) -> None:
    api, token = make_api("token_cache_time = 60\n"), keystone.token("admin")
    assert status(api, token) == 200
    revoke(keystone, token)
    assert status(make_api("token_cache_time = -1\n"), token) == 401
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=61)):
        assert status(api, token) == 401


def test_a_token_that_expires_while_it_is_remembered_is_refused_from_then_on(
    make_api: MakeApi, keystone: Keystone
) -> None:
    api, token = make_api("token_cache_time = 100000\n"), keystone.token("admin")
    assert status(api, token) == 200
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
        assert status(api, token) == 401
        assert status(api, token, keystone.token("member")) == 401


def test_a_token_of_a_service_beside_that_of_a_user_gives_the_user_no_rights(
    make_api: MakeApi, keystone: Keystone
) -> None:
    api, service = make_api(), keystone.token("placement")
    assert status(api, keystone.token("admin"), service) == 200
    assert status(api, keystone.token("member"), service) == 403


@pytest.mark.parametrize("service_token", ["made-up", "of a member", "revoked"])
def test_a_token_beside_that_of_a_user_that_is_not_of_a_service_is_refused(
    make_api: MakeApi, keystone: Keystone, service_token: str
) -> None:
    tokens = {"of a member": keystone.token("member"), "revoked": keystone.token("placement")}
    revoke(keystone, tokens["revoked"])
    api = make_api("token_cache_time = -1\n")
    second = tokens.get(service_token, service_token)
    assert status(api, keystone.token("admin"), second) == 401


def test_a_clock_that_is_set_back_holds_up_no_token(make_api: MakeApi, keystone: Keystone) -> None:
    tokens = [keystone.token("placement"), keystone.token("admin")]
    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=10)):
        api = make_api()
        assert status(api, tokens[0]) == 200
    begin = time.monotonic()
    assert status(api, tokens[1]) == 200
    # and not for the ten minutes that the clock was set back by
    assert time.monotonic() - begin < 120
