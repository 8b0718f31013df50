"""One state of all provider trees, laid out for array operations.

An `Index` never changes: a search keeps the one it began with while the `IndexWriter` makes new
ones. Both look at the same growing `Columns`; an index knows up to where, and which trees are alive
in it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.index.arrays import BoolArray, IntArray, SlotArray
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.sharing import Links
from placement_server.candidates.query.filters import AggregateTerms
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows


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
