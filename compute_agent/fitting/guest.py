"""A guest as the planner sees it: its nodes, its devices, its networks."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from compute_agent.fitting.host import ORDINARY, Device

REQUIRE: Final = "require"
ISOLATE: Final = "isolate"
"""Thread policies that refuse CPUs; without one, whole cores are taken before halves."""

REQUIRED: Final = "required"
SOCKET: Final = "socket"
PREFERRED: Final = "preferred"
LEGACY: Final = "legacy"
"""How near a device must be: on a cell of the guest; on one of the same socket; if possible; on a
cell of the guest where its own is known."""

ORDINARY_PAGES: Final = frozenset((ORDINARY,))


class Node(Struct, frozen=True):
    """One NUMA node of a guest; memory in MiB.

    :param vcpus: those that float.
    :param emulator_cpus: dedicated CPUs for the threads of the emulator, beside the pinned ones.
    :param page_sizes: sizes in KiB of pages of which its memory must be in one; `ORDINARY` is one.
    :param cell: the cell that it must be on; None = any.
    :param names_pages: the size of its pages was asked for, which then are not overcommitted.
    """

    vcpus: int = 0
    pinned: int = 0
    memory_mib: int = 0
    page_sizes: frozenset[int] = ORDINARY_PAGES
    emulator_cpus: int = 0
    cell: int | None = None
    names_pages: bool = False


class Wish(Struct, frozen=True):
    """Units of one class that one device must give.

    :param name: its request group.
    :param required: sets of traits; of each set the device must have one.
    :param nearness: one of the policies above; "" = it may be anywhere.
    :param node: the node that it is for; None = the guest.
    :param devices: those that it may be of; None = any.
    """

    name: str
    resource_class: str
    amount: int = 1
    required: frozenset[frozenset[str]] = frozenset()
    forbidden: frozenset[str] = frozenset()
    nearness: str = ""
    node: int | None = None
    devices: frozenset[str] | None = None

    def may_be(self, device: Device) -> bool:
        """Whether a device is of the kind, wherever it is and however much of it is free."""
        return (
            device.resource_class == self.resource_class
            and (self.devices is None or device.id in self.devices)
            and not self.forbidden & device.traits
            and all(traits & device.traits for traits in self.required)
        )


class Guest(Struct, frozen=True):
    """What a guest needs.

    :ivar nodes: each on a cell of its own; or the whole guest, where it names none.
    :ivar names_nodes: if not, it lies on one cell where it can, else on the fewest.
    :ivar floats: it is on no cell: its CPUs and memory may be anywhere.
    :ivar threads: `REQUIRE`, `ISOLATE`, or anything else for none.
    :ivar physnets: networks of which a cell of the guest must be near, where any cell is.
    """

    nodes: tuple[Node, ...] = ()
    names_nodes: bool = True
    floats: bool = False
    threads: str = ""
    wishes: tuple[Wish, ...] = ()
    physnets: frozenset[str] = frozenset()
    needs_tunnel: bool = False
