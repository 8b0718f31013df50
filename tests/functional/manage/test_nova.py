"""`audit` and `heal_allocations` with Nova, Neutron and Glance as the source of instances.

The services are stand-ins (see `cloud`): no real ones can be had here.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.manage.cloud import (
    FINISHED,
    IMAGE,
    Cloud,
    down_cell_server,
    hypervisor,
    image,
    migration,
    port,
    running_cloud,
    server,
)
from tests.functional.manage.conftest import Operator
from tests.functional.manage.described_instances import NEED, flat_host

NOW = "--min-age=0"
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"


def new_uuid() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def cloud(offline: Operator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.setattr("compute_agent.openstack_service.TRIES", 1)
    with running_cloud() as found:
        offline.configure(**found.options())
        yield found


def claims(operator: Operator, root: str, count: int, kind: str = "INSTANCE") -> list[str]:
    return [operator.placement.claim({root: {"VCPU": 1}}, None, kind) for _ in range(count)]


# -- audit -----------------------------------------------------------------------------------------


def test_what_nova_does_not_know_is_an_orphan_however_many_pages_its_list_has(
    offline: Operator, cloud: Cloud
) -> None:
    root = offline.placement.new_host("one")
    *alive, gone = claims(offline, root, 6)
    cloud.servers = [server(each, "one") for each in alive]
    result = offline.run("audit", NOW, "--json")
    assert result.status == 3
    assert result.document["source"] == "nova"
    assert [each["uuid"] for each in result.document["orphans"]] == [gone]
    assert sum("/servers/detail" in target for _, target, _ in cloud.requests) == 3
    assert offline.run("audit", NOW, "--delete").status == 4
    assert offline.placement.held(gone) == {}
    assert all(offline.placement.held(each) for each in alive)


def test_unfinished_migrations_exist_and_finished_ones_do_not(
    offline: Operator, cloud: Cloud
) -> None:
    root = offline.placement.new_host("one")
    [instance] = claims(offline, root, 1)
    statuses = ("migrating", "finished", "error", FINISHED, "confirmed", "failed")
    consumers = dict(zip(statuses, claims(offline, root, len(statuses), "MIGRATION"), strict=True))
    orphaned = offline.placement.claim({root: {"VCPU": 1}}, None, "MIGRATION")
    cloud.servers = [server(instance, "one")]
    cloud.migrations = [migration(each, instance, status) for status, each in consumers.items()]
    cloud.migrations.append(migration(orphaned, new_uuid(), "error"))
    result = offline.run("audit", NOW, "--json")
    gone = {consumers[status] for status in (FINISHED, "confirmed", "failed")} | {orphaned}
    assert {each["uuid"] for each in result.document["orphans"]} == gone


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
    cloud.servers = [server(each, "one") for each in (naked, astray, moving)]
    cloud.servers.append(server(stays, "x"))
    cloud.migrations = [migration(new_uuid(), moving, "migrating")]
    result = offline.run("audit", NOW, "--host-age=0", "--json")
    assert result.status == 0
    assert {(each["what"], each["uuid"]) for each in result.document["findings"]} == {
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
    result = offline.run("audit", NOW, "--delete")
    assert result.status == 1
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
    result = offline.run("audit", NOW, "--delete")
    assert result.status == 1
    assert "not understood" in result.err
    assert offline.placement.held(consumer)


def test_1_when_nova_does_not_show_this_user_where_servers_run(
    offline: Operator, cloud: Cloud
) -> None:
    hidden = server(new_uuid(), "one")
    del hidden["OS-EXT-SRV-ATTR:host"]
    cloud.servers = [hidden]
    offline.placement.new_host("one")
    result = offline.run("audit", NOW)
    assert result.status == 1
    assert "administrator" in result.err


def test_1_when_nova_cannot_be_reached(offline: Operator, cloud: Cloud) -> None:
    offline.configure(nova={"endpoint_override": "http://127.0.0.1:1/v2.1"})
    assert offline.run("audit", NOW).status == 1
    offline.configure(nova={"auth_type": ""})
    result = offline.run("audit", NOW)
    assert result.status == 1
    assert "[nova]" in result.err
    assert cloud.requests == []


def test_an_answer_that_is_no_nova_s_is_an_error(offline: Operator, cloud: Cloud) -> None:
    offline.configure(nova={"endpoint_override": f"{cloud.url}/v2.0"})
    assert offline.run("audit", NOW).status == 1


def test_a_reading_is_repeated_while_nova_is_away_for_a_moment(
    offline: Operator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compute_agent.openstack_service.TRIES", 4)
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    cloud.refused = {"GET /v2.1/servers/detail": 503}
    result = offline.run("audit", NOW)
    assert result.status == 1
    assert sum("/servers/detail" in target for _, target, _ in cloud.requests) == 4


# -- heal ------------------------------------------------------------------------------------------


def test_a_server_gets_what_its_embedded_flavor_says(offline: Operator, cloud: Cloud) -> None:
    root = flat_host(offline.placement)
    naked, volume = new_uuid(), new_uuid()
    cloud.servers = [server(naked, "flat"), server(volume, "flat", image="")]
    assert offline.run("heal_allocations").status == 0
    assert offline.placement.held(naked) == {root: NEED}
    assert offline.placement.held(volume) == {root: {"VCPU": 2, "MEMORY_MB": 512}}
    assert offline.run("heal_allocations").status == 4
    assert {version for _, target, version in cloud.requests if "detail" in target} == {"2.98"}


def test_the_properties_of_the_image_count(offline: Operator, cloud: Cloud) -> None:
    root = flat_host(offline.placement, PCPU=4)
    pinned = server(new_uuid(), "flat")
    pinned["image"]["properties"]["hw_cpu_policy"] = "dedicated"
    cloud.servers = [pinned]
    assert offline.run("heal_allocations").status == 0
    held = {"PCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}
    assert offline.placement.held(pinned["id"]) == {root: held}


def test_an_older_nova_is_asked_in_its_own_microversion_and_glance_for_properties(
    offline: Operator, cloud: Cloud
) -> None:
    root = flat_host(offline.placement, PCPU=4)
    cloud.version = "2.90"
    cloud.images = {IMAGE: image(IMAGE, hw_cpu_policy="dedicated")}
    cloud.servers = [server(new_uuid(), "flat") for _ in range(2)]
    assert offline.run("heal_allocations").status == 0
    held = {root: {"PCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}}
    assert all(offline.placement.held(each["id"]) == held for each in cloud.servers)
    assert {version for _, target, version in cloud.requests if "detail" in target} == {"2.90"}
    assert sum(target.startswith("/v2/images/") for _, target, _ in cloud.requests) == 1


def test_an_instance_whose_image_is_gone_is_left_alone_where_nova_does_not_tell(
    offline: Operator, cloud: Cloud
) -> None:
    flat_host(offline.placement)
    cloud.version = "2.90"
    cloud.servers = [server(new_uuid(), "flat")]
    result = offline.run("heal_allocations", "--json")
    assert result.status == 4
    assert "image is gone" in result.document["outcomes"][0]["detail"]


def test_127_when_the_properties_of_images_cannot_be_had(offline: Operator, cloud: Cloud) -> None:
    flat_host(offline.placement)
    cloud.version = "2.90"
    cloud.servers = [server(new_uuid(), "flat")]
    offline.configure(glance={"auth_type": ""})
    result = offline.run("heal_allocations")
    assert result.status == 127
    assert "[glance]" in result.err
    assert offline.placement.held(cloud.servers[0]["id"]) == {}


def test_127_when_nova_is_too_old(offline: Operator, cloud: Cloud) -> None:
    cloud.version = "2.40"
    result = offline.run("heal_allocations")
    assert result.status == 127
    assert "2.59" in result.err


def test_one_server_is_asked_for_alone(offline: Operator, cloud: Cloud) -> None:
    root = flat_host(offline.placement)
    one, other = new_uuid(), new_uuid()
    cloud.servers = [server(each, "flat") for each in (one, other)]
    assert offline.run("heal_allocations", f"--instance={one}").status == 0
    assert offline.placement.held(one) == {root: NEED}
    assert offline.placement.held(other) == {}
    assert not any("detail" in target for _, target, _ in cloud.requests)
    assert offline.run("heal_allocations", f"--instance={new_uuid()}").status == 127


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "BUILD", "OS-EXT-SRV-ATTR:host": None},
        {"status": "VERIFY_RESIZE"},
        {"status": "SHELVED_OFFLOADED", "OS-EXT-SRV-ATTR:host": None},
        {"OS-EXT-STS:task_state": "migrating"},
        {"flavor": {"vcpus": 1, "ram": 1, "disk": 1}},
        "down",
        "migration",
    ],
)
def test_a_server_that_is_not_settled_is_left_alone(
    offline: Operator, cloud: Cloud, changes: Any
) -> None:
    flat_host(offline.placement)
    one = new_uuid()
    cloud.servers = [server(one, "flat", **(changes if isinstance(changes, dict) else {}))]
    if changes == "down":
        cloud.servers = [down_cell_server(one)]
    if changes == "migration":
        cloud.migrations = [migration(new_uuid(), one, "running")]
    before = offline.dump()
    result = offline.run("heal_allocations", "--json")
    assert result.status == 4
    assert result.document["outcomes"][0]["state"] == "skipped"
    assert offline.dump() == before


def test_the_cell_of_a_server_is_not_known(offline: Operator, cloud: Cloud) -> None:
    result = offline.run("heal_allocations", "--cell=a")
    assert result.status == 127
    assert "--instances" in result.err
    assert cloud.requests == []


# -- ports -----------------------------------------------------------------------------------------


def bandwidth_host(offline: Operator, cloud: Cloud) -> tuple[str, str, str, dict[str, Any]]:
    """A host with a NIC, and a server on it with a port that wants bandwidth."""
    root = flat_host(offline.placement)
    nic = offline.placement.new_provider("nic", {BANDWIDTH: 1000}, (), root)
    one = new_uuid()
    cloud.servers = [server(one, "flat")]
    wanted = port(new_uuid(), one, {"resources": {BANDWIDTH: 100}, "required": []}, {"pci": "x"})
    cloud.ports = [wanted, port(new_uuid(), one, None)]
    return root, nic, one, wanted


def test_a_port_gets_its_bandwidth_and_its_binding_names_the_provider(
    offline: Operator, cloud: Cloud
) -> None:
    root, nic, one, wanted = bandwidth_host(offline, cloud)
    assert offline.run("heal_allocations").status == 0
    assert offline.placement.held(one) == {root: NEED, nic: {BANDWIDTH: 100}}
    assert wanted["binding:profile"] == {"pci": "x", "allocation": nic}
    assert offline.run("heal_allocations").status == 4


def test_a_binding_that_is_lost_is_written_again_where_the_allocation_is(
    offline: Operator, cloud: Cloud
) -> None:
    root, nic, one, wanted = bandwidth_host(offline, cloud)
    offline.placement.claim({root: NEED, nic: {BANDWIDTH: 100}}, one)
    before = offline.dump()
    assert offline.run("heal_allocations", "--dry-run").status == 6
    assert "allocation" not in wanted["binding:profile"]
    assert offline.run("heal_allocations").status == 0
    assert wanted["binding:profile"]["allocation"] == nic
    assert offline.dump() == before


def test_the_extended_form_of_a_port_s_request_names_a_provider_for_each_group(
    offline: Operator, cloud: Cloud
) -> None:
    root, nic, one, _ = bandwidth_host(offline, cloud)
    agent = offline.placement.new_provider(
        "agent", {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 9}, (), root
    )
    groups = [new_uuid(), new_uuid()]
    request = {
        "request_groups": [
            {"id": groups[0], "required": [], "resources": {BANDWIDTH: 100}},
            {
                "id": groups[1],
                "required": [],
                "resources": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 2},
            },
        ],
        "same_subtree": [],
    }
    cloud.ports = [port(new_uuid(), one, request)]
    assert offline.run("heal_allocations").status == 0
    allocation = cloud.ports[0]["binding:profile"]["allocation"]
    assert allocation == {groups[0]: nic, groups[1]: agent}
    assert set(offline.placement.held(one)) == {root, nic, agent}


def test_a_port_that_is_bound_gets_its_resources_from_the_provider_it_names(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, one, wanted = bandwidth_host(offline, cloud)
    other = offline.placement.new_provider("other", {BANDWIDTH: 1000}, (), root)
    wanted["binding:profile"] = {"allocation": other}
    assert offline.run("heal_allocations").status == 0
    assert offline.placement.held(one) == {root: NEED, other: {BANDWIDTH: 100}}


def test_5_when_ports_cannot_be_read_and_nothing_is_written(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, one, _ = bandwidth_host(offline, cloud)
    cloud.refused = {"GET /v2.0/ports": 403}
    before = offline.dump()
    result = offline.run("heal_allocations")
    assert result.status == 5
    assert "[neutron]" in result.err
    assert offline.dump() == before
    assert offline.run("heal_allocations", "--skip-port-allocations").status == 0
    assert offline.placement.held(one) == {root: NEED}


def test_5_when_neutron_does_not_show_this_user_what_ports_are_bound_to(
    offline: Operator, cloud: Cloud
) -> None:
    _, _, _, wanted = bandwidth_host(offline, cloud)
    del wanted["binding:profile"], wanted["resource_request"]
    result = offline.run("heal_allocations")
    assert result.status == 5
    assert "administrator" in result.err


def test_6_when_a_port_cannot_be_updated_and_the_others_get_back_what_they_had(
    offline: Operator, cloud: Cloud
) -> None:
    _, _, one, wanted = bandwidth_host(offline, cloud)
    second = port(new_uuid(), one, wanted["resource_request"])
    cloud.ports.append(second)
    cloud.refused = {f"PUT /v2.0/ports/{second['id']}": 409}
    before = offline.dump()
    result = offline.run("heal_allocations")
    assert result.status == 6
    assert second["id"] in result.err
    assert wanted["binding:profile"] == {"pci": "x"}
    assert offline.dump() == before


def test_7_when_ports_cannot_be_put_back_and_they_are_named(
    offline: Operator, cloud: Cloud
) -> None:
    _, nic, one, wanted = bandwidth_host(offline, cloud)
    second = port(new_uuid(), one, wanted["resource_request"])
    cloud.ports.append(second)
    cloud.refused = {"PUT /v2.0/ports/.*": 503}
    cloud.refuse_after = 1
    result = offline.run("heal_allocations", "--json")
    assert result.status == 7
    [outcome] = result.document["outcomes"]
    assert outcome["bindings"] == {wanted["id"]: nic}
    assert wanted["id"] in outcome["detail"]
    assert offline.placement.held(one) == {}


def test_3_when_placement_has_no_room_after_all_and_the_ports_get_back_what_they_had(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, one, wanted = bandwidth_host(offline, cloud)
    offline.placement.claim({root: {"VCPU": 7}})
    result = offline.run("heal_allocations", "--force-overcommit")
    assert result.status == 3
    assert "VCPU" in result.err
    assert wanted["binding:profile"] == {"pci": "x"}
    assert any(method == "PUT" for method, _, _ in cloud.requests)
    assert offline.placement.held(one) == {}
