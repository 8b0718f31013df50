"""The growing arrays that hold the provider trees.

A tree occupies consecutive *slots* in preorder, its root first, so the subtree of a slot is the
range ``slot .. end[slot]``:

    slot     0      1       2      3       4      5    | 6      (next tree)
             host   cell0   nic0   cell1   nic1   gpu  | host
    parent   -1     0       1      0       3      0    | -1
    end      6      3       3      5       5      6    | 7
    root     0      0       0      0       0      0    | 6

Slots are only ever appended. A tree that changes, even if only its usage does, gets new slots and
its old ones are dead: only searches that still run on an older
:class:`~placement_server.candidates.index.index.Index` refer to them. So one thread may append
while others search, without a lock and without copies, and whatever is derived from a slot stays
true as long as the slot exists. The writer makes new columns once the dead outnumber the living.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.growable import Growable
from placement_server.candidates.index.set_table import SetTable
from placement_server.candidates.index.tree_shape import TreeShape
from placement_server.store.changes.snapshot import ProviderRow

IntArray = npt.NDArray[np.int64]
SlotArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
Numbers = Sequence[int] | IntArray

UNIT_MAX = 2**31 - 1
CAPACITY_BOUND = 2**62
SLOT_FIELDS = (
    "provider_id", "parent", "root", "end", "shape", "trait_set", "aggregate_set",
)  # fmt: skip
CLASS_FIELDS = (
    "fit", "min_unit", "max_unit", "step_size", "capacity", "shown_capacity", "used",
)  # fmt: skip


class ClassColumns:
    """All inventories of one resource class."""

    def __init__(self) -> None:
        self.slot = Growable(np.int32)
        self.fit = Growable(np.int32)
        self.min_unit = Growable(np.int32)
        self.max_unit = Growable(np.int32)
        self.step_size = Growable(np.int32)
        self.capacity = Growable(np.int64)
        self.shown_capacity = Growable(np.float64)
        self.used = Growable(np.int64)
        self.largest_min_unit = 1
        self.largest_step_size = 1

    @classmethod
    def after(cls, view: "ClassView") -> "ClassColumns":
        """Return columns that begin with the inventories of a view."""
        columns = cls()
        columns.slot = Growable.after(view.slot)
        for name in CLASS_FIELDS:
            setattr(columns, name, Growable.after(getattr(view, name)))
        columns.largest_min_unit = view.largest_min_unit
        columns.largest_step_size = view.largest_step_size
        return columns

    def append_again(self, rows: SlotArray, slots: IntArray, used: IntArray) -> None:
        """Append inventories that are here already, for other slots and with other use."""
        capacity, limit = self.capacity.view()[rows], self.max_unit.view()[rows]
        self.fit.extend(_fit(capacity, limit, used))
        for column in (self.min_unit, self.step_size, self.shown_capacity):
            column.extend(column.view()[rows])
        self.max_unit.extend(limit)
        self.capacity.extend(capacity)
        self.used.extend(used)
        self.slot.extend(slots)

    def compact(self, alive: BoolArray, moved: IntArray) -> "ClassColumns":
        """Return the inventories of living slots alone, under the new slots."""
        living = alive[self.slot.view()]
        fresh = ClassColumns()
        fresh.slot.extend(moved[self.slot.view()[living]])
        for name in CLASS_FIELDS:
            getattr(fresh, name).extend(getattr(self, name).view()[living])
        fresh.largest_min_unit = int(fresh.min_unit.view().max(initial=1))
        fresh.largest_step_size = int(fresh.step_size.view().max(initial=1))
        return fresh

    def view(self) -> "ClassView":
        """Return the inventories appended so far."""
        return ClassView(
            slot=self.slot.view(),
            fit=self.fit.view(),
            min_unit=self.min_unit.view(),
            max_unit=self.max_unit.view(),
            step_size=self.step_size.view(),
            capacity=self.capacity.view(),
            shown_capacity=self.shown_capacity.view(),
            used=self.used.view(),
            largest_min_unit=self.largest_min_unit,
            largest_step_size=self.largest_step_size,
        )


def _fit(capacity: IntArray, max_unit: IntArray, used: IntArray) -> IntArray:
    """Return the largest amounts that may be asked for, -1 where there is overuse."""
    fit: IntArray = np.clip(np.minimum(capacity - used, max_unit), -1, UNIT_MAX)
    return fit


@dataclass(frozen=True, slots=True)
class ClassView:
    """The inventories of one class in one state of the index, by ascending slot.

    :param fit: the largest amount that still fits: min(capacity - used, max_unit), clipped to
        32 bits; negative when over capacity.
    :param shown_capacity: capacity before truncation, as provider summaries show it.
    """

    slot: SlotArray
    fit: npt.NDArray[np.int32]
    min_unit: npt.NDArray[np.int32]
    max_unit: npt.NDArray[np.int32]
    step_size: npt.NDArray[np.int32]
    capacity: IntArray
    shown_capacity: npt.NDArray[np.float64]
    used: IntArray
    largest_min_unit: int
    largest_step_size: int

    def fits(self, amount: int) -> BoolArray:
        """Return for each inventory whether an amount fits."""
        if amount > UNIT_MAX:
            return np.zeros(len(self.slot), dtype=bool)
        fits: BoolArray = self.fit >= amount
        if self.largest_min_unit > 1:
            fits &= self.min_unit <= amount
        if self.largest_step_size > 1:
            fits &= amount % self.step_size == 0
        return fits

    def slots_fitting(self, amount: int) -> SlotArray:
        """Return the slots whose inventory fits an amount, dead ones included."""
        return self.slot.take(np.flatnonzero(self.fits(amount)))

    def mask(self, size: int, inventories: BoolArray | None = None) -> BoolArray:
        """Return which slots have some of these inventories, dead ones included.

        :param size: the number of slots.
        :param inventories: which; all when None.
        """
        mask = np.zeros(size, dtype=bool)
        if not len(self.slot):
            return mask
        first, stop = int(self.slot[0]), int(self.slot[-1]) + 1
        values: BoolArray | bool = True if inventories is None else inventories
        if stop - first == len(self.slot):
            # Every slot between has one, as where all hosts are flat and alike.
            mask[first:stop] = values
        else:
            mask[self.slot] = values
        return mask


@dataclass(slots=True)
class _InventoryBatch:
    slots: list[int]
    rows: list[tuple[int, int, int, int, float, int]]


class Columns:
    """The arrays of all trees, living and dead. Only the index writer appends.

    :param origin: columns of which the first slots are shared, up to ``shared_size``.
    """

    def __init__(self, origin: "Columns | None" = None, shared_size: int = 0) -> None:
        self.origin = origin
        self.shared_size = shared_size
        self.uuid: list[str] = []
        self.provider_id = Growable(np.int64)
        self.parent = Growable(np.int32)
        self.root = Growable(np.int32)
        self.end = Growable(np.int32)
        self.shape = Growable(np.int32)
        self.trait_set = Growable(np.int32)
        self.aggregate_set = Growable(np.int32)
        self.inventory_start = Growable(np.int64)
        self.inventory_start.extend([0])
        self.inventory_class = Growable(np.int32)
        self.inventory_row = Growable(np.int32)
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
        shared = [slot for slot in self.origin.slots_of(uuid) if slot < self.shared_size]
        return shared + slots

    def copy_to(
        self, size: int, classes: Mapping[int, ClassView], sets: tuple[int, int]
    ) -> "Columns":
        """Return columns that begin with the first slots of these, and share them.

        An array is copied only when something is appended to it.

        :param classes: the inventories of these slots.
        :param sets: how many sets of traits and of aggregates there are.
        """
        copy = Columns(self, size)
        copy.uuid = self.uuid[:size]
        for name in SLOT_FIELDS:
            setattr(copy, name, Growable.after(getattr(self, name).view()[:size]))
        copy.inventory_start = Growable.after(self.inventory_start.view()[: size + 1])
        inventories = int(copy.inventory_start.view()[-1])
        copy.inventory_class = Growable.after(self.inventory_class.view()[:inventories])
        copy.inventory_row = Growable.after(self.inventory_row.view()[:inventories])
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
        parents: list[int] = []
        roots: list[int] = []
        ends: list[int] = []
        shapes: list[int] = []
        rows: list[ProviderRow] = []
        slot = self.size
        for tree in trees:
            base = slot
            bases.append(base)
            local = tuple(parent for _row, parent in tree)
            number = self.number_of_shape(local)
            shape = self.shapes[number]
            rows.extend(row for row, _parent in tree)
            parents.extend(base + parent if parent >= 0 else -1 for parent in local)
            ends.extend(base + end for end in shape.ends)
            roots.extend([base] * len(local))
            shapes.extend([number] * len(local))
            slot += len(local)
        self._append_inventories(rows)
        for position, row in enumerate(rows, self.size):
            self._slots_by_uuid.setdefault(row.uuid, []).append(position)
        self.uuid.extend([row.uuid for row in rows])
        self.parent.extend(parents)
        self.root.extend(roots)
        self.end.extend(ends)
        self.shape.extend(shapes)
        self.trait_set.extend([self.trait_sets.intern(row.trait_ids) for row in rows])
        self.aggregate_set.extend([self.aggregate_sets.intern(row.aggregates) for row in rows])
        self.provider_id.extend([row.id for row in rows])
        return bases

    def inventory_keys(self, base: int) -> list[tuple[int, int]]:
        """Return the ids of provider and class of each inventory of a tree, by slot."""
        stop = int(self.end.view()[base])
        starts = self.inventory_start.view()[base : stop + 1]
        ids = np.repeat(self.provider_id.view()[base:stop], np.diff(starts))
        classes = self.inventory_class.view()[starts[0] : starts[-1]]
        return list(zip(ids.tolist(), classes.tolist(), strict=True))

    def append_again(self, base: int, used: Mapping[tuple[int, int], int]) -> int:
        """Append a tree that is here already, with other use, and return the slot of its root.

        :param used: by the ids of provider and class, for each inventory.
        """
        stop, new_base = int(self.end.view()[base]), self.size
        amounts = [used[key] for key in self.inventory_keys(base)]
        self._append_inventories_again(base, stop, np.array(amounts, dtype=np.int64))
        uuids = self.uuid[base:stop]
        for slot, uuid in enumerate(uuids, new_base):
            self._slots_by_uuid.setdefault(uuid, []).append(slot)
        self.uuid.extend(uuids)
        parent = self.parent.view()[base:stop]
        self.parent.extend(np.where(parent >= 0, parent + (new_base - base), -1))
        self.root.extend([new_base] * (stop - base))
        self.end.extend(self.end.view()[base:stop] + (new_base - base))
        for column in (self.shape, self.trait_set, self.aggregate_set, self.provider_id):
            column.extend(column.view()[base:stop])
        return new_base

    def _append_inventories_again(self, base: int, stop: int, used: IntArray) -> None:
        starts = self.inventory_start.view()[base : stop + 1]
        classes = self.inventory_class.view()[starts[0] : starts[-1]]
        rows = self.inventory_row.view()[starts[0] : starts[-1]]
        slots = np.repeat(np.arange(self.size, self.size + stop - base), np.diff(starts))
        new_rows = np.empty_like(rows)
        for class_id in set(classes.tolist()):
            of_class = np.flatnonzero(classes == class_id)
            columns = self.classes[class_id]
            new_rows[of_class] = np.arange(columns.slot.size, columns.slot.size + len(of_class))
            columns.append_again(rows[of_class], slots[of_class], used[of_class])
        self.inventory_start.extend(starts[1:] + (self.inventory_class.size - starts[0]))
        self.inventory_class.extend(classes)
        self.inventory_row.extend(new_rows)

    def living(self, roots: IntArray) -> BoolArray:
        """Return for each slot whether it is in one of some trees."""
        edges = np.zeros(self.size + 1, dtype=np.int8)
        edges[roots] += 1
        edges[self.end.view()[roots]] -= 1
        living: BoolArray = np.cumsum(edges, dtype=np.int8)[: self.size] > 0
        return living

    def compact(self, roots: IntArray) -> "tuple[Columns, IntArray]":
        """Return columns with these trees and what they use alone, and their roots' slots there."""
        end = self.end.view()
        alive = self.living(roots)
        moved = np.cumsum(alive) - 1
        slots = np.flatnonzero(alive)
        fresh = Columns()
        fresh.name_slots([self.uuid[slot] for slot in slots.tolist()])
        fresh.provider_id.extend(self.provider_id.view()[slots])
        parent = self.parent.view()[slots]
        fresh.parent.extend(np.where(parent >= 0, moved[parent], -1))
        fresh.root.extend(moved[self.root.view()[slots]])
        fresh.end.extend(moved[end[slots] - 1] + 1)
        used, shape = np.unique(self.shape.view()[slots], return_inverse=True)
        fresh.name_shapes([self.shapes[number].parents for number in used.tolist()])
        fresh.shape.extend(shape)
        fresh.trait_sets, numbers = self.trait_sets.subset(self.trait_set.view()[slots])
        fresh.trait_set.extend(numbers)
        fresh.aggregate_sets, numbers = self.aggregate_sets.subset(self.aggregate_set.view()[slots])
        fresh.aggregate_set.extend(numbers)
        self._copy_inventories(fresh, alive, moved)
        return fresh, moved[roots]

    def _copy_inventories(self, fresh: "Columns", alive: BoolArray, moved: IntArray) -> None:
        counts = np.diff(self.inventory_start.view())
        living = np.repeat(alive, counts)
        class_ids = self.inventory_class.view()[living]
        rows = self.inventory_row.view()[living]
        fresh.inventory_start.extend(np.cumsum(counts[alive]))
        fresh.inventory_class.extend(class_ids)
        for class_id, columns in self.classes.items():
            of_class = class_ids == class_id
            if not of_class.any():
                continue
            # An inventory's row within its class moves up by the dead rows before it.
            row_moved = np.cumsum(alive[columns.slot.view()]) - 1
            rows[of_class] = row_moved[rows[of_class]]
            fresh.classes[class_id] = columns.compact(alive, moved)
        fresh.inventory_row.extend(rows)

    def name_slots(self, uuids: list[str]) -> None:
        """Set the uuids of all slots, of which none is dead."""
        self.uuid = uuids
        self._slots_by_uuid = {uuid: [slot] for slot, uuid in enumerate(uuids)}

    def name_shapes(self, shapes: Iterable[tuple[int, ...]]) -> None:
        """Set all shapes, each by its parents."""
        for parents in shapes:
            self.number_of_shape(parents)

    def number_of_shape(self, parents: tuple[int, ...]) -> int:
        """Return the number of a shape, a new one if no tree has it yet."""
        number = self._shape_number.get(parents)
        if number is None:
            number = len(self.shapes)
            self.shapes.append(TreeShape(parents))
            self._shape_number[parents] = number
        return number

    def _append_inventories(self, rows: Sequence[ProviderRow]) -> None:
        batches: dict[int, _InventoryBatch] = {}
        starts: list[int] = []
        classes: list[int] = []
        class_rows: list[int] = []
        total = self.inventory_class.size
        for slot, row in enumerate(rows, self.size):
            for inventory in row.inventories:
                class_id = inventory.resource_class_id
                batch = batches.get(class_id)
                if batch is None:
                    batch = batches[class_id] = _InventoryBatch([], [])
                    if class_id not in self.classes:
                        self.classes[class_id] = ClassColumns()
                classes.append(class_id)
                class_rows.append(self.classes[class_id].slot.size + len(batch.slots))
                batch.slots.append(slot)
                batch.rows.append(
                    (
                        inventory.min_unit,
                        inventory.max_unit,
                        inventory.step_size,
                        max(-CAPACITY_BOUND, min(inventory.capacity, CAPACITY_BOUND)),
                        (inventory.total - inventory.reserved) * inventory.allocation_ratio,
                        inventory.used,
                    )
                )
            total += len(row.inventories)
            starts.append(total)
        self.inventory_class.extend(classes)
        self.inventory_row.extend(class_rows)
        self.inventory_start.extend(starts)
        for class_id, batch in batches.items():
            self.extend_class(class_id, batch.slots, *zip(*batch.rows, strict=True))

    def extend_class(
        self,
        class_id: int,
        slots: Numbers,
        min_unit: Numbers,
        max_unit: Numbers,
        step_size: Numbers,
        capacity: Numbers,
        shown: Sequence[float] | npt.NDArray[np.float64],
        used: Numbers,
    ) -> None:
        """Append inventories of one class, by ascending slot.

        :param capacity: within the bound.
        """
        columns = self.classes.setdefault(class_id, ClassColumns())
        columns.largest_min_unit = max(columns.largest_min_unit, int(np.max(min_unit)))
        columns.largest_step_size = max(columns.largest_step_size, int(np.max(step_size)))
        numbers = (np.array(values, dtype=np.int64) for values in (capacity, max_unit, used))
        columns.fit.extend(_fit(*numbers))
        columns.min_unit.extend(min_unit)
        columns.max_unit.extend(max_unit)
        columns.step_size.extend(step_size)
        columns.capacity.extend(capacity)
        columns.shown_capacity.extend(shown)
        columns.used.extend(used)
        columns.slot.extend(slots)
