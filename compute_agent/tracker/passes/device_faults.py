"""Broken devices: a mark that stays until an operator clears it, or the machine was booted again.

The driver marks the provider of a broken device with a trait and reserves all of it. Placement
keeps the mark; the ledger keeps in which boot of the machine it was seen first, and what was
reserved before: of a device that is passed through the reserve in placement counts, and only who
remembers it can give the device out again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import InventoryRecord
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY

if TYPE_CHECKING:
    from compute_agent.state.ledger import Ledger

LOG = logging.getLogger(__name__)


class DeviceFaults(Struct, eq=False):
    """The marks on the trees of one agent.

    :ivar boot: identity of this boot of the machine.
    """

    ledger: Ledger
    boot: str

    def take_off(self, tree: ProviderTree, root_uuid: str) -> frozenset[str]:
        """Take marks off that are over, before the driver sees the tree; return their providers.

        What was reserved because of them is given back.
        """
        marks = self.ledger.faults()
        reserves = self.ledger.reserves()
        over = frozenset(
            uuid
            for uuid in tree.get_provider_uuids(root_uuid)
            if marks.get(uuid, self.boot) != self.boot
        )
        for uuid in sorted(over):
            tree.remove_traits(uuid, CUSTOM_GPU_UNHEALTHY)
            inventory = tree.data(uuid).inventory
            before = reserves.get(uuid, {})
            tree.update_inventory(
                uuid, {rc: _given_back(record, before.get(rc)) for rc, record in inventory.items()}
            )
        return over

    def before_flush(self, base: ProviderTree, tree: ProviderTree, root_uuid: str) -> None:
        """Record what is reserved of devices that are about to be taken out of use.

        :param base: the tree as placement has it.
        """
        known_uuids = self.ledger.reserves()
        new_reserves = {
            uuid: {rc: _reserve_of(base, uuid, rc) for rc in tree.data(uuid).inventory}
            for uuid in tree.get_provider_uuids(root_uuid)
            if uuid not in known_uuids and CUSTOM_GPU_UNHEALTHY in tree.data(uuid).traits
        }
        self.ledger.change_faults(reserved=new_reserves)

    def remember(self, tree: ProviderTree, root_uuid: str, taken_off: frozenset[str]) -> None:
        """Record the marks on a tree that placement has now.

        :param taken_off: what `take_off` returned for it.
        """
        marks = self.ledger.faults()
        known_uuids = marks.keys() | self.ledger.reserves().keys()
        members = tree.get_provider_uuids(root_uuid)
        marked_uuids = [uuid for uuid in members if CUSTOM_GPU_UNHEALTHY in tree.data(uuid).traits]
        self.ledger.change_faults(
            seen_faults={
                uuid: self.boot for uuid in marked_uuids if uuid not in marks or uuid in taken_off
            },
            forgotten_providers=[
                uuid for uuid in members if uuid in known_uuids and uuid not in marked_uuids
            ],
        )


def _reserve_of(base: ProviderTree, uuid: str, resource_class: str) -> int:
    record = base.data(uuid).inventory.get(resource_class) if base.exists(uuid) else None
    return int(record["reserved"]) if record else 0


def _given_back(record: InventoryRecord, before: int | None) -> InventoryRecord:
    """Return the record without the reserve for a fault, unless that was changed meanwhile."""
    if before is None or record["reserved"] != record["total"]:
        return record
    return {**record, "reserved": min(before, record["total"])}
