"""The growing arrays that hold the provider trees.

A tree occupies consecutive *slots* in preorder, its root first, so the subtree of a slot is the
range `slot .. end[slot]`:

    slot     0      1       2      3       4      5    | 6      (next tree)
             host   cell0   nic0   cell1   nic1   gpu  | host
    parent   -1     0       1      0       3      0    | -1
    end      6      3       3      5       5      6    | 7
    root     0      0       0      0       0      0    | 6

Slots are only ever appended. A tree that changes gets new slots and its old ones are dead: only
searches that still run on an older `Index` refer to them. So one thread may append while others
search, without a lock and without copies, and what is derived from a slot stays true as long as the
slot exists. The writer makes new columns once the dead outnumber the living.

Only use changes in its slot: then the two columns that say how much is used and how much fits are
copied, of the classes concerned. So what is derived from use stays true for one `Index` alone; it
counts for each tree how often its use has changed.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from placement_server.candidates.index.arrays import (
    CAPACITY_BOUND,
    BoolArray,
    IntArray,
    SlotArray,
)
from placement_server.candidates.index.class_columns import (
    ClassColumns,
    ClassView,
    GrowableArray,
)
from placement_server.candidates.index.set_table import SetTable
from placement_server.candidates.index.tree_shape import TreeShape
from placement_server.store.changes.snapshot import ProviderRow

SLOT_FIELDS = (
    "provider_id", "parent", "root", "end", "shape", "trait_set", "aggregate_set",
)  # fmt: skip


class Columns:
    """The arrays of all trees, living and dead. Only the index writer appends.

    :param origin: columns of which the first slots are shared, up to `shared_size`.
    """

    def __init__(self, origin: "Columns | None" = None, shared_size: int = 0) -> None:
        self.origin = origin
        self.shared_size = shared_size
        self.uuid: list[str] = []
        self.provider_id = GrowableArray(np.int64)
        self.parent = GrowableArray(np.int32)
        self.root = GrowableArray(np.int32)
        self.end = GrowableArray(np.int32)
        self.shape = GrowableArray(np.int32)
        self.trait_set = GrowableArray(np.int32)
        self.aggregate_set = GrowableArray(np.int32)
        # how often the use of the tree of a root has changed; it follows the other columns
        self.use_changes = GrowableArray(np.int32)
        self.inventory_start = GrowableArray(np.int64)
        self.inventory_start.extend([0])
        self.inventory_class = GrowableArray(np.int32)
        self.inventory_row = GrowableArray(np.int32)
        self.classes: dict[int, ClassColumns] = {}
        self.trait_sets = SetTable()
        self.aggregate_sets = SetTable()
        self.shapes: list[TreeShape] = []
        self._shape_number: dict[tuple[int, ...], int] = {}
        self._slots_by_uuid: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """The number of slots, living and dead."""
        return self.provider_id.size

    def slots_of(self, uuid: str) -> Sequence[int]:
        """Return the slots that a provider has had, ascending."""
        slots = self._slots_by_uuid.get(uuid, [])
        if self.origin is None:
            return slots
        # The writer of the origin goes on beyond what is shared.
        shared_slots = [slot for slot in self.origin.slots_of(uuid) if slot < self.shared_size]
        return shared_slots + slots

    def copy_to(
        self,
        size: int,
        classes: Mapping[int, ClassView],
        use_changes: SlotArray,
        sets: tuple[int, int],
    ) -> "Columns":
        """Return columns that begin with the first slots of these, and share them.

        An array is copied only when something is appended to it.

        :param classes: the inventories of these slots.
        :param use_changes: of these slots.
        :param sets: how many sets of traits and of aggregates there are.
        """
        copy = Columns(self, size)
        copy.uuid = self.uuid[:size]
        for name in SLOT_FIELDS:
            setattr(copy, name, GrowableArray.after(getattr(self, name).view()[:size]))
        starts = self.inventory_start.view()[: size + 1]
        copy.inventory_start = GrowableArray.after(starts)
        copy.inventory_class = GrowableArray.after(self.inventory_class.view()[: starts[-1]])
        copy.inventory_row = GrowableArray.after(self.inventory_row.view()[: starts[-1]])
        copy.use_changes = GrowableArray.after(use_changes)
        copy.classes = {number: ClassColumns.after(view) for number, view in classes.items()}
        copy.trait_sets = SetTable(self.trait_sets, sets[0])
        copy.aggregate_sets = SetTable(self.aggregate_sets, sets[1])
        # Every number among the shapes is there before it is among the numbers.
        copy._shape_number = self._shape_number.copy()
        copy.shapes = self.shapes.copy()
        return copy

    def append(self, trees: Iterable[Sequence[tuple[ProviderRow, int]]]) -> list[int]:
        """Append trees and return the slot of each root.

        :param trees: per tree, its providers in preorder with the position of the parent within
            the tree (-1 for the root).
        """
        bases: list[int] = []
        structure: list[tuple[int, int, int, int]] = []
        rows: list[ProviderRow] = []
        for tree in trees:
            base = self.size + len(rows)
            bases.append(base)
            local = tuple(parent for _row, parent in tree)
            number = self.number_of_shape(local)
            for (row, parent), end in zip(tree, self.shapes[number].ends, strict=True):
                rows.append(row)
                above = base + parent if parent >= 0 else -1
                structure.append((above, base, base + end, number))
        self._append_inventories(rows)
        for position, row in enumerate(rows, self.size):
            self._slots_by_uuid.setdefault(row.uuid, []).append(position)
        self.uuid.extend([row.uuid for row in rows])
        columns = self.parent, self.root, self.end, self.shape
        for column, values in zip(columns, zip(*structure, strict=True), strict=False):
            column.extend(values)
        self.trait_set.extend([self.trait_sets.intern(row.trait_ids) for row in rows])
        self.aggregate_set.extend([self.aggregate_sets.intern(row.aggregates) for row in rows])
        self.provider_id.extend([row.id for row in rows])
        return bases

    def inventory_rows(self, base: int) -> dict[tuple[int, int], int]:
        """Return the rows of the inventories of a tree, by the ids of provider and class."""
        stop = int(self.end.view()[base])
        starts: list[int] = self.inventory_start.view()[base : stop + 1].tolist()
        ids: list[int] = self.provider_id.view()[base:stop].tolist()
        inventories = slice(starts[0], starts[-1])
        classes: list[int] = self.inventory_class.view()[inventories].tolist()
        rows: list[int] = self.inventory_row.view()[inventories].tolist()
        return {
            (provider_id, classes[number]): rows[number]
            for provider_id, first, last in zip(ids, starts, starts[1:], strict=False)
            for number in range(first - starts[0], last - starts[0])
        }

    def living_mask(self, roots: IntArray) -> BoolArray:
        """Return for each slot whether it is in one of some trees."""
        edges = np.zeros(self.size + 1, dtype=np.int8)
        edges[roots] += 1
        edges[self.end.view()[roots]] -= 1
        mask: BoolArray = np.cumsum(edges, dtype=np.int8)[: self.size] > 0
        return mask

    def compact(self, roots: IntArray) -> "tuple[Columns, IntArray]":
        """Return columns with these trees and what they use alone, and their roots' slots there."""
        end = self.end.view()
        alive = self.living_mask(roots)
        new_slots = np.cumsum(alive) - 1
        slots = np.flatnonzero(alive)
        fresh = Columns()
        fresh.name_slots([self.uuid[slot] for slot in slots.tolist()])
        fresh.provider_id.extend(self.provider_id.view()[slots])
        parent = self.parent.view()[slots]
        fresh.parent.extend(np.where(parent >= 0, new_slots[parent], -1))
        fresh.root.extend(new_slots[self.root.view()[slots]])
        fresh.end.extend(new_slots[end[slots] - 1] + 1)
        used_shapes, shape = np.unique(self.shape.view()[slots], return_inverse=True)
        for number in used_shapes.tolist():
            fresh.number_of_shape(self.shapes[number].parents)
        fresh.shape.extend(shape)
        fresh.trait_sets, numbers = self.trait_sets.subset(self.trait_set.view()[slots])
        fresh.trait_set.extend(numbers)
        fresh.aggregate_sets, numbers = self.aggregate_sets.subset(self.aggregate_set.view()[slots])
        fresh.aggregate_set.extend(numbers)
        counts = np.diff(self.inventory_start.view())
        is_living = np.repeat(alive, counts)
        class_ids = self.inventory_class.view()[is_living]
        rows = self.inventory_row.view()[is_living]
        fresh.inventory_start.extend(np.cumsum(counts[alive]))
        fresh.inventory_class.extend(class_ids)
        for class_id, columns in self.classes.items():
            of_class = class_ids == class_id
            if not of_class.any():
                continue
            # An inventory's row within its class moves up by the dead rows before it.
            row_moved = np.cumsum(alive[columns.slot.view()]) - 1
            rows[of_class] = row_moved[rows[of_class]]
            fresh.classes[class_id] = columns.compact(alive, new_slots)
        fresh.inventory_row.extend(rows)
        return fresh, new_slots[roots]

    def name_slots(self, uuids: list[str]) -> None:
        """Set the uuids of all slots, of which none is dead."""
        self.uuid = uuids
        self._slots_by_uuid = {uuid: [slot] for slot, uuid in enumerate(uuids)}

    def number_of_shape(self, parents: tuple[int, ...]) -> int:
        """Return the number of a shape, a new one if no tree has it yet."""
        number = self._shape_number.get(parents)
        if number is None:
            number = len(self.shapes)
            self.shapes.append(TreeShape(parents))
            self._shape_number[parents] = number
        return number

    def _append_inventories(self, rows: Sequence[ProviderRow]) -> None:
        by_class: dict[int, list[tuple[int, int, int, int, int, float, int]]] = {}
        starts: list[int] = []
        classes: list[int] = []
        class_rows: list[int] = []
        for slot, row in enumerate(rows, self.size):
            for inventory in row.inventories:
                class_id = inventory.resource_class_id
                of_class = by_class.setdefault(class_id, [])
                classes.append(class_id)
                columns = self.classes.setdefault(class_id, ClassColumns())
                class_rows.append(columns.slot.size + len(of_class))
                of_class.append(
                    (
                        slot,
                        inventory.min_unit,
                        inventory.max_unit,
                        inventory.step_size,
                        max(-CAPACITY_BOUND, min(inventory.capacity, CAPACITY_BOUND)),
                        (inventory.total - inventory.reserved) * inventory.allocation_ratio,
                        inventory.used,
                    )
                )
            starts.append(self.inventory_class.size + len(classes))
        self.inventory_class.extend(classes)
        self.inventory_row.extend(class_rows)
        self.inventory_start.extend(starts)
        for class_id, of_class in by_class.items():
            self.classes[class_id].append(*zip(*of_class, strict=True))
