"""Comparison of what an instance has on this host with what it holds in placement. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from compute_agent.claims.host_view import cell_providers
from compute_agent.claims.units import holdings, is_visible, units_of
from compute_agent.placement.allocations.amounts import Amounts, shortfalls
from compute_agent.provider_tree import ProviderTree
from compute_agent.state.claim import AssignedUnit, Claim
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.layout.devices.nics import VF_CLASS

Holders = Mapping[str, Amounts]
"""Provider uuid to what each consumer holds of it, by consumer and class."""

COUNTED_BY_SOME: Final = frozenset({VF_CLASS})
"""Classes that some schedulers allocate and others do not, as Nova's does not: an instance that
holds none of such a class, on any provider of the node, differs in nothing."""


def differences(
    tree: ProviderTree,
    root: str,
    holders: Holders,
    guests: Mapping[str, InstanceDevices | None],
    claims: Collection[Claim],
) -> dict[str, str]:
    """Return what differs, as a sentence, by instance.

    Compared are what a claim gave with what placement holds still, and of what a guest has certain
    ones (CPUs, functions, mediated devices, cells) what it is seen to have.

    :param holders: of the providers of this node.
    :param guests: the instances that run here, as the driver describes them; None: it cannot tell,
        and only what was claimed is compared.
    """
    units = units_of(tree, root)
    described_guests = {uuid: devices for uuid, devices in guests.items() if devices is not None}
    seen_units = holdings({}, described_guests, units)
    claim_of = {claim.consumer: claim for claim in claims}
    differences: dict[str, str] = {}
    for instance in sorted(guests):
        held_amounts = {
            uuid: consumers[instance]
            for uuid, consumers in holders.items()
            if instance in consumers
        }
        if not held_amounts:
            continue  # that is another kind of drift
        sentences = list(_beyond(tree, claim_of.get(instance), held_amounts))
        if instance in described_guests:
            sentences += _other_units(
                tree, units, seen_units.get(instance, frozenset()), held_amounts
            )
            sentences += _other_cells(tree, root, described_guests[instance], held_amounts)
        if sentences:
            differences[instance] = "; ".join(dict.fromkeys(sentences))
    return differences


def _beyond(tree: ProviderTree, claim: Claim | None, held_amounts: Amounts) -> Iterator[str]:
    """Yield what a claim gave and placement does not hold: another instance may get it as well."""
    for uuid, resource_class, amount, holds in sorted(
        shortfalls(held_amounts, claim.amounts if claim else {})
    ):
        if tree.exists(uuid):
            name = tree.data(uuid).name
            yield f"it was given {amount} {resource_class} of {name} and holds {holds}"


def _other_units(
    tree: ProviderTree,
    units: Collection[AssignedUnit],
    seen_units: Collection[AssignedUnit],
    held_amounts: Amounts,
) -> Iterator[str]:
    visible_places = {
        (unit.provider_uuid, unit.resource_class) for unit in units if is_visible(unit)
    }
    counted_classes = {
        resource_class for classes in held_amounts.values() for resource_class in classes
    }
    has = Counter((unit.provider_uuid, unit.resource_class) for unit in seen_units)
    for uuid, resource_class in sorted(visible_places):
        if resource_class in COUNTED_BY_SOME and resource_class not in counted_classes:
            continue
        holds = held_amounts.get(uuid, {}).get(resource_class, 0)
        if has[uuid, resource_class] != holds:
            yield (
                f"it has {has[uuid, resource_class]} {resource_class} of {tree.data(uuid).name} "
                f"and holds {holds}"
            )


def _other_cells(
    tree: ProviderTree,
    root: str,
    devices: InstanceDevices,
    held_amounts: Amounts,
) -> Iterator[str]:
    cell_of = cell_providers(tree, root)
    if not cell_of or not devices.cells:
        return
    has = {use.cell for use in devices.cells if use.memory_mib}
    holds = set()
    for uuid, classes in held_amounts.items():
        cell = cell_of.get(uuid, cell_of.get(tree.data(uuid).parent_uuid or ""))
        if cell is not None and "MEMORY_MB" in classes:
            holds.add(cell)
    if has != holds:
        yield f"its memory is on NUMA cells {_numbers(has)} and it holds of {_numbers(holds)}"


def _numbers(cells: Collection[int]) -> str:
    return ", ".join(map(str, sorted(cells))) or "none"
