"""CPUs and memory between the root and its NUMA cells, and from floating to dedicated CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oslo_log import log

from compute_agent import errors
from compute_agent.provider_tree import ProviderData, child_uuid
from compute_agent.virt.driver import Allocations, InstanceDevices
from compute_agent.virt.layout.application import Ratios, is_cell
from compute_agent.virt.layout.compute_resources import cell_key, pages_key
from compute_agent.virt.reshape.moves import (
    DevicesOf,
    Guests,
    Situation,
    Unit,
    held_amount,
    move_all,
    shift,
    used_amount,
)
from compute_agent.virt.reshape.packing import ClassAmounts, Demand, pack

LOG = log.getLogger(__name__)

CELL_CLASSES = ("VCPU", "PCPU", "MEMORY_MB")


def reasons(situation: Situation, guests: Guests) -> Iterator[str]:
    root = situation.root
    if situation.layout.is_nested:
        moving = [rc for rc in CELL_CLASSES if rc in root.inventory]
        if moving:
            yield f"{', '.join(moving)} move from {root.name} to its NUMA cells"
    else:
        stored_classes = {rc for provider in _cells(situation) for rc in provider.inventory}
        moving = [rc for rc in CELL_CLASSES if rc in stored_classes]
        if moving:
            yield f"{', '.join(moving)} move from the NUMA cells of {root.name} to {root.name}"
    if _first_dedicated_cpus(situation) and any(
        devices.pinned_cpus for devices in (guests() or {}).values()
    ):
        yield f"VCPU of guests with pinned CPUs on {root.name} become PCPU"


def move(
    situation: Situation, allocations: Allocations, devices_of: DevicesOf, ratios: Ratios
) -> None:
    """Edit `allocations` in place. Raises ReshapeFailed naming every consumer without room."""
    if any("PCPU" in wanted_provider.inventory for wanted_provider in situation.layout.providers):
        _dedicate(situation, allocations, devices_of)
    if situation.layout.is_nested:
        _root_to_cells(situation, allocations, devices_of, ratios)
    else:
        for uuid in _cell_uuids(situation):
            for resource_class in CELL_CLASSES:
                target = Unit(situation.identities.root, resource_class)
                move_all(allocations, Unit(uuid, resource_class), target)


def _cells(situation: Situation) -> Iterator[ProviderData]:
    return (p for p in situation.owned_providers if is_cell(p, situation.layout.root.name))


def _cell_uuids(situation: Situation) -> list[str]:
    """Uuids of all cells there are or were: a tree edited half may lack some already."""
    root_uuid = situation.identities.root
    uuids = [provider.uuid for provider in _cells(situation)]
    for cell in situation.topology.cells:
        uuids.append(child_uuid(root_uuid, cell_key(cell.id)))
        uuids.extend(child_uuid(root_uuid, pages_key(cell.id, p.size_kib)) for p in cell.huge_pages)
    return list(dict.fromkeys(uuids))


def _first_dedicated_cpus(situation: Situation) -> bool:
    """Whether dedicated CPUs were configured and placement knows of none yet."""
    stored_classes = {rc for p in (situation.root, *_cells(situation)) for rc in p.inventory}
    has_pinned_cpus = any(
        "PCPU" in wanted_provider.inventory for wanted_provider in situation.layout.providers
    )
    return has_pinned_cpus and "VCPU" in stored_classes and "PCPU" not in stored_classes


def _dedicate(situation: Situation, allocations: Allocations, devices_of: DevicesOf) -> None:
    """Turn VCPU into PCPU for guests that have CPUs of their own and hold no PCPU yet."""
    providers = [situation.identities.root, *_cell_uuids(situation)]
    for consumer, record in sorted(allocations.items()):
        if any(held_amount(record, Unit(uuid, "PCPU")) for uuid in providers):
            continue
        if not any(held_amount(record, Unit(uuid, "VCPU")) for uuid in providers):
            continue
        devices = devices_of(consumer)
        cpus_left = len(devices.pinned_cpus) if devices else 0
        for uuid in providers:
            amount = min(cpus_left, held_amount(record, Unit(uuid, "VCPU")))
            shift(record, Unit(uuid, "VCPU"), Unit(uuid, "PCPU"), amount)
            cpus_left -= amount


def _root_to_cells(
    situation: Situation, allocations: Allocations, devices_of: DevicesOf, ratios: Ratios
) -> None:
    pools = _Pools(situation, ratios)
    demands = [
        demand
        for consumer, record in sorted(allocations.items())
        if (demand := pools.demand(consumer, record, devices_of))
    ]
    packing = pack(demands, pools.room(allocations))
    if packing.misfits:
        misfit_texts = "; ".join(
            f"consumer {misfit.consumer} lacks "
            + ", ".join(f"{amount} {kind}" for kind, amount in misfit.missing_amounts.items())
            for misfit in packing.misfits
        )
        raise errors.ReshapeFailed(
            error=f"not everything allocated on {situation.root.name} fits on its NUMA cells: "
            f"{misfit_texts}. Move these guests away, or switch "
            "[compute]enable_numa_reporting_to_placement off again"
        )
    for demand in demands:
        record = allocations[demand.consumer]
        for cell, amounts in sorted(packing.parts[demand.consumer].items()):
            for kind, amount in sorted(amounts.items()):
                target, step = pools.target(cell, kind)
                source = Unit(situation.identities.root, target.resource_class)
                shift(record, source, target, amount * step)


class _Pools:
    """What cells have, as kinds the packing can distinguish.

    A kind is a resource class, or `MEMORY_MB in <KiB> KiB pages`, which is counted in pages (the
    provider gives out whole ones) and lives on a provider of its own below the cell.
    """

    def __init__(self, situation: Situation, ratios: Ratios) -> None:
        self._situation = situation
        self._ratios = ratios
        self._targets: dict[tuple[int, str], tuple[Unit, int]] = {}
        self._page_kinds: dict[int, str] = {}
        self._provider_of = situation.layout.provider_of
        self._cells = sorted(set(self._provider_of.values()))
        uuids = situation.identities.uuids
        for cell in self._cells:
            key = cell_key(cell)
            for resource_class in situation.layout.provider(key).inventory:
                self._targets[cell, resource_class] = Unit(uuids[key], resource_class), 1
        for wanted_provider in situation.layout.providers:
            kind, _colon, rest = wanted_provider.key.partition(":")
            if kind == "pages" and (record := wanted_provider.inventory.get("MEMORY_MB")):
                cell_id, _colon, size = rest.partition(":")
                page_kind = f"MEMORY_MB in {size} KiB pages"
                self._page_kinds[int(size)] = page_kind
                unit = Unit(uuids[wanted_provider.key], "MEMORY_MB")
                self._targets[int(cell_id), page_kind] = unit, record.step_size
        self._home: dict[int, int] = {
            cpu: self._provider_of[cell.id]
            for cell in situation.topology.cells
            if cell.id in self._provider_of
            for cpu in cell.cpus
        }

    def target(self, cell: int, kind: str) -> tuple[Unit, int]:
        """Return where a kind lives, and the units of one step; unknown kinds are on the cell."""
        cell_uuid = self._situation.identities.uuids[cell_key(cell)]
        return self._targets.get((cell, kind), (Unit(cell_uuid, kind), 1))

    def room(self, allocations: Allocations) -> dict[int, dict[str, int]]:
        """Return steps that are free, by cell and kind."""
        room: dict[int, dict[str, int]] = {cell: {} for cell in self._cells}
        for (cell, kind), (unit, step) in self._targets.items():
            free = self._capacity(unit) - used_amount(allocations, unit)
            room[cell][kind] = max(free, 0) // step
        return room

    def demand(
        self, consumer: str, record: Mapping[str, Any], devices_of: DevicesOf
    ) -> Demand | None:
        """Return what a consumer holds of the root and where its guest has it; None = nothing."""
        root_uuid = self._situation.identities.root
        amounts = {rc: held_amount(record, Unit(root_uuid, rc)) for rc in CELL_CLASSES}
        amounts = {rc: amount for rc, amount in amounts.items() if amount}
        if not amounts:
            return None
        devices = devices_of(consumer)
        if devices is None:
            return Demand(consumer, amounts)
        amounts = self._in_pages(consumer, amounts, devices.page_size_kib)
        return Demand(consumer, amounts, self._place(amounts, devices))

    def _in_pages(
        self, consumer: str, amounts: dict[str, int], page_size_kib: int | None
    ) -> dict[str, int]:
        kind = self._page_kinds.get(page_size_kib or 0)
        memory = amounts.get("MEMORY_MB", 0)
        if kind is None or not memory:
            return amounts
        step = max((page_size_kib or 0) // 1024, 1)
        if memory % step:
            LOG.warning(
                "Consumer %s holds %d MEMORY_MB, which is not a whole number of the pages of "
                "%d KiB that its guest has: it is counted as memory in small pages.",
                consumer,
                memory,
                page_size_kib,
            )
            return amounts
        others = {rc: amount for rc, amount in amounts.items() if rc != "MEMORY_MB"}
        return {**others, kind: memory // step}

    def _place(self, amounts: ClassAmounts, devices: InstanceDevices) -> dict[int, dict[str, int]]:
        """Weights by cell: its CPUs are where they are, the rest is in the cells of the guest."""
        place: dict[int, dict[str, int]] = {}

        def add(cell: int, kind: str, weight: int) -> None:
            weights = place.setdefault(cell, {})
            weights[kind] = weights.get(kind, 0) + weight

        for cpu in devices.pinned_cpus:
            if cpu in self._home:
                for kind in ("PCPU",) if devices.cells else ("VCPU", "PCPU"):
                    add(self._home[cpu], kind, 1)
        for cell_use in devices.cells:
            if cell_use.cell not in self._provider_of:
                continue
            for kind in amounts:
                if kind == "VCPU" or (kind == "PCPU" and not devices.pinned_cpus):
                    add(self._provider_of[cell_use.cell], kind, cell_use.vcpus)
                elif kind != "PCPU":
                    add(self._provider_of[cell_use.cell], kind, cell_use.memory_mib)
        return place

    def _capacity(self, unit: Unit) -> int:
        record = self._situation.wanted_providers[unit.provider].inventory[unit.resource_class]
        stored_record = self._situation.stored_inventory(unit.provider).get(unit.resource_class)
        ratio = self._ratios.of(unit.resource_class, record, stored_record)
        return int((record.total - min(record.reserved, record.total)) * ratio)
