"""The columns of an index as arrays and plain values, and back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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
_STORED_FIELDS: Final = ("slot", *(name for name in CLASS_FIELDS if name != "fit"))
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


def values_of(columns: Columns) -> dict[str, Any]:
    """Return what of columns is not in arrays, as values of JSON."""
    return {
        "classes": list(columns.classes),
        "trait_sets": columns.trait_sets.members,
        "aggregate_sets": columns.aggregate_sets.members,
        "shapes": [shape.parents for shape in columns.shapes],
    }


def columns_from(arrays: Mapping[str, Array], values: Mapping[str, Any]) -> Columns:
    """Return columns that begin with these arrays, and copy them when something is appended.

    :raises KeyError: an array or a value is missing.
    :raises ValueError: an array or a value has another type, a shape is none of a tree, or a set
        or a shape is there twice.
    """
    columns = Columns()
    for name in (*SLOT_FIELDS, *_INVENTORY_FIELDS):
        setattr(columns, name, _growable(getattr(columns, name), arrays[name]))
    text = arrays[_UUIDS].tobytes()
    if text.translate(None, _NOT_IN_UUIDS) != text:
        raise ValueError("an uuid has other characters than those of uuids")
    columns.name_slots(text.decode().split(_SEPARATOR) if text else [])
    for number in whole_numbers(values["classes"]):
        columns.classes[number] = _class_columns(number, arrays)
    columns.trait_sets = _sets([whole_numbers(members) for members in values["trait_sets"]])
    columns.aggregate_sets = _sets(values["aggregate_sets"])
    if not all(type(uuid) is str for uuids in columns.aggregate_sets.members for uuid in uuids):
        raise ValueError("an aggregate is not a text")
    columns.name_shapes(_shapes(values["shapes"], columns.size))
    if len(columns.shapes) != len(values["shapes"]):
        raise ValueError("a shape is there twice")
    return columns


def whole_numbers(values: Sequence[Any]) -> list[int]:
    """Return values that are whole numbers as databases have them.

    :raises ValueError: one is not.
    """
    for value in values:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise ValueError(f"{value!r} is not a whole number of 64 bits")
    return list(values)


def _class_columns(number: int, arrays: Mapping[str, Array]) -> ClassColumns:
    columns = ClassColumns()
    for name in _STORED_FIELDS:
        array = arrays[f"{number} {name}"]
        setattr(columns, name, _growable(getattr(columns, name), array))
    amounts = (getattr(columns, name).view() for name in ("capacity", "max_unit", "used"))
    columns.fit.extend(largest_amounts(*amounts))
    columns.largest_min_unit = int(columns.min_unit.view().max(initial=1))
    columns.largest_step_size = int(columns.step_size.view().max(initial=1))
    return columns


def _shapes(shapes: Sequence[Sequence[Any]], slots: int) -> list[tuple[int, ...]]:
    """Return shapes, each by its parents in preorder, of which each has a tree."""
    sizes = [len(parents) for parents in shapes]
    if sum(sizes) > slots or sum(size * size for size in sizes) > _LARGEST_SHAPES:
        raise ValueError("the shapes are larger than the trees")
    for parents in shapes:
        path = [-1]
        for position, parent in enumerate(whole_numbers(parents)):
            while path and path[-1] != parent:
                path.pop()
            if not path or (parent == -1) != (position == 0):
                raise ValueError("a shape is none of a tree")
            path.append(position)
    return [tuple(parents) for parents in shapes]


def _growable(new_growable: GrowableArray, array: Array) -> GrowableArray:
    if array.dtype != new_growable.view().dtype:
        raise ValueError(
            f"an array has the type {array.dtype}, expected {new_growable.view().dtype}"
        )
    return GrowableArray.after(array)


def _sets(sets: Sequence[Sequence[Any]]) -> SetTable:
    table = SetTable()
    for members in sets:
        if list(members) != sorted(set(members)):
            raise ValueError("a set is not in order")
        table.intern(tuple(members))
    if len(table.members) != len(sets):
        raise ValueError("a set is there twice")
    return table
