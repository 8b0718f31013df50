"""A server is built, scheduled again, resized and evacuated by nova's own calls.

Each answer of ours is carried on by nova's own functions to the next call: the request with what
was found, the selections, and the allocations that nova itself writes from them.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.differential.nova.conftest import CELL
from tests.differential.nova.drawn_requests import spec
from tests.differential.nova.nova_process import Nova
from tests.functional.scheduler.conftest import Cloud

BANDWIDTH = "CUSTOM_BANDWIDTH"
GPU = "CUSTOM_GPU"
PORT, DEVICE = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture(scope="module")
def hosts(cloud: Cloud) -> dict[str, str]:
    """What serves ports and devices, below the root of each host."""
    for name in (BANDWIDTH, GPU):
        cloud.call("PUT", f"/resource_classes/{name}")
    roots = [cloud.flat_host(64) for _ in range(4)]
    return {root: cloud.provider({BANDWIDTH: 100, GPU: 100}, parent=root) for root in roots}


@pytest.fixture(params=[PORT, f"{DEVICE}-0"], ids=["port", "device"])
def requester(request: pytest.FixtureRequest) -> str:
    """A port that has bandwidth of its own, or the first device of an alias."""
    return str(request.param)


@pytest.fixture
def server(cloud: Cloud, hosts: dict[str, str], requester: str) -> dict[str, Any]:
    """A server with the port or device."""
    device = {
        "_": "InstancePCIRequest",
        "count": 1,
        "alias_name": "gpu",
        "spec": [{"resource_class": GPU}],
        "request_id": DEVICE,
        "requester_id": None,
        "numa_policy": None,
        "is_new": False,
    }
    group = {
        "_": "RequestGroup",
        "requester_id": PORT,
        "use_same_provider": True,
        "resources": {BANDWIDTH: 10},
        "required_traits": {"_": "set", "items": []},
        "forbidden_traits": {"_": "set", "items": []},
        "aggregates": [],
        "provider_uuids": [],
    }
    is_port = requester == PORT
    return spec(
        {f"trait:{cloud.mark}": "required"},
        instance_uuid=str(uuid.uuid4()),
        requested_resources=[group] if is_port else [],
        pci_requests={"_": "InstancePCIRequests", "requests": [] if is_port else [device]},
    )


def chosen(answer: dict[str, Any]) -> str:
    """Return the root of the host that is claimed."""
    assert "error" not in answer, answer
    return str(answer["selections"][0][0]["compute_node_uuid"])


def roots_of(cloud: Cloud, consumer: str, hosts: dict[str, str]) -> set[str]:
    """Return the hosts that a consumer holds something of, with what serves its port or device."""
    held = cloud.held(consumer)
    roots = held.keys() & hosts.keys()
    assert {hosts[root] for root in roots} == held.keys() - roots
    return roots


def test_a_build_goes_on_with_alternates_and_then_asks_again(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str], server: dict[str, Any], requester: str
) -> None:
    answer = conductor("build", spec=server)
    first = chosen(answer)
    assert answer["providers"] == {requester: [hosts[first]]}
    names = [host["nodename"] for host in answer["selections"][0]]
    roots = [host["compute_node_uuid"] for host in answer["selections"][0]]
    assert len({*names}) == 3
    for name, root in zip(names[1:], roots[1:], strict=True):
        assert conductor("next_alternate") == name
        assert roots_of(cloud, server["instance_uuid"], hosts) == {root}
    assert conductor("next_alternate") is None
    answer = conductor("reschedule")
    last = chosen(answer)
    assert {last} == hosts.keys() - {*roots}
    assert answer["providers"] == {requester: [hosts[last]]}


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_resize_holds_the_source_for_its_migration(
    conductor: Nova,
    cloud: Cloud,
    hosts: dict[str, str],
    server: dict[str, Any],
    requester: str,
    end: str,
) -> None:
    instance, migration = server["instance_uuid"], str(uuid.uuid4())
    source = chosen(conductor("build", spec=server))
    extra_specs = {f"trait:{cloud.mark}": "required", "resources:MEMORY_MB": "200"}
    answer = conductor("resize", migration=migration, extra_specs=extra_specs)
    destination = chosen(answer)
    assert answer["selections"][0][0]["cell_uuid"] == CELL
    assert answer["providers"] == {requester: [hosts[destination]]}
    assert source != destination
    assert roots_of(cloud, migration, hosts) == {source}
    assert cloud.held(instance)[destination]["MEMORY_MB"] == 200
    conductor(end, migration=migration)
    assert roots_of(cloud, instance, hosts) == {destination if end == "confirm" else source}
    assert not cloud.held(migration)


def test_an_evacuated_server_holds_both_hosts_until_the_dead_one_is_back(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str], server: dict[str, Any], requester: str
) -> None:
    instance = server["instance_uuid"]
    source = chosen(conductor("build", spec=server))
    answer = conductor("evacuate")
    destination = chosen(answer)
    assert answer["providers"] == {requester: [hosts[destination]]}
    assert roots_of(cloud, instance, hosts) == {source, destination}
    conductor("source_returned", root=source)
    assert roots_of(cloud, instance, hosts) == {destination}


def test_an_evacuation_to_nowhere_leaves_what_is_held(
    conductor: Nova, cloud: Cloud, hosts: dict[str, str], server: dict[str, Any]
) -> None:
    instance = server["instance_uuid"]
    server["flavor"]["extra_specs"]["resources:VCPU"] = "40"
    others = [{**server, "instance_uuid": str(uuid.uuid4())} for _ in range(3)]
    held = [chosen(conductor("build", spec=other)) for other in others]
    source = chosen(conductor("build", spec=server))
    assert len({source, *held}) == len(hosts)
    assert "NoValidHost" in conductor("evacuate")["error"]
    assert roots_of(cloud, instance, hosts) == {source}
    for consumer in (instance, *(other["instance_uuid"] for other in others)):
        cloud.call("DELETE", f"/allocations/{consumer}")
