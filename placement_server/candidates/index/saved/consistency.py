"""Consistency of the columns of a saved index: every number in them refers to something."""

import numpy as np

from placement_server.candidates.index.arrays import CAPACITY_BOUND, IntArray
from placement_server.candidates.index.class_columns import CLASS_FIELDS
from placement_server.candidates.index.columns import SLOT_FIELDS, Columns


def require_consistency(columns: Columns, roots: IntArray) -> None:
    """Check what searches rely on, so that none of them fails later or finds something else.

    :param roots: the slots of the roots, by ascending provider id.
    :raises ValueError: names what does not fit.
    """
    for what, check in (
        # in this order: a later one relies on those before it
        ("columns of providers", _slots_fit),
        ("sets and shapes", _sets_fit),
        ("trees", _trees_fit),
        ("inventories", _inventories_fit),
        ("amounts", _amounts_fit),
    ):
        if not check(columns):
            raise ValueError(f"the {what} are not those of one index")
    if not _roots_fit(columns, roots):
        raise ValueError("the roots are not those of its trees")


def _slots_fit(columns: Columns) -> bool:
    if {getattr(columns, name).size for name in SLOT_FIELDS} != {len(columns.uuid)}:
        return False
    ids = np.sort(columns.provider_id.view())
    if np.any(ids < 1) or np.any(np.diff(ids) == 0) or len(set(columns.uuid)) < columns.size:
        return False
    slots = np.arange(columns.size)
    parent, root = columns.parent.view(), columns.root.view()
    is_root = parent == -1
    return bool(
        np.all((is_root & (root == slots)) | ((root <= parent) & (parent < slots)))
        and _are_between(root, 0, columns.size)
        and np.all(is_root[root])
    )


def _sets_fit(columns: Columns) -> bool:
    numbers = (
        (columns.shape, len(columns.shapes)),
        (columns.trait_set, len(columns.trait_sets.members)),
        (columns.aggregate_set, len(columns.aggregate_sets.members)),
    )
    return all(_are_between(column.view(), 0, count) for column, count in numbers)


def _trees_fit(columns: Columns) -> bool:
    """Check that each tree is whole, and built as its shape says."""
    root, shape = columns.root.view(), columns.shape.view()
    shapes = columns.shapes
    sizes = np.array([own.size for own in shapes], dtype=np.int64)
    position = np.arange(columns.size) - root
    if np.any(shape != shape[root]) or np.any(position >= sizes[shape]):
        return False
    node = (np.cumsum(sizes) - sizes)[shape] + position
    parent = np.array([parent for own in shapes for parent in own.parents])[node]
    end = np.array([end for own in shapes for end in own.ends])[node]
    members = np.bincount(root)
    roots = np.flatnonzero(members)
    return bool(
        np.array_equal(columns.parent.view(), np.where(parent == -1, -1, root + parent))
        and np.array_equal(columns.end.view(), root + end)
        and np.array_equal(members[roots], sizes[shape[roots]])
    )


def _inventories_fit(columns: Columns) -> bool:
    start, rows = columns.inventory_start.view(), columns.inventory_row.view()
    class_ids = columns.inventory_class.view()
    counts = np.diff(start)
    if (
        len(start) != columns.size + 1
        or start[0] != 0
        or np.any(counts < 0)
        or not start[-1] == len(class_ids) == len(rows)
    ):
        return False
    slots = np.repeat(np.arange(columns.size), counts)
    known_count = 0
    for class_id, inventories in columns.classes.items():
        fields = (getattr(inventories, name).size for name in ("slot", *CLASS_FIELDS))
        own = np.flatnonzero(class_ids == class_id)
        # an inventory of a living slot is in the order of the slots
        if set(fields) != {len(own)} or not np.array_equal(rows[own], np.arange(len(own))):
            return False
        if not np.array_equal(inventories.slot.view(), slots[own]):
            return False
        known_count += len(own)
    return known_count == len(class_ids)


def _amounts_fit(columns: Columns) -> bool:
    """Check that amounts are as large as they may be, and capacities what is shown of them."""
    for inventories in columns.classes.values():
        capacity, used = inventories.capacity.view(), inventories.used.view()
        shown = inventories.shown_capacity.view()
        units = (inventories.min_unit, inventories.max_unit, inventories.step_size)
        whole = np.clip(shown, -CAPACITY_BOUND, CAPACITY_BOUND)
        # Databases have ratios in single precision.
        tolerance = 1 + 1e-6 * np.abs(whole)
        if not (
            all(np.all(unit.view() >= 0) for unit in units)
            and _are_between(capacity, -CAPACITY_BOUND, CAPACITY_BOUND + 1)
            and _are_between(used, -CAPACITY_BOUND, CAPACITY_BOUND + 1)
            and np.all(np.abs(whole - capacity) <= tolerance)
        ):
            return False
    return True


def _roots_fit(columns: Columns, roots: IntArray) -> bool:
    if roots.dtype != np.int64 or not _are_between(roots, 0, columns.size):
        return False
    parent = columns.parent.view()
    return bool(
        np.all(parent[roots] == -1)
        and np.all(np.diff(columns.provider_id.view()[roots]) > 0)
        and len(roots) == np.count_nonzero(parent == -1)
    )


def _are_between(numbers: IntArray, first: int, stop: int) -> bool:
    return bool(np.all((numbers >= first) & (numbers < stop)))
