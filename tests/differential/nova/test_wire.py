"""Nova's own RPC client and serialiser call our scheduler over a real bus, as conductors do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.differential.nova.drawn_requests import ABSENT, MEMORY, image, spec
from tests.differential.nova.nova_process import Nova
from tests.functional.scheduler.conftest import Cloud


def spec_of(cloud: Cloud, extra_specs: dict[str, str] | None = None, **fields: Any) -> Any:
    """A request for the hosts of this module."""
    return spec({f"trait:{cloud.mark}": "required", **(extra_specs or {})}, **fields)


def numa(*cells: dict[str, Any]) -> dict[str, Any]:
    return {
        "_": "InstanceNUMATopology",
        "cells": [
            {"_": "InstanceNUMACell", "id": number, "memory": MEMORY // len(cells), **cell}
            for number, cell in enumerate(cells)
        ],
    }


def cpus(*numbers: int) -> dict[str, Any]:
    return {"_": "set", "items": list(numbers)}


def node(host: str) -> dict[str, Any]:
    return {"_": "ComputeNode", "host": host, "hypervisor_hostname": host}


REQUESTS: dict[str, Callable[[Cloud], Any]] = {
    "a plain server": spec_of,
    "from a volume": lambda cloud: spec_of(cloud, is_bfv=True),
    "with ports": lambda cloud: spec_of(
        cloud,
        requested_networks={
            "_": "NetworkRequestList",
            "objects": [
                {"_": "NetworkRequest", "network_id": str(uuid.uuid4())},
                {"_": "NetworkRequest", "port_id": str(uuid.uuid4()), "address": "192.0.2.1"},
            ],
        },
    ),
    "with a port that is a function": lambda cloud: spec_of(
        cloud,
        pci_requests={
            "_": "InstancePCIRequests",
            "requests": [
                {
                    "_": "InstancePCIRequest",
                    "count": 1,
                    "alias_name": None,
                    "spec": [{"physical_network": "physnet1", "remote_managed": "false"}],
                    "request_id": str(uuid.uuid4()),
                    "requester_id": str(uuid.uuid4()),
                }
            ],
        },
    ),
    "of an image with booleans, numbers and lists": lambda cloud: spec_of(
        cloud,
        image=image(
            hw_boot_menu="yes",
            hw_cpu_sockets="2",
            hw_numa_nodes="2",
            **{"hw_numa_cpus.0": "0-1", "hw_numa_cpus.1": "2-3"},
            **{"hw_numa_mem.0": "32", "hw_numa_mem.1": "32"},
            hw_vif_multiqueue_enabled="true",
            hw_rescue_bus="virtio",
            img_hide_hypervisor_id="true",
            **{f"trait:{cloud.mark}": "required"},
        ),
        numa_topology=numa({"cpuset": cpus(0, 1)}, {"cpuset": cpus(2, 3)}),
    ),
    **{
        f"with NUMA nodes and a page size of {size}": lambda cloud, size=size: spec_of(
            cloud,
            numa_topology=numa(
                {"cpuset": cpus(0, 1), "pcpuset": cpus(), "pagesize": size},
                {"cpuset": cpus(2, 3), "pcpuset": cpus(), "pagesize": size},
            ),
        )
        for size in (None, 4, -1, -3)
    },
    "of a group": lambda cloud: spec_of(
        cloud,
        instance_group={
            "_": "InstanceGroup",
            "policy": "anti-affinity",
            "_rules": {},
            "hosts": [],
            "members": [str(uuid.uuid4())],
        },
    ),
    "of a group with rules": lambda cloud: spec_of(
        cloud,
        instance_group={
            "_": "InstanceGroup",
            "policy": "anti-affinity",
            "hosts": [],
            "_rules": {"max_server_per_host": "3"},
            "members": [str(uuid.uuid4())],
        },
    ),
    "tried before elsewhere": lambda cloud: spec_of(
        cloud,
        retry={
            "_": "SchedulerRetries",
            "num_attempts": 2,
            "hosts": {"_": "ComputeNodeList", "objects": [node("gone1"), node("gone2")]},
        },
    ),
    "of an older conductor": lambda cloud: spec_of(
        cloud, requested_networks=ABSENT, request_level_params=ABSENT, limits=ABSENT
    ),
    "with hints": lambda cloud: spec_of(
        cloud, scheduler_hints={"group": ["g"], "_nova_check_type": ["live_migrate"]}
    ),
}


@pytest.fixture(scope="module")
def hosts(cloud: Cloud) -> dict[str, str]:
    """Names of hosts by their uuid."""
    uuids = [cloud.flat_host(64) for _ in range(3)]
    providers = cloud.call("GET", f"/resource_providers?required={cloud.mark}")
    return {p["uuid"]: p["name"] for p in providers["resource_providers"] if p["uuid"] in uuids}


@pytest.mark.parametrize("request_spec", REQUESTS.values(), ids=REQUESTS)
def test_a_conductor_gets_a_host_and_alternates(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str], request_spec: Callable[[Cloud], Any]
) -> None:
    instance = str(uuid.uuid4())
    answer = conductor("select", spec=request_spec(cloud), instances=[instance], alternates=True)
    assert "error" not in answer, answer
    assert answer["kinds"] == ["Selection"]
    ((chosen, *alternates),) = answer["selections"]
    assert hosts[chosen["compute_node_uuid"]] == chosen["nodename"]
    assert {host["compute_node_uuid"] for host in alternates} < hosts.keys() - {
        chosen["compute_node_uuid"]
    } or len(alternates) == len(hosts) - 1
    assert all(limits["memory_mb"] for per in answer["limits"] for limits in per)
    claimed = cloud.call("GET", f"/allocations/{instance}")
    asked = json.loads(chosen["allocation_request"])["allocations"]
    assert {u: a["resources"] for u, a in claimed["allocations"].items()} == {
        u: a["resources"] for u, a in asked.items()
    }
    assert chosen["allocation_request_version"] == "1.36"


def test_several_instances_get_a_host_each(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str]
) -> None:
    instances = [str(uuid.uuid4()) for _ in range(3)]
    answer = conductor("select", spec=spec_of(cloud, num_instances=3), instances=instances)
    assert [len(per) for per in answer["selections"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("force_hosts", lambda name: [name]),
        ("force_nodes", lambda name: [name]),
        (
            "requested_destination",
            lambda name: {"_": "Destination", "host": name, "node": name},
        ),
    ],
)
def test_a_named_host_is_taken(
    conductor: Nova,
    cloud: Cloud,
    hosts: dict[str, str],
    field: str,
    value: Callable[[str], Any],
) -> None:
    for name in hosts.values():
        instance = str(uuid.uuid4())
        answer = conductor(
            "select", spec=spec_of(cloud, **{field: value(name)}), instances=[instance]
        )
        assert [per[0]["nodename"] for per in answer["selections"]] == [name], answer


def test_a_rescheduled_server_leaves_out_the_hosts_before(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str]
) -> None:
    first, second, third = hosts.values()
    retry = {
        "_": "SchedulerRetries",
        "num_attempts": 3,
        "hosts": {"_": "ComputeNodeList", "objects": [node(first), node(third)]},
    }
    request_spec = spec_of(cloud, retry=retry)
    answer = conductor("select", spec=request_spec, instances=[str(uuid.uuid4())], alternates=True)
    assert [[host["nodename"] for host in hosts] for hosts in answer["selections"]] == [[second]]


def test_what_fits_nowhere_is_an_error_that_conductors_know(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str]
) -> None:
    request_spec = spec_of(cloud, {"resources:VCPU": "5000"})
    answer = conductor("select", spec=request_spec, instances=[str(uuid.uuid4())])
    assert answer["error"].removesuffix("_Remote") == "nova.exception_Remote.NoValidHost"
    assert answer["text"].startswith("No valid host was found. ")


def test_what_cannot_be_asked_for_is_an_error_that_conductors_know(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str]
) -> None:
    request_spec = spec_of(cloud, {"hw:cpu_policy": "golden"})
    answer = conductor("select", spec=request_spec, instances=[str(uuid.uuid4())])
    assert "NoValidHost" in answer["error"]
    assert "hw:cpu_policy is 'golden'" in answer["text"]
