"""Sums over an index, for comparison with the store that feeds it."""

from __future__ import annotations

from placement_server.candidates.index.follower import IndexFollower


def total(follower: IndexFollower, name: str) -> int:
    index = follower.index()
    slot = index.slot_of(name)
    assert slot is not None
    return sum(inventory.capacity for inventory in index.inventories(slot))


def trait_count(follower: IndexFollower, name: str) -> int:
    index = follower.index()
    slot = index.slot_of(name)
    assert slot is not None
    tree = index.tree(int(index.root[slot]))
    return sum(len(row.trait_ids) for row in tree.providers if row.uuid == name)
