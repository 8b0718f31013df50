"""Network cards with SR-IOV in a layout."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.virt.fake.topology import fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import NicOptions, PciOptions

from .hosts_with_devices import NOTHING, PF0, devices, nic_host
from .wanted_providers import named, totals

MAC = "02:00:00:00:00:01"


class TestNics:
    """Network cards with SR-IOV."""

    NESTED = LayoutOptions(is_nested=True)

    def test_a_card_has_a_provider_and_below_it_each_port_counts_its_functions(self) -> None:
        layout = lay_out("host1", nic_host(), self.NESTED)
        assert devices(layout) == ["_NIC_0000:80:00.0", PF0, "_0000:80:00.1"]
        card = named(layout, "_NIC_0000:80:00.0")
        assert (card.inventory, card.traits, card.parent) == ({}, {"CUSTOM_NIC_ROOT"}, "numa:0")
        assert named(layout, PF0).parent == card.key
        assert totals(layout, PF0) == {"SRIOV_NET_VF": 8}
        functions = tuple(vf.address for vf in nic_host().nics[0].vfs)
        assert named(layout, PF0).units == {"SRIOV_NET_VF": functions}
        assert {"HW_NIC_SRIOV", "CUSTOM_VNIC_TYPE_DIRECT"} <= named(layout, PF0).traits

    def test_a_flat_host_has_no_cards_unless_asked_for_and_a_nested_one_unless_not(self) -> None:
        never = replace(self.NESTED, nic=NicOptions(report_vfs="never"))
        for options in (LayoutOptions(), never):
            assert devices(lay_out("host1", nic_host(), options)) == []
        always = LayoutOptions(nic=NicOptions(report_vfs="always"))
        layout = lay_out("host1", nic_host(), always)
        assert named(layout, "_NIC_0000:80:00.0").parent == ""

    def test_functions_the_host_uses_are_reserved(self) -> None:
        facts = nic_host()
        port = facts.nics[0]
        used = tuple(replace(vf, in_use_by_host=vf.index < 3) for vf in port.vfs)
        facts = replace(facts, nics=(replace(port, vfs=used), *facts.nics[1:]))
        provider = named(lay_out("host1", facts, self.NESTED), PF0)
        record = provider.inventory["SRIOV_NET_VF"]
        assert (record.total, record.reserved) == (8, 3)
        free = tuple(vf.address for vf in port.vfs[3:])
        assert provider.units == {"SRIOV_NET_VF": free}, "what the host has no guest gets"

    @pytest.mark.parametrize(
        ("port", "function", "types"),
        [
            ({"vfs": ()}, {}, set()),
            ({}, {"netdev": "eth7"}, {"DIRECT", "MACVTAP"}),
            ({"is_infiniband": True}, {"netdev": "ib7"}, {"DIRECT"}),
            ({}, {"vdpa": "vdpa0"}, {"DIRECT", "VDPA"}),
        ],
    )
    def test_the_ports_of_neutron_that_one_of_its_functions_suits_are_traits(
        self, port: dict[str, Any], function: dict[str, str], types: set[str]
    ) -> None:
        facts = nic_host()
        vfs = (replace(facts.nics[0].vfs[0], **function), *facts.nics[0].vfs[1:])
        first = replace(facts.nics[0], **{"vfs": vfs, **port})
        provider = named(lay_out("host1", replace(facts, nics=(first,)), self.NESTED), PF0)
        assert provider.inventory.keys() == ({"SRIOV_NET_VF"} if types else set())
        for name in ("DIRECT", "DIRECT_PHYSICAL", "MACVTAP", "VDPA"):
            traits = provider.traits if name in types else provider.absent_traits
            assert f"CUSTOM_VNIC_TYPE_{name}" in traits

    def test_the_physical_network_comes_from_the_mapping(self) -> None:
        options = replace(self.NESTED, nic=NicOptions(physnets={"enp128s0f0": "phys-net.a"}))
        layout = lay_out("host1", nic_host(), options)
        assert "CUSTOM_PHYSNET_PHYS_NET_A" in named(layout, PF0).traits
        assert named(layout, PF0).absent_prefixes == ("CUSTOM_PCI_TYPE_", "CUSTOM_PHYSNET_")
        assert named(layout, "_0000:80:00.1").absent_prefixes == ("CUSTOM_PCI_TYPE_",)

    def test_functions_of_infiniband_count_where_an_option_names_their_network(self) -> None:
        """A request for a function of any network means Ethernet."""
        facts = nic_host()
        first, second = facts.nics
        port = replace(first, is_infiniband=True, mac=None)
        facts = replace(facts, nics=(second,), infiniband_ports=(port,))
        without_network = lay_out("host1", facts, self.NESTED)
        assert devices(without_network) == ["_NIC_0000:80:00.0", "_0000:80:00.1"]
        vf_address = port.vfs[0].address
        specs = parse_device_specs(
            [json.dumps({"address": vf_address, "physical_network": "ib0"})], report=True
        )
        for options in (
            replace(self.NESTED, nic=NicOptions(physnets={"enp128s0f0": "ib0"})),
            replace(self.NESTED, pci=PciOptions(True, specs)),
        ):
            layout = lay_out("host1", facts, options)
            assert devices(layout) == ["_NIC_0000:80:00.0", PF0, "_0000:80:00.1"]
            assert totals(layout, PF0) == {"SRIOV_NET_VF": 8}
            assert {"CUSTOM_NIC_INFINIBAND", "CUSTOM_PHYSNET_IB0"} <= named(layout, PF0).traits
            assert "CUSTOM_NIC_INFINIBAND" in named(layout, "_0000:80:00.1").absent_traits

    @pytest.mark.parametrize(
        ("trusted", "has"),
        [(("true", "true"), True), ((None, None), False), (("false", "true"), False)],
    )
    def test_the_network_and_the_trust_of_functions_come_from_the_device_specification(
        self, trusted: tuple[str | None, str | None], has: bool
    ) -> None:
        pf = nic_host().nics[0]
        tags = {"physical_network": "net", "managed": "no" if has else "yes"}
        entries = [
            {"address": address, **tags, **({"trusted": flag} if flag else {})}
            for address, flag in zip((pf.vfs[0].address, pf.address), trusted, strict=True)
        ]
        specs = parse_device_specs(map(json.dumps, entries), report=True)
        layout = lay_out("host1", nic_host(), replace(self.NESTED, pci=PciOptions(True, specs)))
        port = named(layout, PF0)
        assert "CUSTOM_PHYSNET_NET" in port.traits
        assert ("HW_NIC_SRIOV_TRUSTED" in port.traits) is has
        assert ("HW_NIC_SRIOV_TRUSTED" in port.absent_traits) is not has
        assert (port.unmanaged_units >= set(port.units["SRIOV_NET_VF"])) is has
        other = named(layout, "_0000:80:00.1")
        assert "HW_NIC_SRIOV_TRUSTED" not in other.traits | other.absent_traits, "an operator's"
        assert not other.unmanaged_units

    def test_bandwidth_is_a_share_of_the_links_speed(self) -> None:
        options = LayoutOptions(nic=NicOptions(report_bandwidth=True, bandwidth_share=0.5))
        facts = nic_host()
        down = replace(facts.nics[1], speed_mbps=None)
        layout = lay_out("host1", replace(facts, nics=(facts.nics[0], down)), options)
        assert totals(layout, PF0) == {
            "NET_BW_EGR_KILOBIT_PER_SEC": 12_500_000,
            "NET_BW_IGR_KILOBIT_PER_SEC": 12_500_000,
        }
        assert totals(layout, "_0000:80:00.1") == {}

    def test_offloads_nobody_told_are_neither_present_nor_absent(self) -> None:
        facts = nic_host()
        rdma = replace(facts.nics[0], features=("rdma",))
        told = replace(facts.nics[1], features=("rx", "tx"))
        layout = lay_out("host1", replace(facts, nics=(rdma, told)), self.NESTED)
        first, second = named(layout, PF0), named(layout, "_0000:80:00.1")
        assert "HW_NIC_OFFLOAD_RDMA" in first.traits
        assert "HW_NIC_OFFLOAD_SWITCHDEV" in first.absent_traits
        assert "HW_NIC_OFFLOAD_TSO" not in first.traits | first.absent_traits
        assert {"HW_NIC_OFFLOAD_RX", "HW_NIC_OFFLOAD_TX"} <= second.traits
        assert "HW_NIC_OFFLOAD_TSO" in second.absent_traits

    @pytest.mark.parametrize(
        ("identities", "keys"),
        [
            ([(MAC, "A"), (None, "B")], {f"nic:{MAC}", "nic:B"}),
            ([(None, "A"), (None, None)], {"nic:A", "nic:0000:81:00.0"}),
            ([(MAC, "A"), (MAC, "B")], {"nic:0000:80:00.0", "nic:0000:81:00.0"}),
        ],
    )
    def test_the_key_of_a_card_moves_with_it_unless_another_claims_the_same(
        self, identities: list[tuple[str | None, str | None]], keys: set[str]
    ) -> None:
        facts = fake_topology("host1", replace(NOTHING, nics=2, pfs_per_nic=1))
        ports = tuple(
            replace(port, mac=mac, serial=serial)
            for port, (mac, serial) in zip(facts.nics, identities, strict=True)
        )
        layout = lay_out("host1", replace(facts, nics=ports), self.NESTED)
        assert {p.key for p in layout.providers if p.key.startswith("nic:")} == keys
