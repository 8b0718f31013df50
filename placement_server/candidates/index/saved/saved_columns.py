"""The columns of an index as arrays and plain values, and back, with all that has to fit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from compute_agent.programs.decoding import Whole
from placement_server.candidates.index.arrays import CAPACITY_BOUND, IntArray
from placement_server.candidates.index.class_columns import (
    CLASS_FIELDS,
    ClassColumns,
    GrowableArray,
    largest_amounts,
)
from placement_server.candidates.index.columns import SLOT_FIELDS, Columns
from placement_server.candidates.index.set_table import SetTable

Array = npt.NDArray[Any]
_INVENTORY_FIELDS: Final = ("inventory_start", "inventory_class", "inventory_row")
# What an inventory fits is computed again.
_STORED_FIELDS: Final = tuple(name for name in CLASS_FIELDS if name != "fit")
_UUIDS: Final = "uuid"
_SEPARATOR: Final = "\n"
# What an uuid cannot have: controls, the rest of Latin 1, quotes and backslashes.
_NOT_IN_UUIDS: Final = bytes({*range(32), *range(127, 256), *b'"\\'} - {*_SEPARATOR.encode()})
# Bits of the sets of ancestors and descendants of all shapes.
_LARGEST_SHAPES: Final = 2**31


def arrays_of(columns: Columns) -> dict[str, Array]:
    """Return the arrays of columns by name."""
    arrays = {name: getattr(columns, name).view() for name in (*SLOT_FIELDS, *_INVENTORY_FIELDS)}
    arrays[_UUIDS] = np.frombuffer(_SEPARATOR.join(columns.uuid).encode(), dtype=np.uint8)
    for number, inventories in columns.classes.items():
        for name in _STORED_FIELDS:
            arrays[f"{number} {name}"] = getattr(inventories, name).view()
    return arrays


class SmallValues(Struct, frozen=True):
    """What of columns is not in arrays."""

    classes: list[Whole]
    trait_sets: list[tuple[Whole, ...]]
    aggregate_sets: list[tuple[str, ...]]
    shapes: list[tuple[Whole, ...]]


def columns_from(arrays: Mapping[str, Array], values: SmallValues) -> Columns:
    """Return columns that begin with these arrays, and copy them when something is appended.

    :raises KeyError: an array is missing.
    :raises ValueError: an array has another type, a shape is none of a tree, or a set or a shape is
        there twice.
    """
    columns = Columns()
    for name in (*SLOT_FIELDS, *_INVENTORY_FIELDS):
        setattr(columns, name, _growable(getattr(columns, name), arrays[name]))
    text = arrays[_UUIDS].tobytes()
    if text.translate(None, _NOT_IN_UUIDS) != text:
        raise ValueError("an uuid has other characters than those of uuids")
    columns.name_slots(text.decode().split(_SEPARATOR) if text else [])
    for number in values.classes:
        columns.classes[number] = _class_columns(number, arrays)
    columns.trait_sets = _sets(values.trait_sets)
    columns.aggregate_sets = _sets(values.aggregate_sets)
    _check_shapes(values.shapes, columns.size)
    for parents in values.shapes:
        columns.number_of_shape(parents)
    if len(columns.shapes) != len(values.shapes):
        raise ValueError("a shape is there twice")
    return columns


def _class_columns(number: int, arrays: Mapping[str, Array]) -> ClassColumns:
    columns = ClassColumns()
    for name in _STORED_FIELDS:
        array = arrays[f"{number} {name}"]
        setattr(columns, name, _growable(getattr(columns, name), array))
    amounts = (getattr(columns, name).view() for name in ("capacity", "max_unit", "used"))
    columns.fit.extend(largest_amounts(*amounts))
    columns.measure()
    return columns


def _check_shapes(shapes: Sequence[Sequence[int]], slots: int) -> None:
    """Check that each shape, by its parents in preorder, is one of a tree."""
    sizes = [len(parents) for parents in shapes]
    if sum(sizes) > slots or sum(size * size for size in sizes) > _LARGEST_SHAPES:
        raise ValueError("the shapes are larger than the trees")
    for parents in shapes:
        path = [-1]
        for position, parent in enumerate(parents):
            while path and path[-1] != parent:
                path.pop()
            if not path or (parent == -1) != (position == 0):
                raise ValueError("a shape is none of a tree")
            path.append(position)


def _growable(new_growable: GrowableArray, array: Array) -> GrowableArray:
    if array.dtype != new_growable.view().dtype:
        raise ValueError(
            f"an array has the type {array.dtype}, expected {new_growable.view().dtype}"
        )
    return GrowableArray.after(array)


def _sets(sets: Sequence[tuple[Any, ...]]) -> SetTable:
    table = SetTable()
    for members in sets:
        if list(members) != sorted(set(members)):
            raise ValueError("a set is not in order")
        table.intern(members)
    if len(table.members) != len(sets):
        raise ValueError("a set is there twice")
    return table


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
        fields = (getattr(inventories, name).size for name in CLASS_FIELDS)
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
