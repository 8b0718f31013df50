"""Ethernet ports, their VFs, and which of them the host itself uses."""

from __future__ import annotations

import pytest

from compute_agent.discovery.facts import HostTopology, NicCard
from compute_agent.discovery.nic_cards import cards
from tests.data.kernel_formats import vpd
from tests.data.machine_builder import MachineBuilder
from tests.unit.discovery.conftest import Machine

PF = "0000:81:00.0"
ROUTE_HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"
ROUTE = f"{ROUTE_HEADER}\nens1v0\t0000A8C0\t00000000\t0001\t0\t0\t0\tFF"
LINK_LOCAL = "fe800000000000000000000000000001 05 40 20 80   ens1v0"
CX6 = {"vendor": "15b3", "product": "101d", "class_code": "020000", "driver": "mlx5_core"}


def cards_of(host: HostTopology) -> tuple[NicCard, ...]:
    return cards(host.nics, host.pci_devices)


def test_a_port_has_name_speed_address_and_vfs(machine: Machine) -> None:
    machine.nic(PF, "ens1f0", vfs=2, mac="B4:96:91:00:00:0A")
    (port,) = machine.look().nics
    assert (port.name, port.speed_mbps) == ("ens1f0", 25000)
    assert (port.mac, port.mac_permanent) == ("b4:96:91:00:00:0a", True)
    assert port.is_pf
    assert [(vf.index, vf.netdev) for vf in port.vfs] == [(0, "ens1f0v0"), (1, "ens1f0v1")]


@pytest.mark.parametrize("speed", ["-1", "0", "65535", "4294967295", None])
def test_a_link_that_is_down_has_no_speed_and_is_no_error(
    machine: Machine, speed: str | None
) -> None:
    machine.nic(PF, "ens1")
    machine.remove(f"sys/{machine.device(PF)}/net/ens1")
    machine.netdev(PF, "ens1", up=False, speed=speed)
    topology = machine.look()
    assert topology.nics[0].speed_mbps is None
    assert topology.warnings == ()


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_an_address_somebody_made_up_is_not_permanent(machine: Machine, kind: int) -> None:
    machine.nic(PF, "ens1")
    machine.sys(f"{machine.device(PF)}/net/ens1/addr_assign_type", kind)
    topology = machine.look()
    assert not topology.nics[0].mac_permanent
    assert cards_of(topology)[0].mac is None


def test_switchdev_representors_are_no_uplinks(machine: Machine) -> None:
    machine.nic(PF, "p0", vfs=2)
    machine.sys(f"{machine.device(PF)}/net/p0/phys_port_name", "p0")
    machine.sys(f"{machine.device(PF)}/net/p0/phys_switch_id", "a2b3c4")
    for index in range(2):
        machine.netdev(PF, f"eth{index}", phys_port_name=f"pf0vf{index}", phys_switch_id="a2b3c4")
    (port,) = machine.look().nics
    assert port.names == ("p0",)
    assert "switchdev" in port.features
    assert port.features == ("switchdev",)


def test_the_parts_of_a_port_that_was_split_are_uplinks(machine: Machine) -> None:
    machine.pci(PF, **CX6)  # type: ignore[arg-type]
    for part in range(4):
        machine.netdev(PF, f"eth{part}", phys_port_name=f"p1s{part}", dev_port=part)
    machine.netdev(PF, "eth9", phys_port_name="c1pf0vf3")
    machine.netdev(PF, "eth8", phys_port_name="pf0hpf")
    (port,) = machine.look().nics
    assert port.names == ("eth0", "eth1", "eth2", "eth3")


def test_two_ports_behind_one_function_are_in_order_of_their_number(machine: Machine) -> None:
    machine.pci(PF, **CX6)  # type: ignore[arg-type]
    machine.netdev(PF, "eth8", dev_port=1)
    machine.netdev(PF, "eth9", dev_port=0)
    (port,) = machine.look().nics
    assert (port.name, port.names) == ("eth9", ("eth9", "eth8"))


def test_a_virtio_card_has_its_interface_one_directory_down(machine: Machine) -> None:
    here = machine.pci(
        "0000:00:03.0", vendor="1af4", product="1041", class_code="020000", driver="virtio-pci"
    )
    machine.sys(f"{here}/virtio2/net/eth0/address", "02:00:00:00:00:01")
    (port,) = machine.look().nics
    assert (port.name, port.is_pf) == ("eth0", False)


