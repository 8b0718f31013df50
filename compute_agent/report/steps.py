"""The steps that update placement to a wanted tree, as values.

Each has its provider, the value before and the value after, so that it can be printed and carried
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from compute_agent.provider_tree.inventory import RECORD_KEYS, Inventory, equal_records


class EnsureTraits(Struct, frozen=True):
    """Make sure placement knows these traits; custom ones it lacks are created."""

    traits: tuple[str, ...]


class EnsureResourceClass(Struct, frozen=True):
    """Make sure placement knows this custom resource class."""

    resource_class: str


class CreateProvider(Struct, frozen=True):
    """Create an empty provider."""

    uuid: str
    name: str
    parent_uuid: str | None


class PutProvider(Struct, frozen=True):
    """Give a provider another name, another parent or both."""

    uuid: str
    old_name: str
    name: str
    old_parent_uuid: str | None
    parent_uuid: str | None

    @property
    def reparents(self) -> bool:
        return self.old_parent_uuid != self.parent_uuid


class SetInventory(Struct, frozen=True):
    """Replace a provider's whole inventory."""

    uuid: str
    name: str
    before: Inventory
    after: Inventory


class SetInventories(Struct, frozen=True):
    """Replace the inventories of many providers in one atomic request."""

    changes: tuple[SetInventory, ...]


class Reshape(Struct, frozen=True):
    """Replace inventories and the allocations against them in one atomic request."""

    changes: tuple[SetInventory, ...]
    allocations: Mapping[str, Mapping[str, Any]]


class SetAggregates(Struct, frozen=True):
    """Add and remove a provider's aggregates; those of others stay."""

    uuid: str
    name: str
    before: frozenset[str]
    after: frozenset[str]


class SetTraits(Struct, frozen=True):
    """Add and remove a provider's traits; those of others stay."""

    uuid: str
    name: str
    before: frozenset[str]
    after: frozenset[str]


class DeleteProvider(Struct, frozen=True):
    """Delete a provider without children."""

    uuid: str
    name: str
    parent_uuid: str | None


class KeepProvider(Struct, frozen=True):
    """Leave a provider that is not in the wanted tree but has another owner.  No request."""

    uuid: str
    name: str


Step: TypeAlias = (
    EnsureTraits
    | EnsureResourceClass
    | CreateProvider
    | PutProvider
    | SetInventory
    | SetInventories
    | Reshape
    | SetAggregates
    | SetTraits
    | DeleteProvider
    | KeepProvider
)


def describe(step: Step) -> str:
    """Return a line for people about an step (several when it changes many providers)."""
    match step:
        case EnsureTraits(traits):
            return f"make sure placement knows traits {', '.join(traits)}"
        case EnsureResourceClass(resource_class):
            return f"make sure placement knows resource class {resource_class}"
        case CreateProvider(uuid, name, parent_uuid):
            place = f"under {parent_uuid}" if parent_uuid else "as a root"
            return f"create provider {name} ({uuid}) {place}"
        case PutProvider(uuid, old_name, name, _, parent_uuid):
            words = [f"rename provider {old_name} ({uuid}) to {name}"] if old_name != name else []
            if step.reparents:
                place = f"under {parent_uuid}" if parent_uuid else "to be a root"
                words.append(f"move provider {name} ({uuid}) {place}")
            return "; ".join(words)
        case SetInventory(_, name, before, after):
            return f"set inventory of {name}: {_inventory_change(before, after)}"
        case SetInventories(changes):
            return "\n".join(["in one request:", *(f"  {describe(change)}" for change in changes)])
        case Reshape(changes, allocations):
            title = f"reshape, moving the allocations of {len(allocations)} consumer(s):"
            return "\n".join([title, *(f"  {describe(change)}" for change in changes)])
        case SetAggregates(_, name, before, after):
            return f"set aggregates of {name}: {_set_change(before, after)}"
        case SetTraits(_, name, before, after):
            return f"set traits of {name}: {_set_change(before, after)}"
        case DeleteProvider(uuid, name, _):
            return f"delete provider {name} ({uuid})"
        case KeepProvider(uuid, name):
            return f"keep provider {name} ({uuid}): it is not this agent's to delete"


def _set_change(before: frozenset[str], after: frozenset[str]) -> str:
    additions = [f"+{item}" for item in sorted(after - before)]
    removals = [f"-{item}" for item in sorted(before - after)]
    return " ".join(additions + removals)


def _inventory_change(before: Inventory, after: Inventory) -> str:
    parts = []
    for resource_class in sorted({*before, *after}):
        old, new = before.get(resource_class), after.get(resource_class)
        if old is None and new is not None:
            parts.append(f"+{resource_class} {_record(dict(new))}")
        elif new is None:
            parts.append(f"-{resource_class}")
        elif old is not None and not equal_records(old, new):
            keys = [key for key in RECORD_KEYS if old[key] != new[key]]
            parts.append(
                f"{resource_class} " + ", ".join(f"{k} {old[k]} -> {new[k]}" for k in keys)
            )
    return "; ".join(parts) or "nothing"


def _record(record: dict[str, Any]) -> str:
    shown_fields = [f"total {record['total']}"]
    if record["reserved"]:
        shown_fields.append(f"reserved {record['reserved']}")
    if record["allocation_ratio"] != 1.0:
        shown_fields.append(f"ratio {record['allocation_ratio']:g}")
    return f"({', '.join(shown_fields)})"
