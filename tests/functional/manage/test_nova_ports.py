"""`heal_allocations` with Neutron as the source of ports, whose bindings name providers.

The services are stand-ins (see `cloud`): no real ones can be had here.
"""

from typing import Any

import pytest

from tests.fixtures.allocations import new_uuid
from tests.functional.manage.cloud import Cloud, port, server
from tests.functional.manage.conftest import Operator
from tests.functional.manage.described_instances import NEED, flat_host

pytestmark = pytest.mark.waiting

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"


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
    root, nic, server, wanted = bandwidth_host(offline, cloud)
    assert offline.run("heal_allocations").status == 0
    assert offline.placement.held(server) == {root: NEED, nic: {BANDWIDTH: 100}}
    assert wanted["binding:profile"] == {"pci": "x", "allocation": nic}
    assert offline.run("heal_allocations").status == 4


def test_a_binding_that_is_lost_is_written_again_where_the_allocation_is(
    offline: Operator, cloud: Cloud
) -> None:
    root, nic, server, wanted = bandwidth_host(offline, cloud)
    offline.placement.claim({root: NEED, nic: {BANDWIDTH: 100}}, server)
    before = offline.dump()
    assert offline.run("heal_allocations", "--dry-run").status == 6
    assert "allocation" not in wanted["binding:profile"]
    assert offline.run("heal_allocations").status == 0
    assert wanted["binding:profile"]["allocation"] == nic
    assert offline.dump() == before


def test_the_extended_form_of_a_port_s_request_names_a_provider_for_each_group(
    offline: Operator, cloud: Cloud
) -> None:
    root, nic, server, _ = bandwidth_host(offline, cloud)
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
    cloud.ports = [port(new_uuid(), server, request)]
    assert offline.run("heal_allocations").status == 0
    allocation = cloud.ports[0]["binding:profile"]["allocation"]
    assert allocation == {groups[0]: nic, groups[1]: agent}
    assert set(offline.placement.held(server)) == {root, nic, agent}


def test_a_port_that_is_bound_gets_its_resources_from_the_provider_it_names(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, server, wanted = bandwidth_host(offline, cloud)
    other = offline.placement.new_provider("other", {BANDWIDTH: 1000}, (), root)
    wanted["binding:profile"] = {"allocation": other}
    assert offline.run("heal_allocations").status == 0
    assert offline.placement.held(server) == {root: NEED, other: {BANDWIDTH: 100}}


def test_5_when_ports_cannot_be_read_and_nothing_is_written(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, server, _ = bandwidth_host(offline, cloud)
    cloud.refused = {"GET /v2.0/ports": 403}
    before = offline.dump()
    result = offline.run("heal_allocations", status=5)
    assert "[neutron]" in result.err
    assert offline.dump() == before
    assert offline.run("heal_allocations", "--skip-port-allocations").status == 0
    assert offline.placement.held(server) == {root: NEED}


def test_5_when_neutron_does_not_show_this_user_what_ports_are_bound_to(
    offline: Operator, cloud: Cloud
) -> None:
    _, _, _, wanted = bandwidth_host(offline, cloud)
    del wanted["binding:profile"], wanted["resource_request"]
    result = offline.run("heal_allocations", status=5)
    assert "administrator" in result.err


def test_6_when_a_port_cannot_be_updated_and_the_others_get_back_what_they_had(
    offline: Operator, cloud: Cloud
) -> None:
    _, _, server, wanted = bandwidth_host(offline, cloud)
    second = port(new_uuid(), server, wanted["resource_request"])
    cloud.ports.append(second)
    cloud.refused = {f"PUT /v2.0/ports/{second['id']}": 409}
    before = offline.dump()
    result = offline.run("heal_allocations", status=6)
    assert second["id"] in result.err
    assert wanted["binding:profile"] == {"pci": "x"}
    assert offline.dump() == before


def test_7_when_ports_cannot_be_put_back_and_they_are_named(
    offline: Operator, cloud: Cloud
) -> None:
    _, nic, server, wanted = bandwidth_host(offline, cloud)
    second = port(new_uuid(), server, wanted["resource_request"])
    cloud.ports.append(second)
    cloud.refused = {"PUT /v2.0/ports/.*": 503}
    cloud.refuse_after = 1
    result = offline.run("heal_allocations", "--json", status=7)
    [outcome] = result.document["outcomes"]
    assert outcome["bindings"] == {wanted["id"]: nic}
    assert wanted["id"] in outcome["detail"]
    assert offline.placement.held(server) == {}


def test_3_when_placement_has_no_room_after_all_and_the_ports_get_back_what_they_had(
    offline: Operator, cloud: Cloud
) -> None:
    root, _, server, wanted = bandwidth_host(offline, cloud)
    offline.placement.claim({root: {"VCPU": 7}})
    result = offline.run("heal_allocations", "--force-overcommit", status=3)
    assert "VCPU" in result.err
    assert wanted["binding:profile"] == {"pci": "x"}
    assert any(method == "PUT" for method, _, _ in cloud.requests)
    assert offline.placement.held(server) == {}
