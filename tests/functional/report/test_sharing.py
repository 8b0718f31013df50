"""Sharing providers reach the tree through aggregates, as lone roots, and are never ours."""

import uuid as uuidlib

import pytest

from compute_agent.provider_tree import SHARING_TRAIT
from tests.functional.report.claims import claim, held_by
from tests.functional.report.gpu_move import flat, reshape
from tests.functional.report.layouts import also, small


@pytest.fixture(params=[False, True], ids=["plain", "whole trees"])
def host(new_host, request):
    made = new_host()
    made.whole_trees = request.param
    return made


def reads_whole_trees(host):
    """Whether its agent gets what others share with the tree itself."""
    return host.client.placement.trees.is_offered


@pytest.fixture
def storage(host, other):
    """A pool below a storage root, shared with the host through an aggregate."""
    root, pool, aggregate = (str(uuidlib.uuid4()) for _ in range(3))
    other.placement.providers.create(root, f"storage-{host.tag}", None)
    other.placement.providers.create(pool, f"storage-{host.tag}-pool", root)
    other.placement.providers.put_inventories(pool, "pool", 0, {"DISK_GB": {"total": 1000}})
    other.change_traits(pool, add=[SHARING_TRAIT])
    other.change_aggregates(pool, add=[aggregate])
    host.report(small(host.name))
    other.change_aggregates(host.root, add=[aggregate])
    host.restart(cache=False)
    return pool


def test_a_sharing_provider_is_in_the_tree_as_a_lone_root(host, storage):
    tree = host.client.get_provider_tree(host.root)
    assert [root.name for root in tree.roots] == [host.name, f"storage-{host.tag}-pool"]
    assert tree.has_sharing_provider("DISK_GB")
    assert tree.data(storage).inventory["DISK_GB"]["total"] == 1000


def test_a_quiet_pass_with_a_sharing_provider_is_one_request(host, storage, other):
    host.report(small(host.name))
    claim(other, storage, {"DISK_GB": 1})
    host.report(small(host.name))
    assert host.tally.requests == 1


def test_a_pool_that_is_gone_leaves_its_name_to_a_provider_of_the_host(host, storage, other):
    name = f"storage-{host.tag}-pool"
    assert host.client.get_provider_tree(host.root).data(name).uuid == storage
    child = str(uuidlib.uuid4())
    other.placement.providers.delete(storage, name)
    other.placement.providers.create(child, name, host.root)
    other.change_traits(child, add=["HW_CPU_X86_AVX"])
    tree = host.client.get_provider_tree(host.root)
    assert tree.data(name).uuid == child
    assert tree.data(child).traits == {"HW_CPU_X86_AVX"}
    assert tree.data(host.root).inventory["VCPU"]["total"] == 8
    assert not tree.exists(storage)


def test_a_refresh_reads_a_sharing_provider_that_moved(host, storage, other, clock):
    host.report(small(host.name))
    held = other.find_provider(storage)
    inventory = {"DISK_GB": {"total": 2000}}
    other.placement.providers.put_inventories(storage, "pool", held.generation, inventory)
    clock.now += 400
    host.report(small(host.name))
    assert host.tally.requests == (1 if reads_whole_trees(host) else 1 + 1 + 3)
    tree = host.client.get_provider_tree(host.root)
    assert tree.data(storage).inventory["DISK_GB"]["total"] == 2000


def test_a_sharing_provider_that_leaves_the_aggregate_leaves_the_tree(host, storage, other, clock):
    host.report(small(host.name))
    held = other.find_provider(storage)
    other.change_aggregates(storage, remove=held.aggregates)
    clock.now += 400
    assert not host.client.get_provider_tree(host.root).exists(storage)


def test_a_sharing_provider_is_never_deleted_even_when_a_driver_drops_it(host, storage, other):
    report = host.report(also(small(host.name), lambda tree: tree.remove(storage)))
    assert [kept.uuid for kept in report.kept_providers] == [storage]
    assert host.writes == []
    assert other.find_provider(storage) is not None


