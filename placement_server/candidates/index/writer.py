"""The writer of the index, which makes one state after another from the rows of changed trees."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.class_columns import GrowableArray
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.index import Extent, Index, IndexNames
from placement_server.candidates.index.sharing import NO_LINKS, Links, find_links, links_in_order
from placement_server.candidates.index.tree_shape import in_preorder
from placement_server.store.changes.snapshot import NameRows, TreeRows
from placement_server.store.providers.tree import SHARING_TRAIT

LOG = logging.getLogger(__name__)

# Fewer dead slots than this are not worth making new columns for.
_TOLERATED_DEAD = 4096


class TreeUse(NamedTuple):
    """Amounts in use of a living tree, for each of its inventories.

    :ivar root: the slot of its root.
    :ivar amounts: by class and row in the class.
    """

    root: int
    amounts: Sequence[tuple[int, int, int]]


class IndexWriter:
    """Builds one index after another from the rows of changed trees. Not thread safe."""

    def __init__(self, names: NameRows, trees: Iterable[TreeRows] = ()) -> None:
        self.index: Index
        self.replace(names, Columns(), np.empty(0, dtype=np.int64))
        self.apply({tree.root_id: tree for tree in trees})

    @classmethod
    def on_copy(cls, index: Index) -> "IndexWriter":
        """Return a writer that goes on from an index and leaves it, and its writer, alone.

        What is not changed is shared with the index.
        """
        writer = cls(NameRows({}, {}))
        writer._names = index.names
        writer._columns = index.columns.copy_to(
            index.size,
            index.classes,
            index.use_changes,
            (index.trait_set_count, index.aggregate_set_count),
        )
        writer._left_out = set(index.left_out)
        writer._publish(index.roots, index.root_ids, index.links, index.extent)
        return writer

    def replace(
        self,
        names: NameRows,
        columns: Columns,
        roots: IntArray,
        left_out: Collection[int] = frozenset(),
    ) -> Index:
        """Start again with columns that hold these trees alone.

        :param roots: the slots of the roots, by ascending provider id.
        :param left_out: the ids of the roots whose trees are left out as inconsistent.
        """
        self._names = IndexNames.of(names)
        self._columns = columns
        self._left_out = set(left_out)
        root_ids = columns.provider_id.view().take(roots)
        extent = Extent().plus(columns, roots)
        return self._publish(roots, root_ids, self._find_links(roots), extent)

    def compact(self) -> tuple[Columns, IntArray]:
        """Return columns with the living trees alone, and the slots of their roots."""
        return self._columns.compact(self.index.roots)

    def rename(self, names: NameRows) -> Index:
        """Replace the names."""
        before = self.index
        self._names = before.names.followed_by(names)
        links = before.links
        if self._names.trait_ids.get(SHARING_TRAIT) != before.names.trait_ids.get(SHARING_TRAIT):
            links = self._find_links(before.roots)
        return self._publish(before.roots, before.root_ids, links, before.extent)

    def place(self, root_id: int, used: Mapping[tuple[int, int], int]) -> TreeUse | None:
        """Find the places of amounts in use, given by the ids of provider and class.

        :returns: what `apply` takes; None where they are not those of a living tree with just
            these inventories.
        """
        root = self.index.root_slot(root_id)
        if root is None:
            return None
        rows = self._columns.inventory_rows(root)
        if rows.keys() != used.keys():
            return None
        return TreeUse(root, [(key[1], row, used[key]) for key, row in rows.items()])

    def apply(
        self, changed_trees: Mapping[int, TreeRows | None], used: Collection[TreeUse] = ()
    ) -> Index:
        """Replace trees by root id; None or a tree without providers removes it.

        :param used: the use of other living trees.
        """
        if used:
            self._change_use(used)
        if changed_trees:
            self._replace_trees(changed_trees)
        return self.index

    def _change_use(self, used: Collection[TreeUse]) -> None:
        before, columns = self.index, self._columns
        use_changes = before.use_changes.copy()
        amounts_by_class: dict[int, dict[int, int]] = {}
        for root, amounts in used:
            use_changes[root] += 1
            for class_id, row, amount in amounts:
                amounts_by_class.setdefault(class_id, {})[row] = amount
        classes = before.classes.copy()
        for class_id, by_row in amounts_by_class.items():
            view = classes[class_id] = classes[class_id].with_amounts(by_row)
            of_class = columns.classes[class_id]
            of_class.used = GrowableArray.after(view.used)
            of_class.fit = GrowableArray.after(view.fit)
        columns.use_changes = GrowableArray.after(use_changes)
        self.index = replace(before, classes=classes, use_changes=use_changes)

    def _replace_trees(self, changed_trees: Mapping[int, TreeRows | None]) -> None:
        before = self.index
        in_order = {
            root_id: in_preorder(tree.root_id, tree.providers)
            for root_id, tree in sorted(changed_trees.items())
            if tree is not None and tree.providers
        }
        present = {root_id: rows for root_id, rows in in_order.items() if rows}
        self._left_out.difference_update(changed_trees)
        self._left_out.update(in_order.keys() - present.keys())
        bases_before = {root_id: before.root_slot(root_id) for root_id in changed_trees}
        old = {root_id: base for root_id, base in bases_before.items() if base is not None}
        new = dict(zip(present, self._columns.append(present.values()), strict=True))
        extent = before.extent.plus(self._columns, _array(old.values()), -1)
        extent = extent.plus(self._columns, _array(new.values()))
        roots, root_ids = self._replace_roots(before, old, new)
        links = self._updated_links(before, old, new, roots)
        index = self._publish(roots, root_ids, links, extent)
        if index.size - extent.slots > max(_TOLERATED_DEAD, extent.slots):
            LOG.debug("Compacting the index: most of its %d slots are dead", index.size)
            self._columns, roots = self.compact()
            self._publish(roots, root_ids, self._find_links(roots), extent)

    def _replace_roots(
        self, before: Index, old: dict[int, int], new: dict[int, int]
    ) -> tuple[IntArray, IntArray]:
        new_ids, new_roots = _array(new.keys()), _array(new.values())
        if old.keys() == new.keys():
            roots = before.roots.copy()
            roots[before.root_ids.searchsorted(new_ids)] = new_roots
            return roots, before.root_ids
        remaining_mask = np.isin(before.root_ids, _array(old.keys()), invert=True)
        ids = np.concatenate((before.root_ids[remaining_mask], new_ids))
        order = np.argsort(ids, kind="stable")
        return np.concatenate((before.roots[remaining_mask], new_roots))[order], ids[order]

    def _updated_links(
        self, before: Index, old: dict[int, int], new: dict[int, int], roots: IntArray
    ) -> Links:
        sharing = self._names.trait_ids.get(SHARING_TRAIT)
        if sharing is None or not self._columns.trait_sets.numbers_with(sharing):
            return NO_LINKS
        new_slots = np.arange(self._columns.size, dtype=np.int64)
        for root_id in old.keys() | new.keys():
            if self._linkage(old.get(root_id)) != self._linkage(new.get(root_id)):
                return self._find_links(roots)
            if root_id in old and root_id in new:
                start, stop = old[root_id], int(before.end[old[root_id]])
                fresh = int(self._columns.end.view()[new[root_id]])
                if fresh - new[root_id] == stop - start:
                    new_slots[start:stop] = np.arange(new[root_id], fresh)
                else:
                    new_slots[start] = new[root_id]
        return links_in_order(new_slots[before.links.share], new_slots[before.links.anchor])

    def _linkage(self, base: int | None) -> Sequence[Any]:
        """Return the part of a tree that decides on links; empty where it has no link."""
        if base is None:
            return ()
        columns = self._columns
        slots = slice(base, int(columns.end.view()[base]))
        aggregates = columns.aggregate_set.view()[slots].tolist()
        if not any(columns.aggregate_sets.members[number] for number in aggregates):
            return ()
        return aggregates, columns.trait_set.view()[slots].tolist()

    def _find_links(self, roots: IntArray) -> Links:
        return find_links(self._columns, roots, self._names.trait_ids.get(SHARING_TRAIT))

    def _publish(self, roots: IntArray, root_ids: IntArray, links: Links, extent: Extent) -> Index:
        columns = self._columns
        columns.use_changes.extend(np.zeros(columns.size - columns.use_changes.size, np.int32))
        self.index = Index(
            columns=columns,
            names=self._names,
            size=columns.size,
            roots=roots,
            root_ids=root_ids,
            links=links,
            extent=extent,
            use_changes=columns.use_changes.view(),
            left_out=frozenset(self._left_out),
            parent=columns.parent.view(),
            root=columns.root.view(),
            end=columns.end.view(),
            shape=columns.shape.view(),
            trait_set=columns.trait_set.view(),
            aggregate_set=columns.aggregate_set.view(),
            trait_set_count=len(columns.trait_sets.members),
            aggregate_set_count=len(columns.aggregate_sets.members),
            classes={number: inventories.view() for number, inventories in columns.classes.items()},
        )
        return self.index


def _array(numbers: Collection[int]) -> IntArray:
    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))
