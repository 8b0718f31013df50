"""Allocations that are changed, moved and removed."""

import uuid as uuidlib
from contextlib import nullcontext

import pytest

from compute_agent import errors
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.responses import NoCapacity
from tests.functional.report.claims import ask, asking, claim, grows_before, held_by, new_consumer
from tests.functional.report.failing_answers import lost_after
from tests.functional.report.layouts import small


def test_resources_are_added_and_removed(hosted):
    client, allocations = hosted.client, hosted.allocations
    consumer = claim(client, hosted.root, {"VCPU": 2})
    allocations.add_resources(consumer, {hosted.root: {"VCPU": 1, "MEMORY_MB": 64}})
    assert held_by(client, consumer) == {hosted.root: {"VCPU": 3, "MEMORY_MB": 64}}
    allocations.remove_resources(consumer, {hosted.root: {"VCPU": 1, "MEMORY_MB": 64}})
    assert held_by(client, consumer) == {hosted.root: {"VCPU": 2}}
    with pytest.raises(errors.AllocationUpdateFailed, match="it holds 2 there"):
        allocations.remove_resources(consumer, {hosted.root: {"VCPU": 3}})
    with pytest.raises(errors.AllocationUpdateFailed, match="it holds 0 there"):
        allocations.remove_resources(consumer, {new_consumer(): {"VCPU": 1}})
    with pytest.raises(errors.AllocationUpdateFailed, match="it holds nothing"):
        allocations.add_resources(new_consumer(), {hosted.root: {"VCPU": 1}})


def test_more_than_there_is_cannot_be_added(hosted):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 2})
    with pytest.raises(errors.AllocationUpdateFailed, match="exceed the capacity"):
        hosted.allocations.add_resources(consumer, {hosted.root: {"VCPU": 99}})


def test_a_record_is_written_as_it_was_read(hosted):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 2})
    record = hosted.allocations.get_allocs_for_consumer(consumer)
    record["allocations"][hosted.root]["resources"]["VCPU"] = 1
    assert hosted.allocations.put_allocations(consumer, record) is None
    assert held_by(hosted.client, consumer) == {hosted.root: {"VCPU": 1}}
    with pytest.raises(errors.AllocationUpdateFailed, match="consumer generation conflict"):
        hosted.allocations.put_allocations(consumer, record)
    record = hosted.allocations.get_allocs_for_consumer(consumer)
    record["allocations"][hosted.root]["resources"]["VCPU"] = 99
    assert isinstance(hosted.allocations.put_allocations(consumer, record), NoCapacity)


def test_a_move_gives_everything_to_the_target(hosted):
    source = claim(hosted.client, hosted.root, {"VCPU": 2})
    target = new_consumer()
    hosted.transport.clear()
    assert hosted.allocations.move_allocations(source, target)
    assert len(hosted.requests) == 3
    assert held_by(hosted.client, source) == {}
    assert held_by(hosted.client, target) == {hosted.root: {"VCPU": 2}}
    assert hosted.allocations.get_allocs_for_consumer(target)["consumer_type"] == "INSTANCE"
    assert hosted.allocations.move_allocations(source, target)


def test_a_move_back_replaces_what_the_target_holds(hosted, new_host):
    destination = new_host()
    destination.report(small(destination.name))
    migration = claim(hosted.client, hosted.root, {"VCPU": 2})
    instance = claim(hosted.client, destination.root, {"VCPU": 2})
    assert hosted.allocations.move_allocations(migration, instance)
    assert held_by(hosted.client, instance) == {hosted.root: {"VCPU": 2}}


def wanting(client, consumer: str, provider: str, **resources: int) -> dict:
    """What a consumer is to hold instead of what it holds now."""
    record = client.placement.allocations.get_allocs_for_consumer(consumer)
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    return {**owner, **record, "allocations": {provider: {"resources": resources}}}


def test_a_write_of_several_consumers_whose_answer_was_lost_is_recognised(hosted):
    old, new = claim(hosted.client, hosted.root, {"VCPU": 2}), new_consumer()
    leaving = claim(hosted.client, hosted.root, {"VCPU": 1})
    wanted = {
        old: wanting(hosted.client, old, hosted.root, VCPU=3),
        new: wanting(hosted.client, new, hosted.root, VCPU=1),
        leaving: {**wanting(hosted.client, leaving, hosted.root), "allocations": {}},
    }
    lost_after(hosted, "POST", "/allocations")
    assert hosted.allocations.write(wanted) is None
    assert len([r for r in hosted.requests if r == "POST /allocations"]) == 1
    assert held_by(hosted.client, old) == {hosted.root: {"VCPU": 3}}


def test_what_others_wrote_meanwhile_is_not_taken_for_our_own_write(hosted, other):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 2})
    wanted = {consumer: wanting(hosted.client, consumer, hosted.root, VCPU=3)}
    for amount in (2, -1):
        more = {hosted.root: {"VCPU": abs(amount)}}
        change = "add_resources" if amount > 0 else "remove_resources"
        getattr(other.placement.allocations, change)(consumer, more)
    with pytest.raises(errors.AllocationMoveFailed, match="consumer generation conflict"):
        hosted.allocations.write(wanted)


def test_moving_nothing_to_nobody_is_an_error(hosted):
    with pytest.raises(errors.AllocationMoveFailed, match="neither of them holds anything"):
        hosted.allocations.move_allocations(new_consumer(), new_consumer())


