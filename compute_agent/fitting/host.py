"""A host as the planner sees it: what is free of its cells, and of the devices below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

ORDINARY: Final = 0
"""The size of pages that are not huge."""
NEAR: Final = 10
FAR: Final = 20
"""Distances of a cell to itself and to others, where the host does not report them."""


class Core(NamedTuple):
    """A core with dedicated CPUs.

    :param cpus: those that are free, ascending.
    :param threads: all of its CPUs, those in use included.
    :param group: the L3 cache that it shares with others of its cell.
    """

    cpus: tuple[int, ...]
    threads: int
    group: int = 0


class Cell(Struct, frozen=True):
    """What of a cell is free, overcommit included. Memory in MiB.

    :ivar cores: those with dedicated CPUs, free or not; empty where only their number is known.
    :ivar pinnable: dedicated CPUs to give, which may be fewer than are free.
    :ivar vcpus: CPUs to give to guests that float.
    :ivar floating: most of them for one node: the CPUs that there are; None: `vcpus`.
    :ivar memory_mib: memory that is in no huge pages.
    :ivar own_memory_mib: most of it for one node: no guest overcommits against itself.
    :ivar pinned_memory_mib: of it for a node with pinned CPUs, or that names the size of its pages,
        which is not overcommitted.
    :ivar pages_mib: memory in huge pages, by their size in KiB.
    :ivar package: the socket; None = unknown.
    """

    id: int
    cores: tuple[Core, ...] = ()
    pinnable: int = 0
    vcpus: int = 0
    floating: int | None = None
    memory_mib: int = 0
    own_memory_mib: int | None = None
    pinned_memory_mib: int | None = None
    pages_mib: Mapping[int, int] = {}
    distances: Mapping[int, int] = {}
    package: int | None = None
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    @property
    def shareable(self) -> int:
        """CPUs that float which one node can have."""
        most = self.vcpus if self.floating is None else min(self.vcpus, self.floating)
        return max(most, 0)

    def distance(self, other: int) -> int:
        """Return the distance to another cell, or to itself."""
        return self.distances.get(other, NEAR if other == self.id else FAR)


class Device(Struct, frozen=True):
    """The units of one class that a device has.

    :ivar id: of the device, for instance the uuid of its provider.
    :ivar units: names of the free ones, in the order in which they are given; empty: no names.
    :ivar used: others have some of it.
    :ivar cell: None = it is near no cell that is known.
    :ivar link_group: devices with the same reach each other by links of their own.
    """

    id: str
    resource_class: str
    free: int
    units: tuple[str, ...] = ()
    used: bool = False
    cell: int | None = None
    pcie_root: str = ""
    link_group: str = ""
    traits: frozenset[str] = frozenset()


class Host(Struct, frozen=True):
    """Everything that may be given to one guest.

    :ivar memory_mib: ordinary memory for guests on any cell together, since some have memory that
        is on no certain one; None: what the cells have.
    """

    cells: tuple[Cell, ...] = ()
    devices: tuple[Device, ...] = ()
    memory_mib: int | None = None


class PlanOptions(Struct, frozen=True):
    """What the operator configured.

    :param packing: cells with the least room are filled first, instead of those with the most.
    :param keep_links: single devices are taken from groups of linked ones that are broken already.
    :param spare_device_cells: guests stay off cells with free devices that they have no use for.
    :param budget: steps after which the best plan so far is given.
    :param limit: steps after which it is not decided any more whether a guest fits.
    """

    packing: bool = False
    keep_links: bool = True
    spare_device_cells: bool = True
    budget: int = 2000
    limit: int = 20_000


DEFAULT_OPTIONS = PlanOptions()


def without(cores: Iterable[Core], cpus: Iterable[int]) -> tuple[Core, ...]:
    """Return the cores when `cpus` are taken."""
    taken = frozenset(cpus)
    return tuple(
        core._replace(cpus=tuple(cpu for cpu in core.cpus if cpu not in taken)) for core in cores
    )
