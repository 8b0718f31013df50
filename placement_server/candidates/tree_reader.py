"""Whole trees, and whether a client has the present one already."""

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.store.providers import tree_rows
from placement_server.store.providers.tree import Tree
from placement_server.store.store import Store


class StoredTreeReader:
    """Reads trees from the store, and remembers their tags until they change. Thread safe."""

    def __init__(self, store: Store, follower: IndexFollower) -> None:
        self._store = store
        self._follower = follower

    def tag(self, uuid: str) -> str | None:
        """Return the tag of a provider's tree with everything that was committed before this call.

        Nothing but the feed of changes is read. `None` when the tag is not known here.

        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        index = self._follower.index()
        root_id = _root_id(index, uuid)
        return None if root_id is None else self._follower.tree_tags.get(root_id)

    def read(self, uuid: str) -> tuple[Tree, str]:
        """Return the tree of a provider, with its tag.

        The tag is remembered, unless this process has no index yet, which takes longer to load than
        a few trees take to read.

        :raises placement_server.store.errors.ProviderNotFound: the provider does not exist.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        root_id = _root_id(self._follower.index(), uuid) if self._follower.is_loaded else None
        if root_id is None:
            tree = self._store.read(tree_rows.read, uuid)
            return tree, tree.tag()
        tags = self._follower.tree_tags
        reading = tags.begin(root_id)
        tree = self._store.read(tree_rows.read, uuid)
        tag = tree.tag()
        if tree.root_id == root_id:
            tags.finish(root_id, reading, tag)
        return tree, tag


def _root_id(index: Index, uuid: str) -> int | None:
    slot = index.slot_of(uuid)
    return None if slot is None else int(index.columns.provider_id.view()[index.root[slot]])
