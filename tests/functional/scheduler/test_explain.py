"""Explanations of requests that fit nowhere, by command."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduler.conftest import Cloud, Command


class Hosts:
    """Hosts of one test: a class of their own keeps what would fit on others out of it."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.mark = f"{cloud.mark}=1"

    def flat(self, vcpus: int) -> str:
        inventory = {"VCPU": vcpus, "MEMORY_MB": 4096, self.cloud.mark: 100}
        return self.cloud.provider(inventory, "COMPUTE_NODE")

    def nested(self, *cells: int) -> None:
        top = self.cloud.provider({self.cloud.mark: 100}, "COMPUTE_NODE")
        for vcpus in cells:
            self.cloud.provider({"VCPU": vcpus, "MEMORY_MB": 1024}, "HW_NUMA_ROOT", parent=top)


@pytest.fixture
def hosts(cloud: Cloud) -> Hosts:
    return Hosts(cloud)


def explained(command: Command, *request: str) -> Any:
    done = command("explain", *request, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def changes(document: Any) -> list[Any]:
    return [change["changes"] for change in document["causes"]["fits_with"]]


@pytest.mark.parametrize("extensions", ["auto", "never"])
def test_an_amount_is_lowered_to_the_largest_that_fits_and_the_closest_hosts_are_named(
    hosts: Hosts, command: Command, config: Path, extensions: str
) -> None:
    config.write_text(
        f"{config.read_text()}[compute_agent]\nuse_placement_extensions = {extensions}\n"
    )
    # hosts of other tests, on the same server, have fewer
    larger, smaller = hosts.flat(1200), hosts.flat(400)
    asked = ("--resources", f"VCPU=1600,MEMORY_MB=64,{hosts.mark}")
    document = explained(command, *asked)
    assert changes(document) == [
        [{"group": "", "resource_class": "VCPU", "from": 1600, "to": 1200}]
    ]
    closest = document["causes"]["closest_hosts"]
    assert [host["host"] for host in closest] == [f"p-{larger}", f"p-{smaller}"]
    assert closest[0]["lacks"][0]["text"] == "VCPU: 1600 asked, 1200 free"

    read = command("explain", *asked).stdout
    assert f"with VCPU=1200 instead of 1600  on p-{larger}" in read
    assert f"p-{smaller}  VCPU: 1600 asked, 400 free" in read
    assert "resources VCPU:1600" in read
    assert "<- none left" in read
    # to be read at a glance
    assert len(read.splitlines()) <= 30


def test_on_nested_hosts_the_whole_guest_is_what_is_lowered(hosts: Hosts, command: Command) -> None:
    hosts.nested(4, 3)
    asked = ("--resources", f"VCPU=9,MEMORY_MB=64,{hosts.mark}")
    document = explained(command, *asked)
    # a guest without NUMA nodes of its own is split over both cells
    assert changes(document) == [[{"group": "", "resource_class": "VCPU", "from": 9, "to": 7}]]
    fitting = ("--resources", f"VCPU=7,MEMORY_MB=64,{hosts.mark}")
    assert command("claim", *fitting).returncode == 0


def test_what_is_free_is_counted_where_the_rest_of_the_request_fits(
    hosts: Hosts, command: Command
) -> None:
    top = hosts.cloud.provider({}, "COMPUTE_NODE")
    hosts.cloud.provider({"VCPU": 900}, "HW_NUMA_ROOT", parent=top)
    cell = hosts.cloud.provider({"VCPU": 300}, "HW_NUMA_ROOT", parent=top)
    hosts.cloud.provider({hosts.cloud.mark: 100}, parent=cell)
    close = ("--group", f"GPU:{hosts.mark}", "--same-subtree", "CELL,GPU")
    document = explained(command, "--group", "CELL:VCPU=600", *close)
    [host] = document["causes"]["closest_hosts"]
    assert [lack["text"] for lack in host["lacks"]] == ["VCPU: 600 asked, 300 free (group CELL)"]


def test_a_limit_of_one_allocation_may_be_what_is_in_the_way(
    hosts: Hosts, command: Command
) -> None:
    path = f"/resource_providers/{hosts.flat(1)}/inventories/VCPU"
    # as a host with overcommit has: 800 free, and no guest with more than 500
    inventory = {"total": 500, "max_unit": 500, "allocation_ratio": 1.6}
    generation = hosts.cloud.call("GET", path)["resource_provider_generation"]
    body = {"resource_provider_generation": generation, **inventory}
    hosts.cloud.call("PUT", path, json=body)
    document = explained(command, "--resources", f"VCPU=600,{hosts.mark}")
    [host] = document["causes"]["closest_hosts"]
    in_the_way = "max_unit, step_size or the rest of the request is in the way"
    assert [lack["text"] for lack in host["lacks"]] == [
        f"VCPU: 600 asked, 800 free, but {in_the_way}"
    ]


def test_a_trait_and_an_aggregate_that_are_in_the_way_are_named(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    trait, aggregate = f"{hosts.cloud.mark}_FAST", str(uuid.uuid4())
    hosts.cloud.call("PUT", f"/traits/{trait}")
    asked = ("--resources", f"VCPU=2,{hosts.mark}")
    document = explained(command, *asked, "--required", trait)
    assert changes(document) == [[{"group": "", "drop_trait": trait}]]
    assert document["causes"]["closest_hosts"] == [
        {
            "host": f"p-{host}",
            "lacks": [
                {
                    "text": f"no trait {trait}",
                    "group": "",
                    "resource_class": "",
                    "asked": 0,
                    "free": 0,
                }
            ],
        }
    ]
    document = explained(command, *asked, "--member-of", aggregate)
    assert [[kind for kind in change if kind != "group"] for [change] in changes(document)] == [
        ["drop_aggregate"]
    ]
    # a name that placement has never heard of
    document = explained(command, *asked, "--required", "CUSTOM_NEVER_HEARD_OF")
    assert changes(document) == [[{"group": "", "drop_trait": "CUSTOM_NEVER_HEARD_OF"}]]


def test_two_changes_are_named_only_where_one_is_not_enough(hosts: Hosts, command: Command) -> None:
    hosts.flat(4)
    trait = f"{hosts.cloud.mark}_FAST"
    hosts.cloud.call("PUT", f"/traits/{trait}")
    document = explained(command, "--resources", f"VCPU=6,{hosts.mark}", "--required", trait)
    assert changes(document) == [
        [
            {"group": "", "resource_class": "VCPU", "from": 6, "to": 4},
            {"group": "", "drop_trait": trait},
        ]
    ]


def test_a_claim_that_fails_says_the_same_and_one_that_fits_is_not_claimed_by_explain(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    asked = ("--resources", f"VCPU=6,{hosts.mark}")
    refused = command("claim", *asked)
    assert refused.returncode == 1
    assert f"It would fit with VCPU=4 instead of 6 (1 host(s), such as p-{host})." in refused.stderr
    assert "Closest hosts" in refused.stderr
    causes = json.loads(command("claim", *asked, "--json").stdout)["causes"]
    assert causes["fits_with"][0]["example"] == f"p-{host}"
    assert causes["queries"][0]["constraints"]

    fits = command("explain", "--resources", f"VCPU=4,{hosts.mark}")
    assert fits.returncode == 0
    assert f"It fits on p-{host}. Nothing was claimed." in fits.stdout
    usages = hosts.cloud.call("GET", f"/resource_providers/{host}/usages")["usages"]
    assert set(usages.values()) == {0}


def test_filters_and_the_request_itself_are_named_when_they_reject_the_last_host(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    spec = {
        "project_id": "p",
        "user_id": "u",
        "flavor": {
            "vcpus": 1,
            "memory_mb": 0,
            "extra_specs": {f"resources:{hosts.cloud.mark}": "1", "capabilities:cpu": "fast"},
        },
    }
    done = command("explain", "--spec", "-", "--json", input=json.dumps(spec))
    document = json.loads(done.stdout)
    assert changes(document) == [[{"group": None, "skip_filter": "ComputeCapabilitiesFilter"}]]
    assert document["causes"]["closest_hosts"][0]["lacks"][0]["text"] == (
        "ComputeCapabilitiesFilter: cpu is not fast"
    )
    spec["flavor"]["extra_specs"] = {f"resources:{hosts.cloud.mark}": "1"}
    spec["ignore_hosts"] = [f"p-{host}"]
    read = command("explain", "--spec", "-", input=json.dumps(spec)).stdout
    assert f"without ignore_hosts  on p-{host}" in read
    assert f"0 of 1  rejected p-{host}" in read
