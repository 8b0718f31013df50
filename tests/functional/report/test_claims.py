"""Claims of one consumer: written, refused, repeated, added to."""

import json
import threading

import pytest

from compute_agent import errors
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.responses import NoCapacity
from tests.functional.report.claims import ask, asking, claim, grows_before, held_by, new_consumer
from tests.functional.report.interference import before_next


def test_a_claim_is_one_request(hosted):
    consumer = new_consumer()
    assert ask(hosted, consumer, asking(hosted.root, VCPU=1)) is None
    assert hosted.requests == [f"PUT /allocations/{consumer}"]
    record = hosted.allocations.get_allocs_for_consumer(consumer)
    assert record["consumer_type"] == "INSTANCE"
    assert record["project_id"] == "project"


def test_a_candidate_of_placement_is_claimed_with_its_mappings(hosted):
    answer, version = Candidates(hosted.client.placement.connection).get_allocation_candidates(
        [
            ("resources", "VCPU:1"),
            ("in_tree", hosted.root),
            ("resources_GPU", "VGPU:1"),
            ("in_tree_GPU", hosted.root),
            ("group_policy", "none"),
        ]
    )
    assert version == (1, 39)
    assert hosted.root in answer.provider_summaries
    consumer = new_consumer()
    [offered] = answer.allocation_requests
    allocations = {
        uuid: {"resources": held.resources} for uuid, held in offered.allocations.items()
    }
    request = {"allocations": allocations, "mappings": json.loads(bytes(offered.mappings))}
    assert ask(hosted, consumer, request, version) is None
    sent = next(e for e in hosted.transport.exchanges if e.request.method == "PUT")
    assert sent.request.json["mappings"] == request["mappings"]


@pytest.mark.parametrize(("version", "typed"), [("1.28", False), ("1.36", False), ("1.38", True)])
def test_a_claim_is_written_at_the_version_of_its_candidates(hosted, version, typed):
    consumer = new_consumer()
    request = {**asking(hosted.root, VCPU=1), "mappings": {"": [hosted.root]}}
    assert ask(hosted, consumer, request, version) is None
    kind = hosted.allocations.get_allocs_for_consumer(consumer)["consumer_type"]
    assert kind == ("INSTANCE" if typed else "unknown")


def test_a_full_provider_is_no_capacity_naming_provider_and_class(hosted):
    result = ask(hosted, new_consumer(), asking(hosted.root, VCPU=99))
    assert isinstance(result, NoCapacity)
    assert (result.provider, result.resource_class) == (hosted.root, "VCPU")
    assert "exceed the capacity" in result.detail


def test_a_class_that_is_not_there_is_no_capacity(hosted):
    result = ask(hosted, new_consumer(), asking(hosted.root, DISK_GB=1))
    assert isinstance(result, NoCapacity)
    assert result.resource_class == "DISK_GB"


def test_a_refused_claim_raises(hosted):
    with pytest.raises(errors.AllocationUpdateFailed, match="does not exist") as failed:
        ask(hosted, new_consumer(), asking(new_consumer(), VCPU=1))
    assert failed.value.status == 400


def test_claiming_the_same_twice_is_claimed_once(hosted):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
    assert ask(hosted, consumer, asking(hosted.root, VCPU=1)) is None
    assert held_by(hosted.client, consumer) == {hosted.root: {"VCPU": 1}}


def test_a_consumer_that_vanished_between_two_looks_is_claimed_as_new(hosted, other):
    consumer = claim(other, hosted.root, {"VCPU": 1})
    delete = other.placement.allocations.delete_allocation
    before_next(hosted, "GET", consumer, lambda: delete(consumer, force=True))
    assert ask(hosted, consumer, asking(hosted.root, VCPU=2)) is None
    assert held_by(other, consumer) == {hosted.root: {"VCPU": 2}}


def test_adding_sums_per_provider_and_class(hosted, other):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1, "MEMORY_MB": 64})
    gpu = other.get_provider_tree(hosted.root).data(f"{hosted.name}_GPU0").uuid
    request = {
        "allocations": {
            hosted.root: {"resources": {"VCPU": 2}},
            gpu: {"resources": {"VGPU": 1}},
        }
    }
    assert ask(hosted, consumer, request, "1.39", 1, mode="add_to") is None
    assert held_by(other, consumer) == {
        hosted.root: {"VCPU": 3, "MEMORY_MB": 64},
        gpu: {"VGPU": 1},
    }


def test_adding_to_a_consumer_that_changed_is_refused(hosted):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
    with pytest.raises(errors.AllocationUpdateFailed, match="are at generation 1, not 7"):
        ask(hosted, consumer, asking(hosted.root, VCPU=1), "1.39", 7, mode="add_to")


def test_adding_to_a_consumer_that_changes_meanwhile_is_a_conflict(hosted, other):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
    grows_before(hosted, other, "PUT", consumer, consumer)
    with pytest.raises(errors.AllocationUpdateFailed, match="consumer generation conflict"):
        ask(hosted, consumer, asking(hosted.root, VCPU=1), "1.39", 1, mode="add_to")
    assert held_by(other, consumer) == {hosted.root: {"VCPU": 2}}


def test_two_claims_for_the_last_unit_give_it_once(hosted, other):
    claim(other, hosted.root, {"VCPU": 7})
    results = []

    def one() -> None:
        results.append(
            other.placement.allocations.claim_resources(
                new_consumer(), asking(hosted.root, VCPU=1), "p", "u", "1.39"
            )
        )

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(result) is NoCapacity for result in results) == [False, True, True, True]


def test_a_different_claim_of_the_same_consumer_is_told(hosted):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
    with pytest.raises(errors.HoldsAnother, match="release it first"):
        ask(hosted, consumer, asking(hosted.root, VCPU=3))
