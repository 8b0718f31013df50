"""placement_server.direct: the whole server in process behind a session of requests."""

from pathlib import Path

import keystoneauth1.session
import pytest
from keystoneauth1 import adapter, token_endpoint

from placement_server.conf import new_config
from placement_server.direct import BASE_URL, DirectSession, direct
from placement_server.store.errors import StoreError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/placement.db"


def test_a_url_is_enough(url: str) -> None:
    with direct(url) as session:
        answer = session.get(
            "/resource_classes", headers={"OpenStack-API-Version": "placement 1.2"}
        )
        assert answer.status_code == 200
        assert len(answer.json()["resource_classes"]) == 21
        assert answer.json()["resource_classes"][0]["links"][0]["href"] == (
            "/placement/resource_classes/VCPU"
        )


def test_a_configuration_serves_too_and_is_not_changed(url: str) -> None:
    conf = new_config(config_files=[])
    conf.set_override("connection", url, group="placement_database")
    conf.set_override("sync_on_startup", True, group="placement_database")
    with direct(conf) as session:
        assert session.get("/resource_providers").json() == {"resource_providers": []}
    assert conf.api.auth_strategy == "keystone"


def test_what_is_written_stays(url: str) -> None:
    with direct(url, latest_microversion=True) as session:
        answer = session.post("/resource_providers", json={"name": "host"})
        assert answer.headers["location"].startswith(f"{BASE_URL}/resource_providers/")
        assert session.get(answer.headers["location"]).json()["name"] == "host"
    with direct(url) as session:
        (provider,) = session.get("/resource_providers").json()["resource_providers"]
        assert provider["name"] == "host"


def test_validation_and_versions_are_those_of_the_network(url: str) -> None:
    with direct(url, latest_microversion=True) as session:
        assert session.get("/").headers["openstack-api-version"] == "placement 1.39"
        refused = session.post("/resource_providers", json={"nome": "x"})
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["code"] == "placement.undefined_code"
        old = session.get("/traits", headers={"OpenStack-API-Version": "placement 1.5"})
        assert old.status_code == 404
        found = session.get("/resource_providers", params={"name": "\N{SNOWMAN} &="})
        assert found.json() == {"resource_providers": []}
        assert session.put("/traits/CUSTOM_A").status_code == 201
        assert session.delete("/traits/CUSTOM_A").content == b""


def test_the_caller_may_reshape_with_the_new_defaults(url: str) -> None:
    with direct(url, latest_microversion=True) as session:
        assert session.post("/reshaper", json={}).status_code == 400


def test_keystoneauth_works_on_it(url: str) -> None:
    with direct(url) as session:
        client = adapter.Adapter(
            keystoneauth1.session.Session(
                auth=token_endpoint.Token(BASE_URL, "admin"), session=session
            ),
            service_type="placement",
            default_microversion="1.39",
        )
        created = client.post("/resource_providers", json={"name": "host"})
        assert created.json()["name"] == "host"
        assert client.get("/resource_providers").json()["resource_providers"]


def test_a_database_that_cannot_be_used_is_an_error_of_the_store(tmp_path: Path) -> None:
    conf = new_config(config_files=[])
    conf.set_override("connection", f"sqlite:///{tmp_path}/empty.db", group="placement_database")
    with pytest.raises(StoreError, match="db sync"), direct(conf) as session:
        assert isinstance(session, DirectSession)
