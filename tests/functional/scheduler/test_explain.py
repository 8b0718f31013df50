"""Explanations of requests that fit nowhere, by command and shared by requests."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.scheduler.explanation import EXPLAINED_QUERIES, KEPT_SECONDS, Explainer
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.testing.transports import RecordingTransport
from tests.functional.scheduler.conftest import Cloud, Command
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec


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


def explanations(document: Any) -> list[Any]:
    """What placement explains, of each question."""
    answers = [query["explanation"] for query in document["causes"]["queries"]]
    return [answer for answer in answers if answer is not None]


def changes(document: Any) -> list[Any]:
    return [entry["changes"] for answer in explanations(document) for entry in answer["closest"]]


def test_an_amount_is_lowered_to_the_largest_that_fits_and_the_closest_hosts_are_named(
    hosts: Hosts, command: Command
) -> None:
    # hosts of other tests, on the same server, have fewer
    larger, smaller = hosts.flat(1200), hosts.flat(400)
    asked = ("--resources", f"VCPU=1600,MEMORY_MB=64,{hosts.mark}")
    document = explained(command, *asked)
    assert changes(document) == [
        [{"group": "", "resource_class": "VCPU", "from": 1600, "to": 1200}]
    ]
    short = explanations(document)[0]["short"]
    assert [(entry["provider"], entry["free"]) for entry in short] == [
        (larger, 1200),
        (smaller, 400),
    ]

    read = command("explain", *asked).stdout
    assert f"  1 tree would fit with VCPU:1200 instead of 1600: p-{larger}." in read
    assert f"  p-{smaller} has 400 of 400 VCPU free; 1600 asked for." in read
    assert "  resources VCPU:1600: leaves 0 provider(s)." in read
    # to be read at a glance: twelve sentences for each of two queries, whatever others left there
    assert len(read.splitlines()) <= 36


def test_where_placement_explains_nothing_candidates_and_hosts_are_counted(
    hosts: Hosts, command: Command, config: Path
) -> None:
    config.write_text(f"{config.read_text()}[compute_agent]\nuse_placement_extensions = never\n")
    host = hosts.flat(4)
    read = command("explain", "--resources", f"VCPU=6,{hosts.mark}").stdout
    assert "Asked of placement, flat: 0 candidate(s)" in read
    spec = spec_of(hosts, {"capabilities:cpu": "fast"})
    read = command("explain", "--spec", "-", input=json.dumps(spec)).stdout
    assert "Asked of placement, flat: 1 candidate(s)" in read
    assert f"0 of 1  rejected p-{host} (cpu is not fast)" in read


def test_what_the_shape_of_a_question_added_is_no_change_of_the_request(
    hosts: Hosts, command: Command
) -> None:
    hosts.nested(4, 3)
    asked = ("--resources", f"VCPU=9,MEMORY_MB=64,{hosts.mark}")
    document = explained(command, *asked)
    # flat hosts are asked for as well, without the trait of cells
    assert changes(document) == [
        [{"group": "_NUMA0", "resource_class": "VCPU", "from": 9, "to": 4}]
    ]
    assert "HW_NUMA_ROOT allowed" not in command("explain", *asked).stdout
    # a guest without NUMA nodes of its own is split over both cells
    fitting = ("--resources", f"VCPU=7,MEMORY_MB=64,{hosts.mark}")
    assert command("claim", *fitting).returncode == 0


def test_a_trait_and_an_aggregate_that_are_in_the_way_are_named(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    trait, aggregate = f"{hosts.cloud.mark}_FAST", str(uuid.uuid4())
    hosts.cloud.call("PUT", f"/traits/{trait}")
    asked = ("--resources", f"VCPU=2,{hosts.mark}")
    document = explained(command, *asked, "--required", trait)
    assert changes(document) == [[{"group": "", "drop_trait": trait}]]
    assert f"1 tree would fit without required {trait}: p-{host}." in str(document)
    document = explained(command, *asked, "--member-of", aggregate)
    assert changes(document) == [[{"group": "", "drop_aggregate": aggregate}]]
    # a name that placement has never heard of
    document = explained(command, *asked, "--required", "CUSTOM_NEVER_HEARD_OF")
    assert "no such trait(s): CUSTOM_NEVER_HEARD_OF" in str(document["causes"]["notes"])
    assert explanations(document) == []


def test_a_claim_that_fails_says_the_same_and_one_that_fits_is_not_claimed_by_explain(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    asked = ("--resources", f"VCPU=6,{hosts.mark}")
    refused = command("claim", *asked)
    assert refused.returncode == 1
    sentence = f"1 tree would fit with VCPU:4 instead of 6: p-{host}."
    assert f"Placement has no candidate for what was asked. {sentence}" in refused.stderr
    assert f"\n  {sentence}\n" in refused.stderr
    document = json.loads(command("claim", *asked, "--json").stdout)
    assert explanations(document)[0]["closest"][0]["example"] == host

    fits = command("explain", "--resources", f"VCPU=4,{hosts.mark}")
    assert fits.returncode == 0
    assert f"It fits on p-{host}. Nothing was claimed." in fits.stdout
    usages = hosts.cloud.call("GET", f"/resource_providers/{host}/usages")["usages"]
    assert set(usages.values()) == {0}


def test_filters_and_the_request_itself_are_named_when_they_reject_the_last_host(
    hosts: Hosts, command: Command
) -> None:
    host = hosts.flat(4)
    spec = spec_of(hosts, {"capabilities:cpu": "fast"})
    done = command("explain", "--spec", "-", "--json", input=json.dumps(spec))
    document = json.loads(done.stdout)
    [cause] = [cause for cause in document["causes"]["filters"] if not cause["hosts_left"]]
    assert cause["name"] == "ComputeCapabilitiesFilter"
    assert cause["rejected"] == [{"host": f"p-{host}", "reason": "cpu is not fast"}]
    spec = {**spec_of(hosts, {}), "ignore_hosts": [f"p-{host}"]}
    read = command("explain", "--spec", "-", input=json.dumps(spec)).stdout
    assert f"0 of 1  rejected p-{host}" in read


def spec_of(hosts: Hosts, extra_specs: dict[str, str]) -> dict[str, Any]:
    resources = {f"resources:{hosts.cloud.mark}": "1"}
    return {
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 0, "extra_specs": {**resources, **extra_specs}},
    }


class CountedExplainer:
    """An explainer whose questions to placement are counted, and a request that fits nowhere."""

    def __init__(self, world: World) -> None:
        world.provider("host", {"VCPU": 4}, "COMPUTE_NODE")
        self.now = 0.0
        self._recorded = RecordingTransport(world.transport)
        client = PlacementClient(self._recorded)
        search = HostSearch(client, HostSearchOptions())
        self.explainer = Explainer(client, search, lambda: self.now)
        self.asked = spec(vcpus=100_000, memory_mb=0, root_gb=0)
        self.causes = search.find(self.asked).causes

    @property
    def questions(self) -> int:
        return sum("/candidate_explanation" in request for request in self._recorded.requests)


def test_equal_requests_share_an_explanation_for_a_while(world: World) -> None:
    explaining = CountedExplainer(world)
    first = explaining.explainer.add_explanation(explaining.asked, explaining.causes)
    assert [query.explanation is not None for query in first.queries] == [True, True, True]
    assert explaining.questions == 3
    assert explaining.explainer.add_explanation(explaining.asked, explaining.causes) == first
    assert explaining.questions == 3
    explaining.now = KEPT_SECONDS + 1
    explaining.explainer.add_explanation(explaining.asked, explaining.causes)
    assert explaining.questions == 6


def test_while_one_request_is_explained_others_are_not(world: World) -> None:
    explaining = CountedExplainer(world)
    with explaining.explainer._lock:
        causes = explaining.explainer.add_explanation(explaining.asked, explaining.causes)
    assert (explaining.questions, causes.queries) == (0, explaining.causes.queries)
    assert "use compute-scheduler explain" in causes.remark


def test_of_many_questions_the_first_are_explained(world: World) -> None:
    explaining = CountedExplainer(world)
    query = explaining.causes.queries[0]
    queries = tuple(replace(query, query=f"resources=VCPU:{n}") for n in range(50_000, 50_009))
    causes = replace(explaining.causes, queries=queries)
    causes = explaining.explainer.add_explanation(explaining.asked, causes)
    explained = [query.explanation is not None for query in causes.queries]
    assert explained == [True] * EXPLAINED_QUERIES + [False] * (9 - EXPLAINED_QUERIES)
