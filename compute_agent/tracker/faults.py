"""Broken devices: a mark that stays until an operator clears it, or the machine was booted again.

The driver marks the provider of a broken device with a trait and reserves all of it. Placement
keeps the mark; the ledger keeps in which boot of the machine it was seen first.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.layout.application import UNHEALTHY

if TYPE_CHECKING:
    from compute_agent.state.ledger import Ledger

LOG = logging.getLogger(__name__)

UNKNOWN_BOOT = "unknown"


def boot_id(procfs_root: str) -> str:
    """Return what differs from boot to boot of the machine (proc(5), kernel/random/boot_id)."""
    path = Path(procfs_root, "sys/kernel/random/boot_id")
    try:
        return path.read_text().strip() or UNKNOWN_BOOT
    except OSError as error:
        LOG.info(
            "Marks of broken devices outlast a reboot, as %s cannot be read: %s",
            path,
            error.strerror,
        )
        return UNKNOWN_BOOT


class DeviceFaults:
    """The marks on the trees of one agent.

    :param boot: identity of this boot of the machine.
    """

    def __init__(self, ledger: Ledger, boot: str) -> None:
        self._ledger = ledger
        self._boot = boot

    def take_off(self, tree: ProviderTree, root_uuid: str) -> frozenset[str]:
        """Take marks off that are over, before the driver sees the tree; return their providers."""
        marks = self._ledger.faults()
        over = frozenset(
            uuid
            for uuid in tree.get_provider_uuids(root_uuid)
            if marks.get(uuid, self._boot) != self._boot
        )
        for uuid in sorted(over):
            tree.remove_traits(uuid, UNHEALTHY)
        return over

    def remember(self, tree: ProviderTree, root_uuid: str, taken_off: frozenset[str]) -> None:
        """Take note of the marks on a tree that placement has now.

        :param taken_off: what `take_off` returned for it.
        """
        marks = self._ledger.faults()
        members = tree.get_provider_uuids(root_uuid)
        marked = [uuid for uuid in members if UNHEALTHY in tree.data(uuid).traits]
        self._ledger.change_faults(
            seen={uuid: self._boot for uuid in marked if uuid not in marks or uuid in taken_off},
            forgotten=[uuid for uuid in members if uuid in marks and uuid not in marked],
        )
