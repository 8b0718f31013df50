"""Plans and refusals: the two answers of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct


class Part(Struct, frozen=True):
    """The share of one cell of the host that a guest gets. Memory in MiB.

    :param pinned_cpus: CPUs by number, where the cell names them; those of the emulator included.
    :param pinned: how many.
    :param page_size_kib: of huge pages; None = ordinary memory.
    """

    cell: int
    vcpus: int = 0
    pinned: int = 0
    pinned_cpus: tuple[int, ...] = ()
    emulator_cpus: tuple[int, ...] = ()
    memory_mib: int = 0
    page_size_kib: int | None = None


class Grant(Struct, frozen=True):
    """The units of a device that serve a wish."""

    wish: str
    device: str
    resource_class: str
    amount: int
    units: tuple[str, ...] = ()


class Cost(NamedTuple):
    """What a plan costs; of two plans the one with the less is better. In the order of weight.

    :param far: devices that are preferred near and are not.
    :param distance: sum of the distances between the cells of the guest, and from each of them to
        each of its devices.
    :param link_groups: groups of links, beyond the first, over which equal devices are scattered.
    :param pcie_roots: PCIe roots, likewise.
    :param broken_links: groups of linked devices that were whole and of which it has a part.
    :param device_cells: kinds of free devices on the cells of the guest that it has no use for.
    :param fractions: CPUs on cores that it has not to itself.
    :param room: how much the cells have, or lack, by how they are to be filled.
    """

    far: int = 0
    distance: int = 0
    link_groups: int = 0
    pcie_roots: int = 0
    broken_links: int = 0
    device_cells: int = 0
    fractions: int = 0
    broken_cores: int = 0
    l3_groups: int = 0
    l3_fractions: int = 0
    room: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()


class DeviceCost(NamedTuple):
    """The part of the cost of a plan that devices have."""

    far: int
    distance: int
    link_groups: int
    pcie_roots: int
    broken_links: int
    devices: tuple[int, ...]


class Plan(Struct, frozen=True):
    """What a guest gets.

    :ivar parts: of each node in order; of a guest that names none, of each cell that it lies on.
    :ivar given: the devices, in the order of the wishes.
    :ivar is_best: none is better; else the budget of steps ended before all were compared.
    :ivar steps: what was tried.
    """

    parts: tuple[Part, ...]
    given: tuple[Grant, ...]
    cost: Cost
    is_best: bool = True
    steps: int = 0


CPUS: Final = "floating CPUs"
PINNED: Final = "pinned CPUs"
THREADS: Final = "threads of cores"
MEMORY: Final = "memory"
PAGES: Final = "huge pages"
TOGETHER: Final = "all on one cell"
CELLS: Final = "cells of their own"
DEVICES: Final = "devices"
NEARNESS: Final = "nearness of devices"
NETWORKS: Final = "nearness of networks"
UNDECIDED: Final = "steps"
"""Whether the guest fits is not known: more steps would have been needed than are allowed."""
UNNAMED: Final = "some rule"
"""That the guest does not fit is proved; which rule keeps it off would have taken more steps."""


class Refusal(Struct, frozen=True):
    """Why a guest does not fit: the first rule that cannot be kept.

    :ivar rule: one of the above.
    :ivar node: the node for which it cannot; None = the guest.
    :ivar wanted: in words.
    :ivar free: what there is of it, in words, by cell.
    :ivar miss: what is lacking where the least is lacking; "" = that cannot be counted.
    :ivar steps: what the proof cost.
    """

    rule: str
    node: int | None
    wanted: str
    free: Mapping[int, str]
    miss: str = ""
    steps: int = 0

    @property
    def is_undecided(self) -> bool:
        """Whether it may be that the guest fits."""
        return self.rule == UNDECIDED

    @property
    def sentence(self) -> str:
        """The refusal in one sentence, without a full stop."""
        if self.is_undecided:
            return f"the fit of the guest could not be decided within {self.steps} steps"
        if self.rule == UNNAMED:
            return (
                "the guest does not fit, which is proved; the rule that cannot be kept was not "
                f"found within {self.steps} steps"
            )
        subject = "the guest" if self.node is None else f"its node {self.node}"
        cells = "; ".join(f"cell {cell}: {text}" for cell, text in sorted(self.free.items()))
        nearest = f"; the least is lacking on {self.miss}" if self.miss else ""
        return f"{subject} wants {self.wanted}; free are {cells or 'no cells'}{nearest}"
