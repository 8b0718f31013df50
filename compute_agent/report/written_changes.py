"""Changes written to placement, in words for a log: one for each amount or provider.  Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from compute_agent.provider_tree.inventory import RECORD_KEYS, Inventory
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    Reshape,
    SetInventories,
    SetInventory,
    Step,
    describe,
)

if TYPE_CHECKING:
    from compute_agent.virt.driver import ClassChange

_WIDTH: Final = 400
"""A line of the log is no longer: a new root has a hundred traits."""
_MEASURED_CLASSES: Final = frozenset({"DISK_GB"})
"""Their totals rise and fall with what a store has room for."""


class WrittenChange(NamedTuple):
    """One change.

    :ivar provider: its name.
    :ivar resource_class: None: it is not about an inventory.
    :ivar gain: so much more of the class.
    :ivar is_loss: the host has less than before.
    """

    text: str
    provider: str = ""
    resource_class: str | None = None
    gain: int = 0
    is_loss: bool = False


def written_changes(
    steps: Iterable[Step], class_changes: Collection[ClassChange] = ()
) -> list[WrittenChange]:
    """Return what steps changed; names that placement only got to know are left out.

    What moved from one provider to another is no loss, nor is what a reshape made of a class: as
    many units of another, or a sharing provider's, whose inventory is not written.

    :param class_changes: what classes became by the reshape.
    """
    changes = list(_changes(steps))
    gains: Counter[str | None] = Counter()
    for change in changes:
        gains[change.resource_class] += change.gain

    def has_less(resource_class: str | None) -> bool:
        came = Fraction(gains[resource_class])
        for change in class_changes:
            if change.old == resource_class and change.provider is not None:
                return False
            if change.old == resource_class:
                # a part of a unit is not a unit
                part = 1 - Fraction(1, Fraction(change.factor).denominator)
                came += (gains[change.new] + part) / Fraction(change.factor)
        return came < 0

    return [
        change._replace(
            is_loss=change.is_loss
            and (change.resource_class is None or has_less(change.resource_class))
        )
        for change in changes
    ]


def _changes(steps: Iterable[Step]) -> Iterator[WrittenChange]:
    for step in steps:
        match step:
            case EnsureTraits() | EnsureResourceClass() | KeepProvider():
                continue
            case SetInventory(_, name, before, after):
                yield from _inventory_changes(name, before, after)
            case SetInventories(changes):
                yield from _changes(changes)
            case Reshape(changes, _):
                yield WrittenChange(describe(step).partition("\n")[0].rstrip(":"))
                yield from _changes(changes)
            case DeleteProvider(_, name, _):
                yield WrittenChange(describe(step), name, is_loss=True)
            case CreateProvider(_, name, _):
                yield WrittenChange(describe(step), name)
            case _:
                yield WrittenChange(textwrap.shorten(describe(step), _WIDTH), step.name)


def _inventory_changes(name: str, before: Inventory, after: Inventory) -> Iterator[WrittenChange]:
    for resource_class in sorted({*before, *after}):
        old, new = before.get(resource_class), after.get(resource_class)
        old_total, new_total = int(old["total"]) if old else 0, int(new["total"]) if new else 0
        if old is None:
            text = f"total {new_total}, new"
        elif new is None:
            text = f"total {old_total}, removed"
        else:
            keys = [key for key in RECORD_KEYS if old[key] != new[key]]
            if old["max_unit"] == old_total and new["max_unit"] == new_total:
                keys = [key for key in keys if key != "max_unit"]
            text = ", ".join(f"{key} {old[key]} to {new[key]}" for key in keys)
        if not text:
            continue
        is_measured = resource_class in _MEASURED_CLASSES and new_total > 0
        yield WrittenChange(
            f"{resource_class} of {name}: {text}",
            name,
            resource_class,
            gain=new_total - old_total,
            is_loss=new_total < old_total and not is_measured,
        )
