"""Devices that a guest really holds, in terms of the providers of its host's tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.layout import names

CPU_CLASSES = ("VCPU", "PCPU")


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """A guest's devices beside the names of the providers of its host.

    :ivar root: name of the root provider.
    :ivar uuids: provider name to uuid, of the whole tree.
    """

    devices: InstanceDevices
    root: str
    uuids: Mapping[str, str]

    def allows(self, providers: Mapping[str, object]) -> bool:
        """Whether the guest can hold something of all these providers, given by uuid."""
        names_by_uuid = {uuid: name for name, uuid in self.uuids.items()}
        return all(
            self._is_allowed(names_by_uuid[uuid]) for uuid in providers if uuid in names_by_uuid
        )

    def of_cells(self, needed_amounts: Mapping[str, int]) -> Amounts:
        """Return the CPUs and memory of `needed_amounts` on the cells where the guest has them.

        Empty where that does not follow from the facts: unknown cells, CPUs of both kinds, or sums
        that are not those of the request.
        """
        kinds = [name for name in CPU_CLASSES if needed_amounts.get(name)]
        cells = self.devices.cells
        if len(kinds) != 1 or not cells:
            return {}
        if sum(cell.vcpus for cell in cells) != needed_amounts[kinds[0]]:
            return {}
        if sum(cell.memory_mib for cell in cells) != needed_amounts.get("MEMORY_MB", 0):
            return {}
        amounts: MutableAmounts = {}
        for cell in cells:
            cpus = self.uuids.get(names.cell_name(self.root, cell.cell))
            memory = self.uuids.get(self._memory_name(cell.cell))
            if cpus is None or memory is None:
                return {}
            amounts.setdefault(cpus, {})[kinds[0]] = cell.vcpus
            amounts.setdefault(memory, {})["MEMORY_MB"] = cell.memory_mib
        return amounts

    def describe(self) -> str:
        """Where the guest is, for a message."""
        cells = [f"NUMA cell {cell.cell}" for cell in self.devices.cells]
        return ", ".join([*cells, *sorted(self._addresses)])

    @property
    def _addresses(self) -> set[str]:
        return {*self.devices.pci_addresses, *(mdev.parent for mdev in self.devices.mdevs)}

    def _memory_name(self, cell: int) -> str:
        size = self.devices.page_size_kib
        if size is None:
            return names.cell_name(self.root, cell)
        return names.pages_name(self.root, cell, size)

    def _is_allowed(self, name: str) -> bool:
        if names.is_cell(self.root, name):
            own = {names.cell_name(self.root, cell.cell) for cell in self.devices.cells}
            own |= {self._memory_name(cell.cell) for cell in self.devices.cells}
            return not own or name in own
        address = names.device_address(self.root, name)
        held_addresses = self._addresses
        # a function that is not a provider itself belongs to one that cannot be seen from here
        known_addresses = {
            names.device_address(self.root, provider_name) for provider_name in self.uuids
        }
        return (
            address is None
            or not held_addresses
            or not held_addresses <= known_addresses
            or address in held_addresses
        )
