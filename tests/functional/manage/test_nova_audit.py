"""`audit` with Nova as the source of instances.

The services are stand-ins (see `cloud`): no real ones can be had here.
"""

from typing import Any

import pytest

from tests.fixtures.allocations import new_uuid
from tests.functional.manage.cloud import (
    FINISHED,
    Cloud,
    down_cell_server,
    hypervisor,
    migration,
    server,
)
from tests.functional.manage.conftest import Operator

pytestmark = pytest.mark.waiting

NOW = "--min-age=0"


def claims(operator: Operator, root: str, count: int, kind: str = "INSTANCE") -> list[str]:
    return [operator.placement.claim({root: {"VCPU": 1}}, None, kind) for _ in range(count)]


def test_what_nova_does_not_know_is_an_orphan_however_many_pages_its_list_has(
    offline: Operator, cloud: Cloud
) -> None:
    root = offline.placement.new_host("one")
    *alive, gone = claims(offline, root, 6)
    cloud.servers = [server(guest, "one") for guest in alive]
    result = offline.run("audit", NOW, "--json", status=3)
    assert result.document["source"] == "nova"
    assert [orphan["uuid"] for orphan in result.document["orphans"]] == [gone]
    assert sum("/servers/detail" in target for _, target, _ in cloud.requests) == 3
    assert offline.run("audit", NOW, "--delete").status == 4
    assert offline.placement.held(gone) == {}
    assert all(offline.placement.held(guest) for guest in alive)


def test_unfinished_migrations_exist_and_finished_ones_do_not(
    offline: Operator, cloud: Cloud
) -> None:
    root = offline.placement.new_host("one")
    [instance] = claims(offline, root, 1)
    statuses = ("migrating", "finished", "error", FINISHED, "confirmed", "failed")
    consumers = dict(zip(statuses, claims(offline, root, len(statuses), "MIGRATION"), strict=True))
    orphaned = offline.placement.claim({root: {"VCPU": 1}}, None, "MIGRATION")
    cloud.servers = [server(instance, "one")]
    cloud.migrations = [migration(uuids, instance, status) for status, uuids in consumers.items()]
    cloud.migrations.append(migration(orphaned, new_uuid(), "error"))
    result = offline.run("audit", NOW, "--json")
    gone = {consumers[status] for status in (FINISHED, "confirmed", "failed")} | {orphaned}
    assert {orphan["uuid"] for orphan in result.document["orphans"]} == gone


def test_a_server_that_the_list_left_out_is_asked_for_and_is_no_orphan(
    offline: Operator, cloud: Cloud
) -> None:
    root = offline.placement.new_host("one")
    hidden, gone = claims(offline, root, 2)
    cloud.servers = [down_cell_server(hidden)]
    cloud.unlisted = {hidden}
    result = offline.run("audit", NOW, "--delete", "--json")
    assert result.document["deleted"] == [gone]
    assert offline.placement.held(hidden)


def test_what_else_does_not_fit_is_reported(offline: Operator, cloud: Cloud) -> None:
    placement = offline.placement
    one, two, down, gone = (placement.new_host(name) for name in ("one", "two", "down", "gone"))
    nobodys = placement.new_provider("nobody's")
    used = placement.new_host("down and in use")
    naked, (astray, moving) = new_uuid(), claims(offline, two, 2)
    [stays] = claims(offline, used, 1)
    cloud.hypervisors = [
        *(hypervisor(uuid_, name) for uuid_, name in ((one, "one"), (two, "two"))),
        *(hypervisor(uuid_, "x", "down") for uuid_ in (down, used)),
    ]
    cloud.servers = [server(guest, "one") for guest in (naked, astray, moving)]
    cloud.servers.append(server(stays, "x"))
    cloud.migrations = [migration(new_uuid(), moving, "migrating")]
    result = offline.run("audit", NOW, "--host-age=0", "--json", status=0)
    assert {(finding["what"], finding["uuid"]) for finding in result.document["findings"]} == {
        ("instance without allocations", naked),
        ("instance with allocations on another host", astray),
        ("provider without owner", nobodys),
        ("host without agent", down),
        ("host without agent", gone),
    }


@pytest.mark.parametrize(
    "path",
    [
        "/v2.1/?",
        "/v2.1/servers/detail",
        "/v2.1/os-migrations",
        "/v2.1/os-hypervisors/detail",
        "/v2.1/servers/(?!detail).*",
    ],
)
@pytest.mark.parametrize("status", [401, 403, 503])
def test_1_when_nova_refuses_or_is_away_and_nothing_is_deleted(
    offline: Operator, cloud: Cloud, path: str, status: int
) -> None:
    [consumer] = claims(offline, offline.placement.new_host("one"), 1)
    cloud.refused = {f"GET {path}": status}
    result = offline.run("audit", NOW, "--delete", status=1)
    assert "[nova]" in result.err
    assert offline.placement.held(consumer)


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("hypervisors", {"id": 7, "service": {"host": "one"}}),
        ("hypervisors", {"id": "7", "service": None}),
        ("servers", {"name": "without an id"}),
        ("migrations", {"uuid": None, "instance_uuid": "x", "status": "running"}),
    ],
)
def test_1_for_an_entry_without_what_tells_who_it_is_and_nothing_is_deleted(
    offline: Operator, cloud: Cloud, kind: str, entry: dict[str, Any]
) -> None:
    [consumer] = claims(offline, offline.placement.new_host("one"), 1)
    setattr(cloud, kind, [entry])
    result = offline.run("audit", NOW, "--delete", status=1)
    assert "not understood" in result.err
    assert offline.placement.held(consumer)


def test_1_when_nova_does_not_show_this_user_where_servers_run(
    offline: Operator, cloud: Cloud
) -> None:
    hidden = server(new_uuid(), "one")
    del hidden["OS-EXT-SRV-ATTR:host"]
    cloud.servers = [hidden]
    offline.placement.new_host("one")
    result = offline.run("audit", NOW, status=1)
    assert "administrator" in result.err


def test_1_when_nova_cannot_be_reached(offline: Operator, cloud: Cloud) -> None:
    offline.configure(nova={"endpoint_override": "http://127.0.0.1:1/v2.1"})
    assert offline.run("audit", NOW).status == 1
    offline.configure(nova={"auth_type": ""})
    result = offline.run("audit", NOW, status=1)
    assert "[nova]" in result.err
    assert cloud.requests == []


def test_an_answer_that_is_no_nova_s_is_an_error(offline: Operator, cloud: Cloud) -> None:
    offline.configure(nova={"endpoint_override": f"{cloud.url}/v2.0"})
    assert offline.run("audit", NOW).status == 1


def test_a_reading_is_repeated_while_nova_is_away_for_a_moment(
    offline: Operator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compute_agent.openstack.service.TRIES", 4)
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    cloud.refused = {"GET /v2.1/servers/detail": 503}
    offline.run("audit", NOW, status=1)
    assert sum("/servers/detail" in target for _, target, _ in cloud.requests) == 4