def test_a_pf_bound_to_vfio_has_no_name_and_is_still_a_port(machine: Machine) -> None:
    machine.nic(PF, "ens1")
    machine.bind(PF, "vfio-pci")
    (port,) = machine.look().nics
    assert (port.name, port.names, port.is_pf) == (None, (), True)


def test_a_vf_bound_to_vfio_is_not_the_hosts(machine: Machine) -> None:
    first, _ = machine.nic(PF, "ens1", vfs=2)
    machine.bind(first, "vfio-pci")
    vfs = machine.look().nics[0].vfs
    assert [(vf.netdev, vf.in_use_by_host) for vf in vfs] == [(None, False), ("ens1v1", False)]


def test_a_vf_without_its_pf_is_no_port(machine: Machine) -> None:
    machine.nic(PF, "ens1", vfs=1)
    machine.remove(f"sys/{machine.device(PF)}/vendor")
    topology = machine.look()
    assert topology.nics == ()
    assert [device.physfn for device in topology.pci_devices] == [PF]


def test_the_interface_of_a_card_says_which_network_it_is_for(machine: Machine) -> None:
    """A ConnectX-3 has one class, 0280, whichever network its ports are set to."""
    for number, (name, kind) in enumerate((("enp6s0", 1), ("ibp7s0", 32))):
        address = f"0000:0{6 + number}:00.0"
        machine.pci(address, vendor="15b3", product="1003", class_code="028000")
        machine.netdev(address, name, type=kind)
        machine.sriov(address, total=8, made=1)
        vf = f"0000:0{6 + number}:00.1"
        machine.pci(vf, vendor="15b3", product="1004", class_code="028000")
        machine.virtual_function(address, 0, vf)
    topology = machine.look()
    assert [(port.name, len(port.vfs)) for port in topology.nics] == [("enp6s0", 1)]
    assert [(port.name, len(port.vfs)) for port in topology.infiniband_ports] == [("ibp7s0", 1)]


def test_a_card_of_wireless_networks_is_no_port(machine: Machine) -> None:
    machine.pci(PF, vendor="8086", product="2723", class_code="028000", driver="iwlwifi")
    here = machine.netdev(PF, "wlp129s0", type=1)
    machine.sys(f"{here}/phy80211/index", 0)
    assert machine.look().nics == ()


def test_an_infiniband_port_without_an_interface_is_known_by_its_class(machine: Machine) -> None:
    machine.pci(PF, vendor="15b3", product="101b", class_code="020700", driver="vfio-pci")
    (port,) = machine.look().infiniband_ports
    assert (port.name, port.mac) == (None, None)


def test_the_address_of_an_infiniband_interface_is_no_mac(machine: Machine) -> None:
    """Its first bytes are the number of a queue, which another start numbers otherwise."""
    machine.pci(PF, vendor="15b3", product="101b", class_code="020700")
    machine.netdev(PF, "ibp1s0", type=32, mac="00:00:10:29:fe:80" + ":00" * 6 + ":0c" * 8)
    (port,) = machine.look().infiniband_ports
    assert (port.mac, port.mac_permanent) == (None, False)


def test_a_port_that_does_rdma_says_so(machine: Machine) -> None:
    here = machine.pci(PF, **CX6)  # type: ignore[arg-type]
    machine.sys(f"{here}/infiniband/mlx5_0/node_type", "1: CA")
    (port,) = machine.look().nics
    assert "rdma" in port.features
    assert port.features == ("rdma",)


def test_a_vdpa_device_is_named_with_its_vf(machine: Machine) -> None:
    (vf,) = machine.nic(PF, "ens1", vfs=1)
    machine.sys(f"{machine.device(vf)}/vdpa0/driver_override", "")
    assert machine.look().nics[0].vfs[0].vdpa == "vdpa0"


