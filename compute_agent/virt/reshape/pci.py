"""Allocations of PCI devices that guests hold while placement never counted them.

They come into being in the reshape that shows the devices to placement for the first time
([pci]report_in_placement was switched on), so that nobody is offered what a guest has already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from oslo_log import log

from compute_agent.provider_tree import ProviderData
from compute_agent.virt.driver import Allocations
from compute_agent.virt.layout.devices.pci import MANAGED
from compute_agent.virt.reshape.moves import Guests, Situation, Unit, held_amount

LOG = log.getLogger(__name__)


def reasons(situation: Situation, guests: Guests) -> Iterator[str]:
    new_units = _new_units(situation)
    if not new_units:
        return
    for uuid, amounts in _held_of(new_units, guests).items():
        for unit, amount in amounts.items():
            yield (
                f"guest {uuid} holds {amount} of {unit.resource_class} on "
                f"{situation.name_of(unit.provider)}, which placement does not count yet"
            )


def heal(situation: Situation, allocations: Allocations, guests: Guests) -> None:
    """Add to `allocations` what guests hold of devices that placement sees for the first time.

    Of a guest without a record there (its migration has it, or nobody) nothing can be said; it
    is left to the audit, with a WARNING.
    """
    new_units = _new_units(situation)
    if not new_units:
        return
    for uuid, amounts in _held_of(new_units, guests).items():
        record = allocations.get(uuid)
        for unit, amount in amounts.items():
            if record is None:
                LOG.warning(
                    "Guest %s holds %d of %s on %s and has no allocations on this host: if it is "
                    "being moved, its migration has them. Nothing is allocated for the device; "
                    "compute-manage placement audit lists what is missing.",
                    uuid,
                    amount,
                    unit.resource_class,
                    situation.name_of(unit.provider),
                )
            elif missing_amount := amount - held_amount(record, unit):
                entry = record["allocations"].setdefault(unit.provider, {"resources": {}})
                resources = entry["resources"]
                resources[unit.resource_class] = (
                    resources.get(unit.resource_class, 0) + missing_amount
                )


def no_longer_reported(situation: Situation) -> Iterator[tuple[ProviderData, frozenset[str]]]:
    """Yield providers of PCI devices in placement, with the classes the layout has not for them."""
    for provider in situation.owned_providers:
        if MANAGED in provider.traits:
            wanted_provider = situation.wanted_providers.get(provider.uuid)
            wanted_inventory = wanted_provider.inventory if wanted_provider else {}
            if gone_classes := provider.inventory.keys() - wanted_inventory.keys():
                yield provider, frozenset(gone_classes)


def _new_units(situation: Situation) -> dict[str, Unit]:
    """Address of a function -> where it will be counted, for those placement does not count."""
    new_units = {}
    for uuid, wanted_provider in situation.wanted_providers.items():
        if wanted_provider.is_root or MANAGED not in wanted_provider.traits:
            continue
        stored_inventory = situation.stored_inventory(uuid)
        for resource_class, addresses in wanted_provider.units.items():
            if resource_class not in stored_inventory:
                new_units.update(dict.fromkeys(addresses, Unit(uuid, resource_class)))
    return new_units


def _held_of(new_units: Mapping[str, Unit], guests: Guests) -> dict[str, Counter[Unit]]:
    """Return what each guest holds of the new units, guests by uuid."""
    held_units = {
        uuid: Counter(
            new_units[address] for address in devices.pci_addresses if address in new_units
        )
        for uuid, devices in sorted((guests() or {}).items())
    }
    return {uuid: amounts for uuid, amounts in held_units.items() if amounts}
