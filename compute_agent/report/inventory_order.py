"""Order of writes to inventories, so that capacity never shows in two places at once."""

from __future__ import annotations

from collections.abc import Iterable

from compute_agent.provider_tree.inventory import FrozenRecord, Inventory, capacity
from compute_agent.report.steps import SetInventory


def order_inventories(changes: Iterable[SetInventory]) -> list[SetInventory]:
    """Sort inventory changes so that capacity of a class never shows in two places.

    Changes that only shrink go first, those that only grow last.  One that does both goes between,
    unless it gains a class that another such one loses: then it is written twice, first only
    shrunk.
    """
    shrinking_changes, mixed_changes, growing_changes = [], [], []
    for change in changes:
        if not gains(change):
            shrinking_changes.append(change)
        elif not loses(change):
            growing_changes.append(change)
        else:
            mixed_changes.append(change)
    plain_changes = []
    for change in mixed_changes:
        lost_elsewhere = set().union(
            *(loses(other) for other in mixed_changes if other is not change)
        )
        if gains(change) & lost_elsewhere:
            between = _only_shrunk(change)
            shrinking_changes.append(SetInventory(change.uuid, change.name, change.before, between))
            growing_changes.append(SetInventory(change.uuid, change.name, between, change.after))
        else:
            plain_changes.append(change)
    return [*shrinking_changes, *plain_changes, *growing_changes]


def gains(change: SetInventory) -> set[str]:
    """Return the classes of which the provider can give more afterwards."""
    return {rc for rc in change.after if _capacity(change.after, rc) > _capacity(change.before, rc)}


def loses(change: SetInventory) -> set[str]:
    """Return the classes of which the provider can give less afterwards."""
    return {
        rc for rc in change.before if _capacity(change.after, rc) < _capacity(change.before, rc)
    }


def direction(change: SetInventory) -> str:
    """Return `shrink`, `grow` or `both`; only changes of one may be written together."""
    if not gains(change):
        return "shrink"
    return "both" if loses(change) else "grow"


def _capacity(inventory: Inventory, resource_class: str) -> float:
    return capacity(inventory[resource_class]) if resource_class in inventory else 0.0


def _only_shrunk(change: SetInventory) -> FrozenRecord:
    """Return the inventory between: every class at the smaller of its two capacities."""
    gaining = gains(change)
    return FrozenRecord(
        {
            rc: change.before[rc] if rc in gaining else record
            for rc, record in change.after.items()
            if rc not in gaining or rc in change.before
        }
    )
