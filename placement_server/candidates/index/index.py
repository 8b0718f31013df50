"""One state of all provider trees, laid out for array operations, and the writer that makes it.

An `Index` never changes: a search keeps the one it began with while the
`IndexWriter` makes new ones. Both look at the same growing
`Columns`; an index knows up to where, and which
trees are alive in it.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.index.arrays import BoolArray, IntArray, SlotArray
from placement_server.candidates.index.class_columns import ClassView, GrowableArray
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.sharing import NO_LINKS, Links, find_links, links_in_order
from placement_server.candidates.index.tree_shape import in_preorder
from placement_server.candidates.query.filters import AggregateTerms
from placement_server.store.changes.snapshot import (
    InventoryRow,
    NameRows,
    ProviderRow,
    TreeRows,
)
from placement_server.store.providers.tree import SHARING_TRAIT

LOG = logging.getLogger(__name__)

# Fewer dead slots than this are not worth making new columns for.
_TOLERATED_DEAD = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class IndexNames:
    """Resource classes and traits by name and by id.

    :param meanings: stays the same object for as long as every id keeps its name. SQLite gives
        the ids of deleted names to new ones, so a text with names in it is right only together
        with this.
    """

    class_ids: Mapping[str, int]
    trait_ids: Mapping[str, int]
    class_names: Mapping[int, str]
    trait_names: Mapping[int, str]
    meanings: object = dataclasses.field(default_factory=object, compare=False)

    @classmethod
    def of(cls, rows: NameRows) -> "IndexNames":
        """Build both directions from the rows of the store."""
        return cls(
            rows.class_ids,
            rows.trait_ids,
            {number: name for name, number in rows.class_ids.items()},
            {number: name for name, number in rows.trait_ids.items()},
        )

    def followed_by(self, rows: NameRows) -> "IndexNames":
        """Return the names that replace these, with the same meanings if none of them is gone."""
        new_names = IndexNames.of(rows)
        are_kept = (
            self.class_names.items() <= new_names.class_names.items()
            and self.trait_names.items() <= new_names.trait_names.items()
        )
        return dataclasses.replace(new_names, meanings=self.meanings) if are_kept else new_names


class Extent(NamedTuple):
    """The living slots, and the living trees that have more than one of them.

    They are kept up to date with each change: counting all trees again would cost a search over
    many hosts more than all that it does with the change.
    """

    slots: int = 0
    nested_count: int = 0

    def plus(self, columns: Columns, roots: IntArray, sign: int = 1) -> "Extent":
        """Return the extent with some trees, or without them when `sign` is -1."""
        sizes = columns.end.view().take(roots) - roots
        return Extent(
            self.slots + sign * int(sizes.sum()),
            self.nested_count + sign * int(np.count_nonzero(sizes > 1)),
        )


class Index(Struct, eq=False):
    """One consistent state.

    :ivar size: the number of slots that it knows, living and dead.
    :ivar roots: the slots of the living roots, by ascending provider id: the canonical order.
    :ivar extent: how many slots are alive, and how many trees have more than one.
    :ivar use_changes: for each slot of a root, how often the use in its tree has changed.
    :ivar left_out: the ids of the roots whose trees are left out as inconsistent.
    """

    columns: Columns
    names: IndexNames
    size: int
    roots: IntArray
    root_ids: IntArray
    links: Links
    extent: Extent
    use_changes: SlotArray
    left_out: frozenset[int]
    parent: SlotArray
    root: SlotArray
    end: SlotArray
    shape: SlotArray
    trait_set: SlotArray
    aggregate_set: SlotArray
    trait_set_count: int
    aggregate_set_count: int
    classes: dict[int, ClassView]
    _is_root: BoolArray | None = None

    @property
    def has_nested(self) -> bool:
        """Whether any provider has a parent."""
        return self.extent.nested_count > 0

    @property
    def is_flat(self) -> bool:
        """Whether every tree is one provider and none shares with others."""
        return not self.has_nested and not len(self.links.share)

    def with_use(self, used: Mapping[int, IntArray]) -> "Index":
        """Return a copy with another use of some classes, each by inventory."""
        changed = {class_id: self.classes[class_id].with_use(used[class_id]) for class_id in used}
        return replace(self, classes=self.classes | changed)

    def classes_by_name(self) -> dict[str, ClassView]:
        """Return the classes of inventories; one that was deleted has no name, and none is left."""
        names = self.names.class_names
        return {names[number]: view for number, view in self.classes.items() if number in names}

    @property
    def is_root(self) -> BoolArray:
        """For each slot whether it is that of a living root. Made once, and not to be changed."""
        is_root = self._is_root
        if is_root is None:
            is_root = np.zeros(self.size, dtype=bool)
            is_root[self.roots] = True
            self._is_root = is_root
        return is_root

    def root_slot(self, root_id: int) -> int | None:
        """Return the slot of a root by its id, None when it is not alive here."""
        position = int(self.root_ids.searchsorted(root_id))
        if position < len(self.roots) and self.root_ids[position] == root_id:
            return int(self.roots[position])
        return None

    def slot_of(self, uuid: str) -> int | None:
        """Return the slot of a provider in this state, None when it does not exist."""
        ids = self.columns.provider_id.view()
        for slot in reversed(self.columns.slots_of(uuid)):
            if slot < self.size and self.root_slot(ids[self.root[slot]]) == self.root[slot]:
                return slot
        return None

    def with_traits(
        self, terms: tuple[tuple[int, ...], ...], forbidden_ids: tuple[int, ...] = ()
    ) -> BoolArray:
        """Return which slots have a trait of each term and none that is forbidden: read-only."""
        sets, numbers = self.columns.trait_sets, self.trait_set
        return sets.passing_slots(self.trait_set_count, numbers, terms, forbidden_ids)

    def with_aggregates(
        self, terms: AggregateTerms, forbidden_aggregates: frozenset[str] = frozenset()
    ) -> BoolArray:
        """Return which slots are in one of each term and in none that is forbidden: read-only."""
        sets, numbers = self.columns.aggregate_sets, self.aggregate_set
        return sets.passing_slots(self.aggregate_set_count, numbers, terms, forbidden_aggregates)

    def roots_in(self, slots: BoolArray) -> IntArray:
        """Return which of some slots are living roots, in canonical order."""
        passing = slots.take(self.roots)
        if np.count_nonzero(passing) == len(passing):
            return self.roots
        return self.roots.take(passing.nonzero()[0])

    def living_slots(self, slots: IntArray) -> IntArray:
        """Return those of some slots whose trees are alive here."""
        living_slots: IntArray = slots[self.is_root[self.root[slots]]]
        return living_slots

    def tree(self, root_slot: int) -> TreeRows:
        """Return the rows of one tree, rebuilt from the columns."""
        slots = range(root_slot, int(self.end[root_slot]))
        rows = sorted((self._provider(slot) for slot in slots), key=lambda row: row.id)
        return TreeRows(rows[0].root_id, tuple(rows))

    def trees(self) -> Iterable[TreeRows]:
        """Return all trees in the canonical order."""
        return (self.tree(slot) for slot in self.roots.tolist())

    def _provider(self, slot: int) -> ProviderRow:
        ids = self.columns.provider_id.view()
        parent = int(self.parent[slot])
        return ProviderRow(
            id=int(ids[slot]),
            uuid=self.columns.uuid[slot],
            parent_id=int(ids[parent]) if parent >= 0 else None,
            root_id=int(ids[self.root[slot]]),
            inventories=tuple(self.inventories(slot)),
            trait_ids=self.columns.trait_sets.members[self.trait_set[slot]],
            aggregates=self.columns.aggregate_sets.members[self.aggregate_set[slot]],
        )

    def _entries(self, slot: int) -> Iterator[tuple[int, ClassView, int]]:
        columns = self.columns
        start, stop = columns.inventory_start.view()[slot : slot + 2].tolist()
        class_ids = columns.inventory_class.view()[start:stop].tolist()
        rows = columns.inventory_row.view()[start:stop].tolist()
        for class_id, row in zip(class_ids, rows, strict=True):
            yield class_id, self.classes[class_id], row

    def usage(self, slot: int) -> Iterator[tuple[int, float, int]]:
        """Return class id, capacity (before truncation) and usage of each inventory of a slot."""
        for class_id, view, row in self._entries(slot):
            yield class_id, float(view.shown_capacity[row]), int(view.used[row])

    def inventories(self, slot: int) -> Iterator[InventoryRow]:
        """Return the inventories of a slot.

        The columns keep capacity, not what it is computed from: `total` comes back as the
        truncated capacity, with nothing reserved and a ratio of 1.
        """
        for class_id, view, row in self._entries(slot):
            yield InventoryRow(
                resource_class_id=class_id,
                total=int(view.shown_capacity[row]),
                reserved=0,
                min_unit=int(view.min_unit[row]),
                max_unit=int(view.max_unit[row]),
                step_size=int(view.step_size[row]),
                allocation_ratio=1.0,
                capacity=int(view.capacity[row]),
                used=int(view.used[row]),
            )


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
            of_class = columns.classes[class_id]
            of_class.use(by_row)
            arrays = {"used": of_class.used.view(), "fit": of_class.fit.view()}
            classes[class_id] = replace(classes[class_id], **arrays)
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