class TestVfsOfTheHost:
    """A VF is the host's when it is enslaved, or up with an address."""

    @pytest.fixture
    def vf(self, machine: MachineBuilder) -> str:
        """Directory of the interface of a VF that is up and has no address."""
        (address,) = machine.nic(PF, "ens1", vfs=1)
        here = f"{machine.device(address)}/net/ens1v0"
        machine.sys(f"{here}/flags", "0x1003")
        return here

    def in_use(self, machine: Machine) -> bool:
        return machine.look().nics[0].vfs[0].in_use_by_host

    @pytest.mark.parametrize(
        ("flags", "addresses", "in_use"),
        [
            ("0x1003", ("net/if_inet6", LINK_LOCAL), False),
            (
                "0x1003",
                ("net/if_inet6", "20010db8000000000000000000000001 05 40 00 80 ens1v0"),
                True,
            ),
            ("0x1003", ("net/route", ROUTE), True),
            ("0x1002", ("net/route", ROUTE), False),
        ],
        ids=["up alone", "a global IPv6 address", "an IPv4 network", "down"],
    )
    def test_up_with_an_address_is_in_use(
        self,
        machine: Machine,
        vf: str,
        flags: str,
        addresses: tuple[str, str],
        in_use: bool,
    ) -> None:
        machine.sys(f"{vf}/flags", flags)
        machine.proc(*addresses)
        assert self.in_use(machine) is in_use

    def test_enslaved_is_in_use(self, machine: Machine, vf: str) -> None:
        machine.sys("devices/virtual/net/bond0/flags", "0x1003")
        machine.link(f"{vf}/master", "devices/virtual/net/bond0")
        assert self.in_use(machine)

    def test_a_vlan_with_an_address_on_it_is_in_use(self, machine: Machine, vf: str) -> None:
        machine.sys("devices/virtual/net/ens1v0.7/flags", "0x1003")
        machine.link("class/net/ens1v0.7", "devices/virtual/net/ens1v0.7")
        machine.link(f"{vf}/upper_ens1v0.7", "devices/virtual/net/ens1v0.7")
        machine.proc("net/route", f"{ROUTE_HEADER}\nens1v0.7\t0000A8C0\t0\t0001\t0\t0\t0\tFF")
        assert self.in_use(machine)

    def test_a_guests_macvtap_on_it_is_not_the_hosts(self, machine: Machine, vf: str) -> None:
        machine.sys("devices/virtual/net/macvtap0/flags", "0x1003")
        machine.link("class/net/macvtap0", "devices/virtual/net/macvtap0")
        machine.link(f"{vf}/upper_macvtap0", "devices/virtual/net/macvtap0")
        assert not self.in_use(machine)


class TestCards:
    """Ports are on one card by their slot, or by the serial number of the card."""

    def test_functions_of_one_slot_are_one_card(self, machine: Machine) -> None:
        machine.nic("0000:81:00.0", "ens1f0", mac="b4:96:91:00:00:10")
        machine.nic("0000:81:00.1", "ens1f1", mac="b4:96:91:00:00:11")
        machine.nic("0000:82:00.0", "ens2f0", mac="b4:96:91:00:00:20")
        found = cards_of(machine.look())
        assert [(card.address, card.ports) for card in found] == [
            ("0000:81:00.0", ("0000:81:00.0", "0000:81:00.1")),
            ("0000:82:00.0", ("0000:82:00.0",)),
        ]
        assert found[0].mac == "b4:96:91:00:00:10"

    @pytest.mark.parametrize(
        ("are_apart", "serial", "expected"),
        [
            (False, "MT2043X01234", [("MT2043X01234", 2)]),
            (True, "MADE-IN-SERIES", [("MADE-IN-SERIES", 1), ("MADE-IN-SERIES", 1)]),
            (False, "0123456789", [(None, 1), (None, 1)]),
        ],
        ids=["one card", "two of a series, behind two root ports", "two that were not numbered"],
    )
    def test_slots_behind_one_root_port_with_one_serial_number_are_one_card(
        self,
        machine: Machine,
        are_apart: bool,
        serial: str,
        expected: list[tuple[str | None, int]],
    ) -> None:
        ports = [
            machine.root_port(f"0000:80:0{1 + number}.0", numa_node=0, iommu_group=number)
            for number in range(2)
        ]
        for number, address in enumerate(("0000:81:00.0", "0000:82:00.0")):
            machine.nic(address, f"ens{number}", below=ports[number if are_apart else 0])
            machine.sys(f"{machine.device(address)}/vpd", vpd(serial.encode()))
        found = cards_of(machine.look())
        assert [(card.serial, len(card.ports)) for card in found] == expected

    def test_one_adapter_on_two_sockets_is_a_card_on_each(self, two_cells: Machine) -> None:
        for cell, address in enumerate(("0000:18:00.0", "0000:81:00.0")):
            two_cells.nic(address, f"ens{cell}", numa_node=cell)
            two_cells.sys(f"{two_cells.device(address)}/vpd", vpd(b"MT2043X01234"))
        assert [card.numa_node for card in cards_of(two_cells.look())] == [0, 1]

    def test_ports_that_cannot_make_vfs_are_on_no_card(self, machine: Machine) -> None:
        machine.pci(PF, **CX6)  # type: ignore[arg-type]
        topology = machine.look()
        assert cards_of(topology) == ()
        assert len(topology.nics) == 1
