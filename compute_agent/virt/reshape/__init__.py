"""Moves inventory that may be in use to where the layout has it now, and its allocations with it.

    VCPU of pinned guests            -> PCPU, one for one
    VGPU on the root                 -> the GPU each consumer's mediated devices are on
    VGPU on VFs of a GPU             -> the GPU, and back
    a class under another name       -> the new name, on any provider
    MEM_ENCRYPTION_CONTEXT on root   -> <root>_amd_sev
    VCPU, PCPU, MEMORY_MB on root    -> NUMA cells, and back
    PCI devices that guests hold     -> allocations, when placement begins to count the devices

Whether a reshape is due is asked of the tree alone, so it is not on the result of one. A provider
that only gets another parent is not reshaped: its allocations stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator

from compute_agent.virt.driver import Allocations
from compute_agent.virt.layout.application import Ratios
from compute_agent.virt.layout.compute_resources import ENCRYPTION_CLASS as ENCRYPTION_CLASS
from compute_agent.virt.layout.compute_resources import encryption_key
from compute_agent.virt.reshape import cells, gpus, pci, renames
from compute_agent.virt.reshape.moves import DevicesOf, Guests, Situation, Unit, move_all

__all__ = ["DevicesOf", "Guests", "Situation", "move_allocations", "reasons"]


def reasons(situation: Situation, guests: Guests) -> Iterator[str]:
    """Say why a reshape is due, one clause each; nothing = it is not.

    :param guests: what the guests hold that run here; asked only if it matters.
    """
    yield from cells.reasons(situation, guests)
    yield from gpus.reasons(situation)
    yield from renames.reasons(situation)
    yield from pci.reasons(situation, guests)
    if (encryption := _encryption_move(situation)) and ENCRYPTION_CLASS in situation.root.inventory:
        yield (
            f"{ENCRYPTION_CLASS} moves from {situation.root.name} to "
            f"{situation.name_of(encryption[1].provider)}"
        )


def move_allocations(
    situation: Situation,
    allocations: Allocations,
    devices_of: DevicesOf,
    ratios: Ratios,
    guests: Guests,
) -> None:
    """Edit `allocations` in place so that everything held is held where the layout has it.

    The tree is not touched. Providers that the layout adds are named by the uuids they will have.

    :raises ReshapeFailed: all consumers that cannot be moved, and why.
    """
    renames.move(situation, allocations)
    gpus.move(situation, allocations, devices_of, guests)
    if encryption := _encryption_move(situation):
        move_all(allocations, *encryption)
    cells.move(situation, allocations, devices_of, ratios)
    pci.heal(situation, allocations, guests)


def _encryption_move(situation: Situation) -> tuple[Unit, Unit] | None:
    """Before there were providers for it the root had it, and only one kind existed."""
    target = situation.identities.uuids.get(encryption_key("amd_sev"))
    if target is None:
        return None
    return Unit(situation.identities.root, ENCRYPTION_CLASS), Unit(target, ENCRYPTION_CLASS)
