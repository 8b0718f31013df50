"""The last look at a wanted tree before it is compared with placement's: what cannot be said there.

Placement has no total of zero, no number above 2147483647 and no reserve above the total; a driver
or an option may come to each of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import MAX_INT


class Correction(Enum):
    """What was corrected, by how serious it is."""

    CAPPED = "capped"
    RESERVE_CLAMPED = "reserve clamped"


class CorrectedRecord(NamedTuple):
    """A record that was not expressible and what became of it."""

    kind: Correction
    provider: str
    resource_class: str
    message: str


def normalise(tree: ProviderTree, uuids: Iterable[str]) -> list[CorrectedRecord]:
    """Make the inventories of the given providers expressible, in place.

    Zero totals are dropped silently: a class with nothing is left out. Totals are capped, and a
    reserve above the total is lowered to it; both are returned for the caller to judge.
    """
    corrections: list[CorrectedRecord] = []
    for uuid in uuids:
        provider = tree.data(uuid)
        inventory = {
            resource_class: dict(record)
            for resource_class, record in copy.deepcopy(dict(provider.inventory)).items()
            if record["total"] > 0
        }
        for resource_class, record in inventory.items():
            corrections.extend(_correct(provider.name, resource_class, record))
        tree.update_inventory(uuid, inventory)
    return corrections


def _correct(
    provider: str, resource_class: str, record: dict[str, int | float]
) -> list[CorrectedRecord]:
    corrections = []
    total = record["total"]
    if total > MAX_INT:
        record["total"] = MAX_INT
        corrections.append(
            CorrectedRecord(
                Correction.CAPPED,
                provider,
                resource_class,
                f"{provider} has {total} of {resource_class}, more than placement can hold; "
                f"{MAX_INT} are reported.",
            )
        )
    record["max_unit"] = min(record["max_unit"], MAX_INT)
    if record["reserved"] > record["total"]:
        corrections.append(
            CorrectedRecord(
                Correction.RESERVE_CLAMPED,
                provider,
                resource_class,
                f"{provider} reserves {record['reserved']} of {resource_class} for the host but "
                f"has only {record['total']}. Lower the reserve in the configuration.",
            )
        )
        record["reserved"] = record["total"]
    return corrections
