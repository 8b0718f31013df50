"""Named units of a host that are free: pure functions of what there is and who holds what.

A provider may count things of which a guest gets certain ones: CPUs of its own, PCI functions,
places for mediated devices (`0000:84:00.0/3`), slices of a GPU (`MIG-...`). They are in the
provider's `resources`. Which slice a guest has no hypervisor reports: only its claim names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from compute_agent.discovery.pci_address import is_pci_address
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.trait_names import PMEM_PREFIX
from compute_agent.state.claim import AssignedUnit, Claim
from compute_agent.virt.driver import InstanceDevices

if TYPE_CHECKING:
    from compute_agent.claims.host_cells import HostCell

PCPU = "PCPU"


def units_of(tree: ProviderTree, root_uuid: str) -> frozenset[AssignedUnit]:
    """Return every named unit that the node has."""
    return frozenset(
        AssignedUnit(uuid, resource_class, resource.identifier)
        for uuid in tree.get_provider_uuids(root_uuid)
        for resource_class, resources in tree.data(uuid).resources.items()
        for resource in resources
    )


def core_holders(cells: Iterable[HostCell], claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Return the cells with dedicated CPUs: of each core the CPUs, and the instance that has each.

    :param claims: those on the node.
    """
    holders = {
        int(unit.name): claim.instance
        for claim in claims
        for unit in claim.units
        if unit.resource_class == PCPU
    }
    return [
        {"id": cell.id, "cores": [[(cpu, holders.get(cpu)) for cpu in c.cpus] for c in cell.cores]}
        for cell in cells
        if cell.cores
    ]


def holdings(
    claimed_units: Mapping[str, Iterable[AssignedUnit]],
    guests: Mapping[str, InstanceDevices],
    units: Iterable[AssignedUnit],
) -> dict[str, frozenset[AssignedUnit]]:
    """Return the units that each instance holds: what it was given, and what it is seen to have.

    Where a hypervisor gave a guest another unit than its claim names, the guest holds the one that
    it is seen to have, instead of the other. A mediated device does not show which place it took:
    it counts as one that its guest was given, or else as any that is free.

    :param claimed_units: by instance.
    :param guests: what the instances that run here have.
    :param units: every unit of the node.
    """
    ordered_units = sorted(units, key=by_number)
    held_units = {instance: set(given_units) for instance, given_units in claimed_units.items()}
    for instance, devices in guests.items():
        cpus = {str(cpu) for cpu in devices.pinned_cpus}
        others = {*map(str, devices.pci_addresses), *devices.pmem}
        seen_units = {
            unit
            for unit in ordered_units
            if unit.name in (cpus if unit.resource_class == PCPU else others)
        }
        given_units = held_units.setdefault(instance, set())
        given_units -= set(_replaced_units(given_units, seen_units))
        given_units |= seen_units
    taken_units = {unit for given_units in held_units.values() for unit in given_units}
    for instance, devices in sorted(guests.items()):
        for parent, amount in sorted(Counter(str(mdev.parent) for mdev in devices.mdevs).items()):
            places = [unit for unit in ordered_units if unit.name.partition("/")[0] == parent]
            missing_count = amount - sum(unit in held_units[instance] for unit in places)
            more = [unit for unit in places if unit not in taken_units][: max(missing_count, 0)]
            held_units[instance].update(more)
            taken_units.update(more)
    return {instance: frozenset(given_units) for instance, given_units in held_units.items()}


def is_visible(unit: AssignedUnit) -> bool:
    """Whether a driver can see a guest have the unit: a CPU, a function or device, a namespace."""
    return (
        unit.resource_class == PCPU
        or unit.resource_class.startswith(PMEM_PREFIX)
        or is_pci_address(unit.name.partition("/")[0])
    )


def _replaced_units(
    given_units: Iterable[AssignedUnit], seen_units: Iterable[AssignedUnit]
) -> Iterator[AssignedUnit]:
    """Yield units that were given and in whose place the guest is seen to have others."""
    others = Counter(
        (unit.provider_uuid, unit.resource_class) for unit in set(seen_units) - set(given_units)
    )
    for unit in sorted(set(given_units) - set(seen_units), key=by_number, reverse=True):
        kind = unit.provider_uuid, unit.resource_class
        if others[kind]:
            others[kind] -= 1
            yield unit


def by_number(unit: AssignedUnit) -> tuple[str, int, str]:
    """Return a key that sorts CPU 9 before CPU 10, and place 9 of a function before place 10."""
    function, slash, number = unit.name.rpartition("/")
    if number.isdecimal():
        return function, int(number), ""
    return "", 0, f"{function}{slash}{number}"