def test_an_aggregate_the_agent_joins_shows_its_sharing_providers_in_the_next_pass(
    host, new_host, storage, other
):
    second = new_host()
    second.report(small(second.name))
    aggregate = next(iter(other.find_provider(storage).aggregates))

    second.report(
        also(small(second.name), lambda tree: tree.add_aggregates(second.name, aggregate))
    )
    assert second.client.get_provider_tree(second.root).exists(storage)


@pytest.mark.parametrize("joins", ["the host", "the pool"])
def test_a_pool_that_comes_to_reach_the_host_is_seen_within_two_passes(host, storage, other, joins):
    aggregate = next(iter(other.find_provider(storage).aggregates))
    mover = host.root if joins == "the host" else storage
    other.change_aggregates(mover, remove=[aggregate])
    other.change_aggregates(host.root, add=[str(uuidlib.uuid4())])
    host.restart(cache=False)
    assert not host.client.get_provider_tree(host.root).exists(storage)
    other.change_aggregates(mover, add=[aggregate])
    seen = [host.client.get_provider_tree(host.root).exists(storage) for _ in range(2)]
    assert seen[0 if reads_whole_trees(host) else 1], seen


@pytest.mark.parametrize("restarted", [False, True], ids=["a reshape", "a start with its cache"])
def test_a_pool_that_joins_is_seen_at_once_by(host, storage, other, restarted):
    aggregate = next(iter(other.find_provider(storage).aggregates))
    other.change_aggregates(storage, remove=[aggregate])
    host.restart(cache=False)
    assert not host.client.get_provider_tree(host.root).exists(storage)
    if restarted:
        host.restart()
    other.change_aggregates(storage, add=[aggregate])
    tree = host.client.get_provider_tree(host.root, fresh=not restarted)
    assert tree.exists(storage)


def test_quiet_passes_ask_for_pools_with_the_tree_or_every_second_time(host, storage):
    requests = []
    host.report(small(host.name))
    for _ in range(4):
        host.report(small(host.name))
        requests.append(host.tally.requests)
    assert sorted(requests) == ([1, 1, 1, 1] if reads_whole_trees(host) else [1, 1, 2, 2])
    assert host.client.get_provider_tree(host.root).exists(storage)


def test_many_aggregates_are_asked_about_in_several_requests(host, other):
    host.restart(max_listed=2, cache=False)
    host.report(small(host.name))
    other.change_aggregates(host.root, add=[str(uuidlib.uuid4()) for _ in range(5)])
    host.restart(max_listed=2, cache=False)
    host.client.get_provider_tree(host.root)
    asked = [r for r in host.requests if "member_of=in:" in r]
    counts = [request.count(",") + 1 for request in asked]
    assert counts == ([] if reads_whole_trees(host) else [2, 2, 1])


def test_a_reshape_leaves_what_a_guest_holds_of_shared_disk_alone(host, storage, other):
    host.report(flat(host.name))
    allocations = {
        host.root: {"resources": {"VCPU": 1, "VGPU": 1}},
        storage: {"resources": {"DISK_GB": 7}},
    }
    guest = str(uuidlib.uuid4())
    other.placement.allocations.claim_resources(
        guest, {"allocations": allocations}, "p", "u", "1.39"
    )
    shared = other.find_provider(storage)
    reshape(host, [guest])
    gpu = other.find_provider_by_name(f"{host.name}_GPU0")
    assert held_by(other, guest) == {
        host.root: {"VCPU": 1},
        gpu.uuid: {"VGPU": 1},
        storage: {"DISK_GB": 7},
    }
    assert other.find_provider(storage).inventory == shared.inventory
    (sent,) = [e.request.json for e in host.transport.exchanges if e.request.path == "/reshaper"]
    assert storage not in sent["inventories"]
