"""The claim of an instance on this host: a value, and its form in a file."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from compute_agent.programs.decoding import Count, Number, Whole


class AssignedUnit(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One named unit behind a count: a CPU, a PCI function, a place for a mediated device."""

    provider_uuid: str
    resource_class: str
    name: str


class ClaimedCell(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of one NUMA cell of the host that a guest has.

    :param cell: id of the cell.
    :param vcpus: CPUs of the guest that float over `shared_cpus` of the cell.
    :param pinned_cpus: CPUs of the host that are its own.
    :param page_size_kib: of the huge pages its memory is in; `None` for ordinary memory.
    """

    cell: Count
    vcpus: Count = 0
    shared_cpus: tuple[Count, ...] = ()
    pinned_cpus: tuple[Count, ...] = ()
    memory_mib: Count = 0
    page_size_kib: Count | None = None


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """The amounts, units and cells that one consumer holds on a node of this agent.

    :param consumer: the instance, or the migration that holds its resources from before the move.
    :param amounts: provider uuid to amounts by class, of providers of the node only.
    :param providers_of: request group to the providers that serve it.
    :param instance: the instance behind a migration; the consumer itself otherwise.
    :param migration: the move for which the instance was claimed again; empty for none.
    :param claimed_at: seconds since the epoch.
    :param cells: NUMA cells of the host, one for each NUMA node of the guest, in their order; empty
        for a guest that floats over the whole host.
    """

    consumer: str
    node: str
    amounts: Mapping[str, Mapping[str, Whole]]
    instance: str
    claimed_at: Number
    units: tuple[AssignedUnit, ...] = ()
    providers_of: Mapping[str, tuple[str, ...]] = {}
    migration: str = ""
    cells: tuple[ClaimedCell, ...] = ()
