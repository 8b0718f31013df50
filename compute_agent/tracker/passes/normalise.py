"""The last look at a wanted tree before it is compared with placement's: what cannot be said there.

Placement has no total of zero, no number above 2147483647 and no reserve above the total; a driver
or an option may come to each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import MAX_INT


class Corrections(NamedTuple):
    """What was not expressible and what became of it, as sentences.

    :ivar capped: totals above the largest number.
    :ivar clamped: reserves above the total.
    """

    capped: list[str]
    clamped: list[str]


def normalise(tree: ProviderTree, uuids: Iterable[str]) -> Corrections:
    """Make the inventories of the given providers expressible, in place.

    Zero totals are dropped silently: a class with nothing is left out. Totals are capped, and a
    reserve above the total is lowered to it; both are returned for the caller to judge.
    """
    corrections = Corrections([], [])
    for uuid in uuids:
        provider = tree.data(uuid)
        inventory = {
            resource_class: dict(record)
            for resource_class, record in provider.inventory.items()
            if record["total"] > 0
        }
        for resource_class, record in inventory.items():
            total, reserved = record["total"], record["reserved"]
            if total > MAX_INT:
                record["total"] = MAX_INT
                corrections.capped.append(
                    f"{provider.name} has {total} of {resource_class}, more than placement can "
                    f"hold; {MAX_INT} are reported."
                )
            record["max_unit"] = min(record["max_unit"], MAX_INT)
            if reserved > record["total"]:
                corrections.clamped.append(
                    f"{provider.name} reserves {reserved} of {resource_class} for the host but "
                    f"has only {record['total']}. Lower the reserve in the configuration."
                )
                record["reserved"] = record["total"]
        tree.update_inventory(uuid, inventory)
    return corrections
