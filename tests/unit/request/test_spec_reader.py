"""Request specifications as callers write them."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.request.errors import InvalidRequest
from compute_agent.request.guest_numa import GuestNode, guest_numa
from compute_agent.request.spec import GuestCell, RequestSpec
from compute_agent.request.spec_reader import instances_of, read_spec
from tests.unit.scheduler.specs import query_of

U1, U2, U3 = (f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "123")
BARE = {"project_id": "p", "user_id": "u"}


def read(**fields: Any) -> RequestSpec:
    return read_spec({**BARE, "flavor": {"vcpus": 2, "memory_mb": 512}, **fields})


def test_every_field_of_a_whole_specification_is_read() -> None:
    read_spec = read(
        image={"id": "i", "properties": {"a": "b"}, "disk_format": "raw"},
        is_bfv=True,
        availability_zone="az",
        requested_destination={
            "host": "h",
            "node": "n",
            "cell": {"uuid": U1, "name": "cell1"},
            "aggregates": [f"{U1},{U2}"],
            "forbidden_aggregates": [U3],
            "allow_cross_cell_move": True,
        },
        ignore_hosts=["x"],
        force_hosts=["y"],
        force_nodes=["z"],
        retry={"num_attempts": 1, "hosts": [["s", "tried"], "also"]},
        instance_group={
            "policy": "anti-affinity",
            "rules": {"max_server_per_host": "3"},
            "hosts": ["m"],
            "members": [U2],
        },
        requested_networks=[
            {"segment_aggregates": [U3], "remote_managed": True, "physnet": "net", "tunneled": True}
        ],
        scheduler_hints={"same_host": [U1], "query": "[]"},
        pci_requests=[{"request_id": "r", "alias_name": "a", "count": 2}],
        numa_topology={
            "cells": [{"id": 0, "cpuset": [0], "pcpuset": [1], "memory": 512, "pagesize": 2048}]
        },
    )
    assert (read_spec.image.disk_format, read_spec.is_bfv, read_spec.availability_zone) == (
        "raw",
        True,
        "az",
    )
    destination = read_spec.destination
    assert (destination.host, destination.node, destination.cell) == ("h", "n", U1)
    assert destination.allow_cross_cell_move
    assert destination.aggregates == {frozenset({U1, U2})}
    assert destination.forbidden_aggregates == {U3}
    assert (read_spec.ignore_hosts, read_spec.force_hosts, read_spec.force_nodes) == (
        {"x"},
        {"y"},
        {"z"},
    )
    assert read_spec.retried_hosts == {"tried", "also"}
    assert read_spec.instance_group is not None
    assert dict(read_spec.instance_group.rules) == {"max_server_per_host": 3}
    [network] = read_spec.requested_networks
    assert (network.remote_managed, network.physnet, network.is_tunneled) == (True, "net", True)
    assert read_spec.hint("query") == ("[]",)
    assert [(r.alias_name, r.count) for r in read_spec.pci_requests] == [("a", 2)]
    assert read_spec.guest_cells == (GuestCell(1, 1, 512, "2048"),)


@pytest.mark.parametrize(("tag", "expected"), [("True", [True]), ("false", [])])
def test_a_function_of_a_port_that_is_managed_remotely_makes_its_network_so(
    tag: str, expected: list[bool]
) -> None:
    function = {"request_id": "r", "spec": [{"physical_network": "p", "remote_managed": tag}]}
    found = read(pci_requests=[function])
    assert [network.remote_managed for network in found.requested_networks] == expected


def test_ports_of_both_forms_and_accelerators_are_groups_named_by_who_asked() -> None:
    query = query_of(
        read(
            requested_resources=[
                {
                    "requester_id": f"device_profile_0_port_{U1}",
                    "resources": {"FPGA": 1},
                    "required_traits": ["CUSTOM_A", ["CUSTOM_B", "CUSTOM_C"]],
                    "forbidden_traits": ["CUSTOM_D"],
                }
            ],
            requested_networks=[
                {
                    "port_id": U2,
                    "resource_request": {
                        "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000},
                        "required": ["CUSTOM_PHYSNET_X"],
                    },
                },
                {
                    "port_id": U3,
                    "resource_request": {
                        "request_groups": [
                            {"id": "bw", "resources": {"NET_BW_IGR_KILOBIT_PER_SEC": 5}},
                            {"id": "pps", "resources": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 1}},
                        ],
                        "same_subtree": ["bw", "pps"],
                    },
                },
            ],
        )
    )
    suffix = f"device_profile_0_port_{U1}"
    for part in (
        "group_policy=none",
        "same_subtree=bw,pps",
        f"resources{suffix}=FPGA:1&required{suffix}=CUSTOM_A,!CUSTOM_D",
        f"required{suffix}=in:CUSTOM_B,CUSTOM_C",
        f"resources{U2}=NET_BW_EGR_KILOBIT_PER_SEC:1000&required{U2}=CUSTOM_PHYSNET_X",
        "resourcesbw=NET_BW_IGR_KILOBIT_PER_SEC:5",
        "resourcespps=NET_PACKET_RATE_KILOPACKET_PER_SEC:1",
    ):
        assert part in query


def test_what_holds_for_the_whole_request_is_read() -> None:
    query = query_of(
        read(
            requested_resources=[
                {"requester_id": "_A", "resources": {"VGPU": 1}},
                {"requester_id": "_B", "resources": {"FPGA": 1}},
            ],
            request_level_params={
                "root_required": ["CUSTOM_R"],
                "root_forbidden": ["CUSTOM_F"],
                "same_subtree": [["_A", "_B"]],
            },
        )
    )
    assert query.startswith("group_policy=none&root_required=CUSTOM_R,!CUSTOM_F&same_subtree=_A,_B")


def test_the_nodes_that_the_caller_made_up_are_taken() -> None:
    cells = [
        {"cpuset": [0, 1], "memory": 100},
        {"cpuset": [2], "memory": 412, "pagesize": 1048576},
    ]
    read_spec = read(flavor={"vcpus": 3, "memory_mb": 512}, numa_topology={"cells": cells})
    numa = guest_numa(read_spec, 3, 0, 512)
    assert numa.nodes == (GuestNode(2, 0, 100), GuestNode(1, 0, 412))
    assert numa.names_nodes
    assert numa.page_traits == {"CUSTOM_MEMORY_PAGE_SIZE_1048576"}


def test_pinned_cpus_of_the_flavor_pin_the_nodes_and_the_emulator_goes_with_the_first() -> None:
    read_spec = read(numa_topology={"cells": [{"cpuset": [0], "memory": 256}] * 2})
    assert guest_numa(read_spec, 0, 3, 512).nodes == (GuestNode(0, 2, 256), GuestNode(0, 1, 256))


def test_other_amounts_than_those_of_the_flavor_are_distributed_over_the_nodes() -> None:
    cells = [{"cpuset": [0, 1, 2], "memory": 100}, {"cpuset": [3], "memory": 412}]
    read_spec = read(flavor={"vcpus": 4, "memory_mb": 512}, numa_topology={"cells": cells})
    assert guest_numa(read_spec, 3, 0, 512).nodes == (GuestNode(2, 0, 100), GuestNode(1, 0, 412))
    assert guest_numa(read_spec, 4, 0, 64).nodes == (GuestNode(3, 0, 32), GuestNode(1, 0, 32))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"project_id": ""}, "project_id is ''"),
        ({"flavor": {"vcpus": -1}}, "flavor.vcpus is -1"),
        ({"flavor": []}, "flavor is"),
        ({"ignore_hosts": "h"}, "ignore_hosts is 'h': expected a list"),
        ({"requested_destination": {"cell": "c"}}, "requested_destination.cell is 'c'"),
        ({"requested_resources": [{"resources": {"vcpu": 1}}]}, r"requested_resources\[0\]"),
        ({"is_bfv": "yes"}, "is_bfv is 'yes': expected true or false"),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_path(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(**fields)


def test_nodes_that_do_not_add_up_to_the_flavor_are_refused() -> None:
    read_spec = read(numa_topology={"cells": [{"cpuset": [0], "memory": 512}]})
    with pytest.raises(InvalidRequest, match="the 2 CPUs and 512 MiB of the flavor"):
        guest_numa(read_spec, 2, 0, 512)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "the uuid of the instance"),
        ({"instance_uuids": [U1, U1]}, "each instance once"),
        ({"instance_uuids": [U1], "num_instances": 2}, "num_instances is 2"),
        ({"instance_uuid": "me"}, "expected a uuid"),
    ],
)
def test_instances_are_named_once_and_as_many_as_said(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        instances_of(body)
