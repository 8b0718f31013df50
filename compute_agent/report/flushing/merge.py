"""Three-way merge of the state this agent read, the one it wants, and that in placement.  Pure."""

from __future__ import annotations

from typing import Final

from compute_agent.provider_tree.inventory import (
    FrozenRecord,
    Inventory,
    InventoryRecord,
    single_precision,
)

OPERATORS_OWN: Final = ("allocation_ratio", "reserved")
"""Keys an operator may change in placement while the agent is running."""


def merge_set(base: frozenset[str], theirs: frozenset[str], ours: frozenset[str]) -> frozenset[str]:
    """Return `theirs` with our additions and without our removals."""
    return (theirs | (ours - base)) - (base - ours)


def merge_inventory(base: Inventory, theirs: Inventory, ours: Inventory) -> FrozenRecord:
    """Merge an inventory: our classes win, classes that another writer added stay.

    A ratio or reserve that we left as it was follows an operator's change.
    """
    merged_inventory = {
        rc: record for rc, record in theirs.items() if rc not in base and rc not in ours
    }
    for rc, record in ours.items():
        merged_inventory[rc] = _merge_record(base.get(rc), theirs.get(rc), record)
    return FrozenRecord(merged_inventory)


def _merge_record(
    base: InventoryRecord | None, theirs: InventoryRecord | None, ours: InventoryRecord
) -> InventoryRecord:
    if base is None or theirs is None:
        return ours
    followed_values = {
        key: theirs[key]
        for key in OPERATORS_OWN
        if _same(ours[key], base[key]) and not _same(theirs[key], ours[key])
    }
    return FrozenRecord({**ours, **followed_values}) if followed_values else ours


def _same(first: float, second: float) -> bool:
    return single_precision(first) == single_precision(second)
