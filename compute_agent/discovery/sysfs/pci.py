"""PCI functions: what they are, which NUMA cell they hang off, and their virtual functions.

    bus/pci/devices/0000:81:00.0  ->  ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0
        vendor device class ...          one number each
        virtfn0       -> ../0000:81:00.2            on a PF, one for each VF that exists
    bus/pci/devices/0000:81:00.2
        physfn        -> ../0000:81:00.0            on a VF

Source: Documentation/ABI/testing/sysfs-bus-pci of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import CellId, NumaCell, PciAddress, PciDevice
from compute_agent.discovery.pci_address import is_pci_address, order, pci_address
from compute_agent.discovery.sysfs.reader import Machine

DEVICES = "bus/pci/devices"

# what must be there: without one of these a function is left out
VENDOR = "vendor"
PRODUCT = "device"
CLASS = "class"
# what may be there
NUMA_NODE = "numa_node"
LOCAL_CPULIST = "local_cpulist"
TOTAL_VFS = "sriov_totalvfs"
PHYSFN = "physfn"
DRIVER = "driver"
IOMMU_GROUP = "iommu_group"
VFIO_DEVICE = "vfio-dev"  # while a VFIO driver has it, also one of another name
ROOT_BUS = "pci"  # beginning of its directory: pci0000:80

_VIRTFN = re.compile(r"virtfn(\d+)")
_VDPA = re.compile(r"vdpa\d+")

NETWORK = "02"
ETHERNET = "0200"
INFINIBAND = "0207"
"""First digits of the class code: network controller, and kinds of them."""


class PciFunction(Struct, frozen=True):
    """A function and the names in its directory, by which other finders know where to look."""

    device: PciDevice
    entries: frozenset[str]
    vf_numbers: tuple[int, ...] = ()
    """The number of each of `device.vfs`, in the same order."""

    @property
    def directory(self) -> str:
        return f"{DEVICES}/{self.device.address}"


PciFunctions = Mapping[PciAddress, PciFunction]


def driver_of(machine: Machine, address: str) -> str | None:
    """Return the name of the driver that a function is bound to; None when it has none."""
    return machine.sys.link_name(f"{DEVICES}/{address}/{DRIVER}")


def can_be_passed(machine: Machine, address: str) -> bool:
    """Return whether a function is bound to a VFIO driver, the generic one or the vendor's own."""
    driver = driver_of(machine, address) or ""
    return "vfio" in driver or VFIO_DEVICE in machine.sys.names(f"{DEVICES}/{address}")


def discover(machine: Machine, cells: tuple[NumaCell, ...]) -> dict[PciAddress, PciFunction]:
    """Read every PCI function, by address; one that cannot be read is left out with a warning."""
    locality = Locality(machine, cells)
    functions: dict[PciAddress, PciFunction] = {}
    for name in machine.sys.names(DEVICES):
        try:
            address = pci_address(name)
        except ValueError as error:
            machine.warn(f"{machine.sys.path(DEVICES)}: {error}; left out")
            continue
        try:
            functions[address] = _function(
                machine, address, f"{DEVICES}/{name}", locality, functions
            )
        except DiscoveryError as error:
            machine.warn(f"{error}; PCI device {address} left out")
    ordered_addresses = sorted(functions, key=order)
    return {
        address: _with_vfs(machine, functions[address], functions) for address in ordered_addresses
    }


class Locality:
    """Finds the cell a device hangs off.

    Firmware often does not report it (`numa_node` -1). Then the CPUs near the device may still lie
    on one cell only; else the cell stays unknown, and an operator can name it by option.
    """

    def __init__(self, machine: Machine, cells: Iterable[NumaCell]) -> None:
        self._machine = machine
        self._ids = frozenset(cell.id for cell in cells)
        self._cell_of = {cpu: cell.id for cell in cells for cpu in cell.cpus}

    def of(self, directory: str) -> CellId | None:
        tree = self._machine.sys
        node = tree.optional_integer(f"{directory}/{NUMA_NODE}")
        if node is not None and node >= 0:
            if node in self._ids:
                return CellId(node)
            self._machine.warn(
                f"{tree.path(directory)}/{NUMA_NODE} names node {node}, which this host does not"
                " have; the device's cell is unknown"
            )
            return None
        text = tree.optional_text(f"{directory}/{LOCAL_CPULIST}")
        try:
            near = frozenset(cpu_list.parse(text or ""))
        except ValueError as error:
            self._machine.warn(f"{tree.path(directory)}/{LOCAL_CPULIST}: {error}; ignored")
            return None
        cells = {cell for cpu, cell in self._cell_of.items() if cpu in near}
        return cells.pop() if len(cells) == 1 else None


