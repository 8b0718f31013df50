"""Last corrections of a wanted tree: the traits that the agent owns, and numbers placement lacks.

Everything else on a provider belongs to drivers, operators or other services and is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import MAX_INT
from compute_agent.provider_tree.provider import SHARING_TRAIT, ProviderData
from compute_agent.provider_tree.trait_names import (
    COMPUTE_NODE,
    COMPUTE_STATUS_DISABLED,
    OWNER_NOVA,
)


class Corrections(Struct, frozen=True):
    """What was not expressible and what became of it, as sentences.

    :ivar capped: totals above the largest number.
    :ivar clamped: reserves above the total.
    """

    capped: list[str]
    clamped: list[str]


def normalise(tree: ProviderTree, uuids: Iterable[str]) -> Corrections:
    """Make the inventories of the given providers expressible, in place.

    Placement has no total of zero, no number above 2147483647 and no reserve above the total.
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


def synchronise_traits(
    tree: ProviderTree,
    root_uuid: str,
    *,
    capabilities: Mapping[str, bool],
    is_enabled: bool,
    owned_uuids: Collection[str],
) -> None:
    """Give the root what the driver can do and whether it may be used, and mark what is ours.

    :param capabilities: trait to whether the driver has the capability now; a trait that is not
        named is left as it is.
    :param owned_uuids: uuids of providers that this agent made or took over.
    """
    tree.add_traits(root_uuid, COMPUTE_NODE, *(t for t, has in capabilities.items() if has))
    tree.remove_traits(root_uuid, *(t for t, has in capabilities.items() if not has))
    if is_enabled:
        tree.remove_traits(root_uuid, COMPUTE_STATUS_DISABLED)
    else:
        tree.add_traits(root_uuid, COMPUTE_STATUS_DISABLED)
    for uuid in tree.get_provider_uuids(root_uuid):
        if uuid in owned_uuids and SHARING_TRAIT not in tree.data(uuid).traits:
            tree.add_traits(uuid, OWNER_NOVA)


def is_marked(provider: ProviderData) -> bool:
    """Whether the provider carries the owner's trait."""
    return OWNER_NOVA in provider.traits
