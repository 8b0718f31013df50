"""Inventory records: the amount of a resource class that a provider has, and rules for its use.

A record is a mapping with the keys `total reserved min_unit max_unit step_size allocation_ratio`.
Placement fills in what a writer leaves out and stores the ratio in single precision, so records are
completed before they are compared, and ratios are compared as 32-bit floats: 1.1 read back equals
1.1.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias

from compute_agent.provider_tree.trait_names import CUSTOM_PREFIX

Number: TypeAlias = int | float
InventoryRecord: TypeAlias = Mapping[str, Number]
Inventory: TypeAlias = Mapping[str, InventoryRecord]

MAX_INT: Final = 2147483647

PLACEMENT_DEFAULTS: Final[Mapping[str, Number]] = MappingProxyType(
    {
        "reserved": 0,
        "min_unit": 1,
        "max_unit": MAX_INT,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }
)
"""Values that placement stores for keys that the writer leaves out (`total` is mandatory)."""

RECORD_KEYS: Final = ("total", *PLACEMENT_DEFAULTS)

OPERATOR_KEYS: Final = frozenset({"allocation_ratio"})
"""Keys an operator may set in placement by hand; a writer that leaves them out keeps them."""


class FrozenRecord(dict[str, Any]):
    """A dict that cannot be changed, so that it can be shared between snapshots without copying.

    `copy()`, `dict(...)` and `copy.deepcopy` give an ordinary dict to edit.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(
            "this is a snapshot of a provider and cannot be changed; "
            "edit a copy and hand it to ProviderTree.update_inventory"
        )

    __setitem__ = __delitem__ = _refuse
    __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenRecord, (dict(self),))


def single_precision(ratio: float) -> float:
    """Return what a single precision column makes of `ratio` (itself when out of range)."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", ratio))[0])
    except OverflowError:
        return float(ratio)


def complete_record(
    record: InventoryRecord,
    stored: InventoryRecord | None = None,
    *,
    operator_keys: Collection[str] = OPERATOR_KEYS,
) -> FrozenRecord:
    """Return `record` with all six keys.

    A missing key takes the stored value if it is one of `operator_keys` and something is stored,
    otherwise placement's default.  Keys come out in the order of `RECORD_KEYS`.

    :raises ValueError: `total` is missing, or a key is not one of the six.
    """
    unknown_keys = [key for key in record if key not in RECORD_KEYS]
    if unknown_keys:
        raise ValueError(f"an inventory record has no key {', '.join(map(repr, unknown_keys))}")
    if "total" not in record:
        raise ValueError("an inventory record needs the key 'total'")
    complete_values: dict[str, Number] = {"total": record["total"]}
    for key, default in PLACEMENT_DEFAULTS.items():
        if key in record:
            complete_values[key] = record[key]
        elif stored is not None and key in operator_keys:
            complete_values[key] = stored.get(key, default)
        else:
            complete_values[key] = default
    return FrozenRecord(complete_values)


def complete_inventory(
    inventory: Inventory,
    stored: Inventory | None = None,
    *,
    operator_keys: Collection[str] = OPERATOR_KEYS,
) -> FrozenRecord:
    """Return `inventory`, each record completed by the one stored for the same class.

    :raises ValueError: as `complete_record`, naming the class.
    """
    stored = stored or {}
    completed_records: dict[str, FrozenRecord] = {}
    for resource_class, record in inventory.items():
        try:
            completed_records[resource_class] = complete_record(
                record, stored.get(resource_class), operator_keys=operator_keys
            )
        except ValueError as exc:
            raise ValueError(f"inventory of {resource_class}: {exc}") from exc
    return FrozenRecord(completed_records)


def equal_records(first: InventoryRecord, second: InventoryRecord) -> bool:
    """Return whether two completed records are the same to placement."""
    return all(
        single_precision(first[key]) == single_precision(second[key])
        if key == "allocation_ratio"
        else first[key] == second[key]
        for key in RECORD_KEYS
    )


def equal_inventories(first: Inventory, second: Inventory) -> bool:
    """Return whether two completed inventories have the same classes with equal records."""
    return first.keys() == second.keys() and all(
        record is second[resource_class] or equal_records(record, second[resource_class])
        for resource_class, record in first.items()
    )


def capacity(record: InventoryRecord) -> float:
    """Return how many units can be allocated in all: (total - reserved) x ratio."""
    return (record["total"] - record["reserved"]) * record["allocation_ratio"]


def other_spelling(resource_class: str) -> str:
    """Return the standard name of a custom class, or the custom name of a standard one."""
    if resource_class.startswith(CUSTOM_PREFIX):
        return resource_class.removeprefix(CUSTOM_PREFIX)
    return CUSTOM_PREFIX + resource_class