def _function(
    machine: Machine,
    address: PciAddress,
    here: str,
    locality: Locality,
    functions: Mapping[PciAddress, PciFunction],
) -> PciFunction:
    """Read a function.

    :param functions: those read before it; a VF, whose address is higher, is where its PF is.
    """
    tree = machine.sys
    entries = frozenset(tree.names(here))
    is_vf = PHYSFN in entries
    physfn = _physfn(machine, here) if is_vf else None
    pf = None if physfn is None else functions.get(physfn)
    total_vfs = tree.optional_integer(f"{here}/{TOTAL_VFS}") if TOTAL_VFS in entries else 0
    device = PciDevice(
        address=address,
        vendor_id=tree.hexadecimal(f"{here}/{VENDOR}", 4),
        product_id=tree.hexadecimal(f"{here}/{PRODUCT}", 4),
        class_code=tree.hexadecimal(f"{here}/{CLASS}", 6),
        numa_node=locality.of(here) if pf is None else pf.device.numa_node,
        bridges=() if is_vf else bridges(tree.link(here) or ""),
        physfn=physfn,
        total_vfs=max(0, total_vfs or 0),
        vdpa=min(
            (name for name in entries if name.startswith("vdpa") and _VDPA.fullmatch(name)),
            default=None,
        ),
    )
    return PciFunction(device, entries)


def bridges(target: str) -> tuple[PciAddress, ...]:
    """Return the functions between the device's root bus and the device, by its path.

    Behind Intel VMD the root bus lies below a device of another one: what is above it is no bridge.
    """
    above: list[PciAddress] = []
    for part in target.split("/")[:-1]:
        if part.startswith(ROOT_BUS):
            above.clear()
        elif is_pci_address(part):
            above.append(PciAddress(part))
    return tuple(above)


def _physfn(machine: Machine, here: str) -> PciAddress | None:
    name = machine.sys.link_name(f"{here}/{PHYSFN}")
    try:
        return None if name is None else pci_address(name)
    except ValueError as error:
        machine.warn(f"{machine.sys.path(here)}/{PHYSFN}: {error}; ignored")
        return None


def _with_vfs(
    machine: Machine, function: PciFunction, functions: Mapping[PciAddress, PciFunction]
) -> PciFunction:
    """Return the function with its VFs: the links that resolve, not `sriov_numvfs`.

    The links are what guests can have; while the number is being changed the two differ.
    """
    links = (name for name in function.entries if name.startswith("virtfn"))
    numbers = [int(match[1]) for match in map(_VIRTFN.fullmatch, links) if match]
    if not numbers:
        return function
    vfs: dict[int, PciAddress] = {}
    for number in sorted(numbers):
        link = f"{function.directory}/virtfn{number}"
        name = machine.sys.link_name(link)
        try:
            address = pci_address(name or "")
        except ValueError as error:
            machine.warn(f"{machine.sys.path(link)}: {error}; VF {number} left out")
            continue
        if address in functions:
            vfs[number] = address
        else:
            machine.warn(
                f"{machine.sys.path(link)} points to {address}, which does not exist or could not"
                " be read; VF left out"
            )
    device = replace(function.device, vfs=tuple(vfs.values()))
    return replace(function, device=device, vf_numbers=tuple(vfs))


def network_kind(class_code: str) -> str | None:
    """Return ETHERNET or INFINIBAND for a function of that class; None for any other."""
    return next((kind for kind in (ETHERNET, INFINIBAND) if class_code.startswith(kind)), None)
