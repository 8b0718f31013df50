"""`heal_allocations` with Nova as the source of instances.

It is a stand-in (see `cloud`): no real one can be had here.
"""

from typing import Any

import pytest

from tests.fixtures.allocations import new_uuid
from tests.functional.manage.cloud import (
    Cloud,
    down_cell_server,
    migration,
    server,
)
from tests.functional.manage.conftest import Operator
from tests.functional.manage.described_instances import NEED, flat_host

pytestmark = pytest.mark.waiting


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


def test_127_when_nova_is_too_old(offline: Operator, cloud: Cloud) -> None:
    cloud.version = "2.97"
    result = offline.run("heal_allocations", status=127)
    assert "2.98" in result.err


def test_one_server_is_asked_for_alone(offline: Operator, cloud: Cloud) -> None:
    root = flat_host(offline.placement)
    one, other = new_uuid(), new_uuid()
    cloud.servers = [server(instance, "flat") for instance in (one, other)]
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
    result = offline.run("heal_allocations", "--json", status=4)
    assert result.document["outcomes"][0]["state"] == "skipped"
    assert offline.dump() == before


def test_the_cell_of_a_server_is_not_known(offline: Operator, cloud: Cloud) -> None:
    result = offline.run("heal_allocations", "--cell=a", status=127)
    assert "--instances" in result.err
    assert cloud.requests == []
