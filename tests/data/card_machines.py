"""Machines that differ in their cards: networks, accelerators, domains of the PCI bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.data.kernel_formats import vpd
from tests.data.machine_builder import MachineBuilder
from tests.data.machine_parts import GIB, add_cells, machine_named


def four_domains() -> MachineBuilder:
    """Four PCI domains, in each of which a card has the same bus; two domains to a socket."""
    machine = machine_named("four-domains")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=32 * GIB)
    for domain in range(4):
        machine.nic(
            f"000{domain}:01:00.0",
            f"enP{domain}p1s0",
            vfs=2,
            numa_node=domain // 2,
            mac=f"b4:96:91:0d:{domain:02x}:00",
            iommu_group=20 + 10 * domain,
        )
    return machine


def instinct() -> MachineBuilder:
    """Four GPUs of AMD in one hive, each with a function for guests, and the screen of the BMC."""
    machine = machine_named("instinct")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=4, cell_kib=128 * GIB)
    for number, bus in enumerate(("05", "26", "85", "a6")):
        gpu, vf = f"0000:{bus}:00.0", f"0000:{bus}:02.0"
        ids = {"vendor": "1002", "class_code": "120000", "numa_node": number // 2}
        here = machine.pci(gpu, product="74a1", iommu_group=10 + number, **ids)  # type: ignore[arg-type]
        machine.sriov(gpu, total=1, made=1)
        machine.pci(vf, product="74b5", iommu_group=20 + number, **ids)  # type: ignore[arg-type]
        machine.virtual_function(gpu, 0, vf)
        machine.sys(f"{here}/mem_info_vram_total", 192 << 30)
        machine.sys(f"{here}/product_name", "AMD Instinct MI300X OAM")
        machine.sys(f"{here}/unique_id", f"5c88007c8c2e7f0{number}")
        machine.sys(f"{here}/xgmi_hive_info/xgmi_hive_id", "11836410862103441712")
    machine.pci("0000:03:00.0", vendor="1a03", product="2000", class_code="030000")
    return machine


def vpi_cards() -> MachineBuilder:
    """Cards for either network, which have one class: one set to Ethernet, one to InfiniBand.

    Beside them a port of 40 Gbit/s that was split in four, and two boards of one serial number.
    """
    machine = machine_named("vpi-cards")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=32 * GIB)
    for cell, (bus, name, kind) in enumerate((("21", "enp33s0", 1), ("e1", "ibpe1s0", 32))):
        card = f"0000:{bus}:00.0"
        machine.pci(card, vendor="15b3", product="1003", class_code="028000", numa_node=cell)
        mac = "b4:96:91:00:21:00" if kind == 1 else "80:00:00:48" + ":fe" * 16
        machine.netdev(card, name, type=kind, mac=mac)
        machine.sriov(card, total=8, made=2)
        for number in range(2):
            vf = f"0000:{bus}:00.{number + 1}"
            machine.pci(vf, vendor="15b3", product="1004", class_code="028000", numa_node=cell)
            machine.virtual_function(card, number, vf)
    split = "0000:05:00.0"
    machine.pci(split, vendor="19ee", product="4000", class_code="020000", driver="nfp")
    machine.sriov(split, total=48, made=0)
    for part in range(4):
        machine.netdev(
            split,
            f"enp5s0np0s{part}",
            mac=f"00:15:4d:13:00:{part:02x}",
            phys_port_name=f"p0s{part}",
            dev_port=part,
        )
    for slot in range(2):
        board = f"0000:4{slot + 1}:00.0"
        machine.pci(board, vendor="14e4", product="16a2", class_code="020000", driver="bnx2x")
        machine.netdev(board, f"ens{slot}", mac=f"00:0a:f7:00:0{slot}:00", addr_assign_type=3)
        machine.sriov(board, total=16, made=0)
        machine.sys(f"{machine.device(board)}/vpd", vpd(b"0123456789"))
    return machine


def infiniband() -> MachineBuilder:
    """A card of InfiniBand with four functions, and one with the default route of the host."""
    machine = machine_named("infiniband")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=64 * GIB)
    card = "0000:12:00.0"
    machine.pci(card, vendor="15b3", product="101b", class_code="020700", driver="mlx5_core")
    machine.netdev(card, "ibp18s0", type=32, mac="00:00:10:29:fe:80" + ":00" * 14)
    machine.sriov(card, total=16, made=4)
    for number in range(4):
        vf = f"0000:12:00.{number + 1}"
        machine.pci(vf, vendor="15b3", product="101c", class_code="020700", driver="mlx5_core")
        machine.virtual_function(card, number, vf)
    machine.nic("0000:31:00.0", "ens1", vfs=2, numa_node=1, iommu_group=50)
    machine.proc(
        "net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "ens1\t00000000\t0100000A\t0003\t0\t0\t0\t00000000",
    )
    return machine


CARD_MACHINES: Final[dict[str, Callable[[], MachineBuilder]]] = {
    "four-domains": four_domains,
    "instinct": instinct,
    "vpi-cards": vpi_cards,
    "infiniband": infiniband,
}
