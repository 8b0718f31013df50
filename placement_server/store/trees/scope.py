"""The providers that a write of a tree concerns: its own, and those that come from other trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_server.store.trees.tree import TreeProvider
from placement_server.store.trees.tree_write import TreeWrite


@dataclass(frozen=True, slots=True)
class Scope:
    """The providers that may be in the tree when it is written.

    :ivar root_id: of the tree; `None` when it does not exist yet.
    :ivar own: the providers of the tree, by uuid.
    :ivar from_other_trees: those of other trees that the request names, by uuid.
    :ivar providers: all of these and the subtrees that come along, by uuid.
    """

    root_id: int | None
    own: Mapping[str, TreeProvider]
    from_other_trees: Mapping[str, TreeProvider]
    providers: Mapping[str, TreeProvider]

    @classmethod
    def of(cls, write: TreeWrite, providers: Sequence[TreeProvider]) -> Scope:
        """Select from all providers of the trees of those that the request names."""
        root = next((item for item in providers if item.uuid == write.root_uuid), None)
        root_id = root.id if root is not None and root.root_id == root.id else None
        own = {item.uuid: item for item in providers if item.root_id == root_id}
        taken_names = {
            item.uuid: item
            for item in providers
            if item.root_id != root_id and item.uuid in write.providers
        }
        children: dict[int | None, list[TreeProvider]] = {}
        for provider in providers:
            children.setdefault(provider.parent_id, []).append(provider)
        concerned_providers = own | taken_names
        waiting_providers = list(taken_names.values())
        while waiting_providers:
            for child in children.get(waiting_providers.pop().id, ()):
                if child.uuid not in concerned_providers:
                    concerned_providers[child.uuid] = child
                    waiting_providers.append(child)
        return cls(root_id, own, taken_names, concerned_providers)

    @property
    def ids(self) -> list[int]:
        """The ids of the providers, ascending."""
        return sorted(provider.id for provider in self.providers.values())

    @property
    def root_ids(self) -> set[int]:
        """The ids of the roots that the providers have before the write."""
        return {provider.root_id for provider in self.providers.values()}