def test_a_move_of_a_consumer_that_changes_meanwhile_is_a_conflict(hosted, other):
    source = claim(hosted.client, hosted.root, {"VCPU": 2})
    grows_before(hosted, other, "POST", "/allocations", source)
    with pytest.raises(errors.AllocationMoveFailed, match="consumer generation conflict"):
        hosted.allocations.move_allocations(source, new_consumer())
    assert held_by(other, source) == {hosted.root: {"VCPU": 3}}


def test_a_consumer_without_a_type_moves_without_one(hosted):
    source = new_consumer()
    ask(hosted, source, asking(hosted.root, VCPU=1), "1.36")
    target = new_consumer()
    assert hosted.allocations.move_allocations(source, target)
    assert hosted.allocations.get_allocs_for_consumer(target)["consumer_type"] == "unknown"


def test_deleting_tells_whether_there_was_anything(hosted):
    for force in (False, True):
        consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
        assert hosted.allocations.delete_allocation(consumer, force=force) is True
        assert hosted.allocations.delete_allocation(consumer, force=force) is False


def test_deleting_a_consumer_that_changes_meanwhile_is_a_conflict(hosted, other):
    consumer = claim(hosted.client, hosted.root, {"VCPU": 1})
    grows_before(hosted, other, "PUT", consumer, consumer)
    with pytest.raises(errors.AllocationDeleteFailed, match="consumer generation conflict"):
        hosted.allocations.delete_allocation(consumer)


def test_a_dead_source_of_an_evacuation_loses_only_its_own_tree(hosted, new_host, other):
    source = new_host()
    source.report(small(source.name))
    gpu = other.get_provider_tree(source.root).data(f"{source.name}_GPU0").uuid
    consumer = new_consumer()
    request = {
        "allocations": {
            source.root: {"resources": {"VCPU": 1}},
            gpu: {"resources": {"VGPU": 1}},
            hosted.root: {"resources": {"VCPU": 1}},
        }
    }
    ask(hosted, consumer, request)
    hosted.allocations.remove_provider_tree(consumer, source.root)
    assert held_by(other, consumer) == {hosted.root: {"VCPU": 1}}
    hosted.transport.clear()
    hosted.allocations.remove_provider_tree(consumer, source.root)
    assert hosted.writes == []


@pytest.mark.parametrize("whole_trees", [False, True], ids=["plain", "whole trees"])
def test_consumers_are_read_once_in_a_pass_and_are_never_those_of_an_earlier_one(
    new_host, other, whole_trees
):
    host = new_host()
    host.whole_trees = whole_trees
    host.report(small(host.name))
    client, consumers = host.client, set()
    for in_pass in (nullcontext, client.tracing):
        child = str(uuidlib.uuid4())
        other.placement.providers.create(child, f"{host.name}_{child}", host.root)
        other.placement.providers.put_inventories(child, "a child", 0, {"VCPU": {"total": 2}})
        consumers.add(claim(other, child, {"VCPU": 1}))
        with in_pass():
            assert client.get_allocations_for_provider_tree(host.root).keys() == consumers
    for fresh in (False, True):
        with client.tracing():
            client.get_provider_tree(host.root, fresh=fresh)
            host.transport.clear()
            client.get_allocations_for_provider_tree(host.root)
            one_by_one = 4 + len(consumers)
            is_whole = client.placement.trees.is_offered
            assert len(host.requests) == ((not fresh) if is_whole else one_by_one)


def test_a_tree_is_deleted_leaf_first_and_only_cascading_takes_allocations(hosted, other):
    gpu = other.get_provider_tree(hosted.root).data(f"{hosted.name}_GPU0").uuid
    consumer = claim(other, gpu, {"VGPU": 1})
    with pytest.raises(errors.ResourceProviderInUse):
        hosted.client.delete_resource_provider(hosted.root)
    hosted.client.delete_resource_provider(hosted.root, cascade=True)
    assert other.find_provider(hosted.root) is hosted.client.known_tree(hosted.root) is None
    assert held_by(other, consumer) == {}
    hosted.client.delete_resource_provider(hosted.root)


def test_usage_is_read_by_type(hosted):
    project = new_consumer()
    hosted.allocations.claim_resources(
        new_consumer(), asking(hosted.root, VCPU=2), project, "u", "1.39"
    )
    assert Candidates(hosted.client.placement.connection).get_usages(project) == {
        "INSTANCE": {"consumer_count": 1, "VCPU": 2}
    }
    assert Candidates(hosted.client.placement.connection).get_usages(project, "somebody") == {}


def test_a_refused_question_about_candidates_is_not_an_empty_answer(hosted):
    with pytest.raises(errors.AllocationCandidateRetrievalFailed, match="NO_SUCH"):
        Candidates(hosted.client.placement.connection).get_allocation_candidates(
            [("resources", "NO_SUCH:1")]
        )
    answer, _ = Candidates(hosted.client.placement.connection).get_allocation_candidates(
        [("resources", "VCPU:999"), ("in_tree", hosted.root)]
    )
    assert answer.allocation_requests == []


def test_type_and_age_of_a_consumer_are_told_where_placement_tells_them(hosted):
    consumer = new_consumer()
    ask(hosted, consumer, asking(hosted.root, VCPU=1), consumer_type="MIGRATION")
    nature = hosted.allocations.read_consumer(consumer)[1]
    assert nature.type == "MIGRATION"
    assert nature.age is not None
    assert 0 <= nature.age < 3600
