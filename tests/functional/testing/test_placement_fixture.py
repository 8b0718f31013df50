"""placement_server.testing, as functional tests of other projects use it."""

import os
import signal
import socket
import subprocess

import pytest
import requests
from keystoneauth1 import adapter, session
from oslo_config import cfg
from oslo_config import fixture as config_fixture
from oslo_log import log

from placement_server.testing import PlacementFixture, PlacementProcessFixture
from placement_server.testing import process as processes

HOST = {"name": "a-host"}
VERSION = "1.39"
HEADERS = {"OpenStack-API-Version": f"placement {VERSION}"}


def client_of(fixture=None):
    """What a service has: an adapter without a token, and with no address but by service type."""
    named = {"endpoint_override": fixture.endpoint} if fixture else {}
    return adapter.Adapter(
        session.Session(), service_type="placement", default_microversion=VERSION, **named
    )


@pytest.fixture(params=["intercepted", "thread", "process"])
def placement(request):
    kinds = {
        "intercepted": PlacementFixture,
        "thread": lambda: PlacementFixture(use_intercept=False),
        "process": PlacementProcessFixture,
    }
    with kinds[request.param]() as fixture:
        yield fixture


def test_requests_of_a_test_are_in_its_log_once_they_are_answered(caplog):
    caplog.set_level("INFO", logger="placement_server.requestlog")
    with PlacementFixture():
        client = client_of()
        for number in range(1, 6):
            assert client.get("/traits").ok
            assert caplog.text.count("GET /placement/traits") == number


def test_a_client_without_keystone_finds_placement_and_may_do_everything(placement):
    client = client_of()
    assert client.get_endpoint() == placement.endpoint
    assert client.post("/resource_providers", json=HOST).status_code == 200
    [provider] = client.get("/resource_providers").json()["resource_providers"]
    assert provider["name"] == "a-host"
    assert requests.get(f"{placement.endpoint}/resource_providers", timeout=30).ok
    refused = requests.get(
        f"{placement.endpoint}/resource_providers", headers={"X-Auth-Token": "bob"}, timeout=30
    )
    assert refused.status_code == 403

    placement.faults.refuse("GET", "/traits", 409, code="placement.concurrent_update")
    answer = client.get("/traits", raise_exc=False)
    assert answer.json()["errors"][0]["code"] == "placement.concurrent_update"
    assert client.get("/traits").ok
    assert placement.faults.failed_requests == [f"GET {requests.utils.urlparse(answer.url).path}"]


def test_fixtures_of_one_process_have_databases_of_their_own_and_leave_nothing():
    with PlacementFixture() as one, PlacementFixture() as other:
        client_of(one).post("/resource_providers", json=HOST)
        assert client_of(other).get("/resource_providers").json()["resource_providers"] == []
    with pytest.raises(requests.ConnectionError):
        requests.get(one.endpoint, timeout=30)


def test_the_configuration_of_a_caller_is_used_and_given_back():
    conf = cfg.ConfigOpts()
    # as in every service
    log.register_options(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    fixture = config_fixture.Config(conf)
    with PlacementFixture(token="bob", conf_fixture=fixture) as placement:
        assert placement.conf_fixture is fixture
        assert conf.placement_database.connection.startswith("sqlite:///")
        assert client_of().get("/resource_providers", raise_exc=False).status_code == 403
    assert conf.placement_database.connection is None


def test_a_database_of_the_caller_keeps_what_was_written(tmp_path):
    def written_by_one_read_by_another():
        with PlacementFixture() as first:
            conf = first.conf_fixture.conf
            url = f"sqlite:///{tmp_path}/placement.db"
            first.conf_fixture.config(group="placement_database", connection=url)
            with PlacementFixture(
                conf_fixture=config_fixture.Config(conf), db=False, register_opts=False
            ) as placement:
                client_of(placement).put("/traits/CUSTOM_KEPT")
                return client_of(placement).get("/traits/CUSTOM_KEPT", raise_exc=False).status_code

    assert written_by_one_read_by_another() == 204
    assert written_by_one_read_by_another() == 204


def test_an_answer_that_gets_lost_was_carried_out_and_a_lost_request_was_not():
    with PlacementFixture() as placement:
        client = client_of()
        for lose, path, status in (
            (placement.faults.lose_answer, "/traits/CUSTOM_DONE", 204),
            (placement.faults.lose_request, "/traits/CUSTOM_NOT_DONE", 404),
        ):
            lose("PUT", path)
            with pytest.raises(requests.ConnectionError, match="was lost"):
                requests.put(placement.endpoint + path, headers=HEADERS, timeout=30)
            assert client.get(path, raise_exc=False).status_code == status
        placement.faults.refuse("GET", "/traits", times=-1)
        assert client.get("/traits", raise_exc=False).status_code == 503
        assert client.get("/traits", raise_exc=False).status_code == 503
        placement.faults.heal()
        assert client.get("/traits").ok


def test_an_intercepted_placement_needs_no_network(monkeypatch):
    def refuse(*_arguments, **_named):
        raise AssertionError("a socket was opened")

    with PlacementFixture():
        monkeypatch.setattr(socket.socket, "connect", refuse)
        assert client_of().get("/resource_classes").ok


def test_a_process_that_hangs_is_reported_and_does_not_stay(tmp_path, monkeypatch):
    started = []

    def start(arguments, output):
        started.append(processes.start_program(arguments, output))
        return started[0]

    monkeypatch.setattr(processes, "STOP_SECONDS", 0.1)
    with (
        pytest.raises(subprocess.TimeoutExpired),
        processes.placement_process(tmp_path, start=start),
    ):
        os.kill(started[0].pid, signal.SIGSTOP)
    try:
        assert started[0].returncode == -signal.SIGKILL
    finally:
        started[0].kill()
