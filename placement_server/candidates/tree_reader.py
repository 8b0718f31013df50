"""Whole trees, and whether a client has the present one already."""

from __future__ import annotations

from typing import NamedTuple

from placement_server.candidates.index.follower import IndexFollower
from placement_server.store.allocations import allocations as stored_allocations
from placement_server.store.allocations.allocation_rows import Holder
from placement_server.store.providers.tree import Tree, extend_tag, read_sharing_trees, read_tree
from placement_server.store.store import Store
from placement_server.store.transaction import ReadTransaction


class TreeReading(NamedTuple):
    """A tree at one moment, and what was asked for with it.

    :ivar sharing: the other trees that have a sharing provider in an aggregate of it; `None`: they
        were not asked for.
    :ivar holders: who holds some of it, with all that each holds.
    """

    tree: Tree
    sharing: list[Tree] | None
    holders: list[Holder]

    def tag(self) -> str:
        """Return the tag of the tree and, where asked for, of what others share with it."""
        tag = self.tree.tag
        if self.sharing is None:
            return tag
        # The uuids of sharing providers, each with the tag of the tree that it is in.
        shares = [
            (provider.uuid, other.tag)
            for other in self.sharing
            for provider in other.shared_with(self.tree)
        ]
        return extend_tag(tag, sorted(shares))


class StoredTreeReader:
    """Reads trees from the store, and remembers their tags until they change. Thread safe."""

    def __init__(self, store: Store, follower: IndexFollower) -> None:
        self._store = store
        self._follower = follower

    def tag(self, uuid: str, *, sharing: bool = False) -> str | None:
        """Return the tag of a provider's tree with everything that was committed before this call.

        Nothing but the feed of changes is read. `None` when the tag is not known here.

        :param sharing: that of the tree with its sharing providers.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        roots = self._roots(uuid)
        tag_of = self._follower.tree_tags.get
        own = tag_of(roots.pop(uuid)) if roots else None
        if own is None or not sharing:
            return own
        pairs = [(share, tag) for share, root in roots.items() if (tag := tag_of(root))]
        return extend_tag(own, sorted(pairs)) if len(pairs) == len(roots) else None

    def read(self, uuid: str, *, sharing: bool = False, allocations: bool = False) -> TreeReading:
        """Return the tree of a provider.

        Tags are remembered, unless this process has no index yet, which takes longer to load than
        a few trees take to read.

        :param sharing: with the trees that share something with it.
        :param allocations: with its holders.
        :raises placement_server.store.errors.ProviderNotFound: the provider does not exist.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        tags = self._follower.tree_tags
        roots = set(self._roots(uuid).values()) if self._follower.is_loaded else set()
        begun = {root: tags.begin(root) for root in roots if tags.get(root) is None}
        reading = self._store.read(_read, uuid, sharing=sharing, allocations=allocations)
        for tree in (reading.tree, *(reading.sharing or ())):
            if tree.root_id in begun:
                tags.finish(tree.root_id, begun[tree.root_id], tree.tag)
        return reading

    def _roots(self, uuid: str) -> dict[str, int]:
        """Return the root of a provider, and those of the providers that share with its tree."""
        index = self._follower.index()
        slot = index.slot_of(uuid)
        if slot is None:
            return {}
        root_ids, root_slot = index.columns.provider_id.view(), int(index.root[slot])
        shares = {
            index.columns.uuid[share]: int(root_ids[index.root[share]])
            for share in index.links.to(root_slot)
        }
        return {**shares, uuid: int(root_ids[root_slot])}


def _read(tx: ReadTransaction, uuid: str, *, sharing: bool, allocations: bool) -> TreeReading:
    if allocations:
        tree, holders = stored_allocations.of_tree(tx, uuid)
    else:
        tree, holders = read_tree(tx, uuid), []
    return TreeReading(tree, read_sharing_trees(tx, tree) if sharing else None, holders)
