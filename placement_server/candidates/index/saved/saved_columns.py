"""The columns of an index as arrays and plain values, and back."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.class_columns import CLASS_FIELDS, ClassColumns
from placement_server.candidates.index.columns import SLOT_FIELDS, Columns
from placement_server.candidates.index.growable import Growable
from placement_server.candidates.index.set_table import SetTable

Array = npt.NDArray[Any]
_INVENTORY_FIELDS: Final = ("inventory_start", "inventory_class", "inventory_row")
_UUIDS: Final = "uuid"
_SEPARATOR: Final = "\n"


def arrays_of(columns: Columns) -> dict[str, Array]:
    """Return the arrays of columns by name."""
    arrays = {name: getattr(columns, name).view() for name in (*SLOT_FIELDS, *_INVENTORY_FIELDS)}
    arrays[_UUIDS] = np.frombuffer(_SEPARATOR.join(columns.uuid).encode(), dtype=np.uint8)
    for number, inventories in columns.classes.items():
        for name in ("slot", *CLASS_FIELDS):
            arrays[f"{number} {name}"] = getattr(inventories, name).view()
    return arrays


def values_of(columns: Columns) -> dict[str, Any]:
    """Return what of columns is not in arrays, as values of JSON."""
    return {
        "classes": [
            [number, inventories.largest_min_unit, inventories.largest_step_size]
            for number, inventories in columns.classes.items()
        ],
        "trait_sets": columns.trait_sets.members,
        "aggregate_sets": columns.aggregate_sets.members,
        "shapes": [shape.parents for shape in columns.shapes],
    }


def columns_from(arrays: Mapping[str, Array], values: Mapping[str, Any]) -> Columns:
    """Return columns that begin with these arrays, and copy them when something is appended.

    :raises KeyError: an array or a value is missing.
    :raises ValueError: an array has another type, or a set or a shape is there twice.
    """
    columns = Columns()
    for name in (*SLOT_FIELDS, *_INVENTORY_FIELDS):
        setattr(columns, name, _growable(getattr(columns, name), arrays[name]))
    uuids = arrays[_UUIDS].tobytes().decode()
    columns.name_slots(uuids.split(_SEPARATOR) if uuids else [])
    for number, largest_min_unit, largest_step_size in values["classes"]:
        inventories = columns.classes[number] = ClassColumns()
        for name in ("slot", *CLASS_FIELDS):
            array = arrays[f"{number} {name}"]
            setattr(inventories, name, _growable(getattr(inventories, name), array))
        inventories.largest_min_unit = largest_min_unit
        inventories.largest_step_size = largest_step_size
    columns.trait_sets = _sets(values["trait_sets"])
    columns.aggregate_sets = _sets(values["aggregate_sets"])
    columns.name_shapes([tuple(parents) for parents in values["shapes"]])
    if len(columns.shapes) != len(values["shapes"]):
        raise ValueError("a shape is there twice")
    return columns


def _growable(new_growable: Growable, array: Array) -> Growable:
    if array.dtype != new_growable.view().dtype:
        raise ValueError(
            f"an array has the type {array.dtype}, expected {new_growable.view().dtype}"
        )
    return Growable.after(array)


def _sets(members: list[list[Any]]) -> SetTable:
    table = SetTable()
    for some in members:
        table.intern(tuple(some))
    if len(table.members) != len(members):
        raise ValueError("a set is there twice")
    return table
