"""Supposed changes: what they hold is counted, and an index without changes is not copied."""

import gc
import tracemalloc
import uuid
from collections.abc import Sequence

import numpy as np
import pytest

from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account
from placement_server.candidates.what_if import (
    AddTree,
    RemoveTree,
    SupposedAllocation,
    SupposedInventory,
    SupposedTraits,
    SupposedTrees,
    Supposition,
)
from placement_server.store.records import InventoryRecord

from .forest import Provider, writer_of

HOSTS = [str(uuid.UUID(int=number)) for number in range(1, 3001)]
# What is counted is at least what tracemalloc sees, and at most so many times it.
MOST_TIMES = 5.0
CONSTANT = 300_000


@pytest.fixture(scope="module")
def fleet() -> Index:
    """Hosts that no test changes: changes are made to copies."""
    stock = {"VCPU": 64, "MEMORY_MB": 4096, "DISK_GB": 100}
    world = [Provider(host, inventory=stock, traits=("CUSTOM_A",)) for host in HOSTS]
    return writer_of([*world, Provider("gpus", inventory={"VGPU": 8})]).index


def supposed(index: Index, changes: Sequence[Supposition], account: Account) -> Index:
    trees = SupposedTrees(index, {}, account)
    trees.make_all(changes, lambda: None)
    return trees.index()


CHANGES: dict[str, list[Supposition]] = {
    "one host": [SupposedInventory(HOSTS[7], "VCPU", InventoryRecord(total=1))],
    "all hosts": [SupposedTraits(host, ()) for host in HOSTS],
    "claims on all hosts": [SupposedAllocation({host: {"VCPU": 1}}) for host in HOSTS],
    "many new hosts": [AddTree(HOSTS[0], 9000)],
    "hosts gone": [RemoveTree(host) for host in HOSTS[::2]],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_copy_holds_is_counted(fleet: Index, name: str) -> None:
    index, account = fleet, Account()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        trees = SupposedTrees(index, {}, account)
        trees.make_all(CHANGES[name], lambda: None)
        copy = trees.index()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert copy is not index
    assert held - CONSTANT <= account.held_bytes <= MOST_TIMES * held + CONSTANT


def test_without_changes_there_is_no_copy(fleet: Index) -> None:
    index, account = fleet, Account()
    assert supposed(index, [], account) is index
    assert account.held_bytes == 0


def test_a_changed_host_has_new_slots_and_what_it_lacks_is_shared(fleet: Index) -> None:
    index = fleet
    copy = supposed(index, CHANGES["one host"], Account())
    slots = {host: (index.slot_of(host), copy.slot_of(host)) for host in HOSTS}
    assert {host for host, (old, new) in slots.items() if old != new} == {HOSTS[7]}
    shared = {
        name
        for name, number in index.names.class_ids.items()
        if number in index.classes
        and np.shares_memory(index.classes[number].fit, copy.classes[number].fit)
    }
    assert shared == {"VGPU"}
