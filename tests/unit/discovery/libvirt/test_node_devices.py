"""Parsing libvirt's node devices."""

from __future__ import annotations

import pytest

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import MdevType
from compute_agent.discovery.libvirt import node_devices
from compute_agent.discovery.libvirt.facts import (
    MdevNodeDevice,
    NetNodeDevice,
    PciNodeDevice,
    VdpaNodeDevice,
)
from compute_agent.discovery.libvirt.node_devices import parse
from tests.unit.discovery.libvirt.node_devices import UUID, address, device, mdev, net, pci


def pci_device(xml: str) -> PciNodeDevice:
    parsed = parse(xml)
    assert isinstance(parsed, PciNodeDevice)
    return parsed


def mdev_device(xml: str) -> MdevNodeDevice:
    parsed = parse(xml)
    assert isinstance(parsed, MdevNodeDevice)
    return parsed


def test_a_pf_has_its_ids_its_cell_and_its_vfs_in_order() -> None:
    whole = pci_device(
        pci(
            "0000:81:00.0",
            "<capability type='virt_functions' maxCount='63'>"
            f"{address('0000:81:02.0')}{address('0000:81:01.7')}</capability>"
            "<iommuGroup number='30'/><numa node='1'/>",
        )
    )
    pf = whole.function
    assert (whole.name, pf.address) == ("pci_0000_81_00_0", "0000:81:00.0")
    assert (pf.vendor_id, pf.product_id, pf.class_code) == ("8086", "1592", "020000")
    assert pf.numa_node == 1
    assert (pf.total_vfs, pf.vfs) == (63, ("0000:81:02.0", "0000:81:01.7"))
    assert pf.physfn is None


def test_a_function_names_the_bridges_above_it() -> None:
    xml = pci("0000:81:00.0")
    path = "<path>/sys/devices/pci0000:7e/0000:7e:02.0/0000:80:01.0/0000:81:00.0</path>"
    device = pci_device(xml.replace("</name>", f"</name>{path}", 1))
    assert device.function.bridges == ("0000:7e:02.0", "0000:80:01.0")


def test_a_vf_names_its_pf() -> None:
    details = f"<capability type='phys_function'>{address('0000:81:00.0')}</capability>"
    assert pci_device(pci("0000:81:02.0", details)).function.physfn == "0000:81:00.0"


def test_a_device_without_a_cell_or_on_minus_one_has_none() -> None:
    assert pci_device(pci("0000:81:00.0")).function.numa_node is None
    assert pci_device(pci("0000:81:00.0", "<numa node='-1'/>")).function.numa_node is None
    assert pci_device(pci("0000:81:00.0", "<numa node='0'/>")).function.numa_node == 0


def test_a_domain_of_more_than_four_digits_is_kept() -> None:
    own_address = pci_device(pci("10000:e1:00.0")).function.address
    assert own_address == "10000:e1:00.0"
    assert node_devices.address_of("pci_10000_e1_00_0") == "10000:e1:00.0"
    assert node_devices.name_of(own_address) == "pci_10000_e1_00_0"


def test_the_types_of_mediated_devices_come_with_what_is_left_of_them() -> None:
    types = "".join(
        f"<type id='nvidia-{number}'><name>GRID</name><deviceAPI>vfio-pci</deviceAPI>"
        f"<availableInstances>{left}</availableInstances></type>"
        for number, left in ((36, 8), (35, 16))
    )
    gpu = pci_device(pci("0000:84:00.0", f"<capability type='mdev_types'>{types}</capability>"))
    assert gpu.mdev_types == (MdevType("nvidia-35", 16), MdevType("nvidia-36", 8))


def test_the_serial_number_is_that_of_the_read_only_product_data() -> None:
    details = (
        "<capability type='vpd'><name>A card</name><fields access='readonly'><part_number>P"
        "</part_number><serial_number>S1</serial_number></fields><fields access='readwrite'>"
        "<asset_tag>A</asset_tag></fields></capability>"
    )
    assert pci_device(pci("0000:81:00.0", details)).serial == "S1"


def test_an_interface_has_its_offloads_its_speed_and_its_parent() -> None:
    details = (
        "<address>B4:96:91:00:00:01</address><link speed='25000' state='up'/>"
        "<feature name='tx'/><feature name='rx'/>"
    )
    assert parse(net("ens1f0", "pci_0000_81_00_0", details)) == NetNodeDevice(
        interface="ens1f0",
        parent="pci_0000_81_00_0",
        mac="b4:96:91:00:00:01",
        speed_mbps=25000,
        features=("rx", "tx"),
        name="net_ens1f0_b4_96_91_00_00_01",
    )


@pytest.mark.parametrize(
    "link",
    ["", "<link speed='1000' state='down'/>", "<link state='up'/>"]
    + [f"<link speed='{speed}' state='up'/>" for speed in (65535, -1)],
)
def test_a_link_that_is_down_or_unknown_has_no_speed(link: str) -> None:
    parsed = parse(net("ens1f0", "pci_0000_81_00_0", link))
    assert isinstance(parsed, NetNodeDevice)
    assert parsed.speed_mbps is None


def test_a_mediated_device_is_known_by_its_uuid_in_both_forms_of_its_name() -> None:
    old_name = "mdev_" + UUID.replace("-", "_")
    for name in (old_name, f"{old_name}_0000_84_00_0"):
        for details in ("", f"<uuid>{UUID}</uuid><parent_addr>0000:84:00.0</parent_addr>"):
            parsed = mdev_device(mdev(name, details))
            assert (parsed.uuid, parsed.type_id) == (UUID, "nvidia-35")
            assert (parsed.parent, parsed.parent_address) == ("pci_0000_84_00_0", "0000:84:00.0")


def test_a_mediated_device_of_a_channel_has_no_pci_parent() -> None:
    details = f"<uuid>{UUID}</uuid><parent_addr>0.0.0052</parent_addr>"
    parsed = mdev_device(mdev("mdev_x", details, parent="css_0_0_0052"))
    assert (parsed.parent, parsed.parent_address) == ("css_0_0_0052", None)


def test_a_vdpa_device_has_the_kernels_name_and_its_file() -> None:
    capability = "<capability type='vdpa'><chardev>/dev/vhost-vdpa-0</chardev></capability>"
    xml = device("vdpa_vdpa0", capability, parent="pci_0000_81_02_0")
    assert parse(xml) == VdpaNodeDevice("vdpa0", "pci_0000_81_02_0", "/dev/vhost-vdpa-0")


def test_devices_of_other_kinds_are_passed_over() -> None:
    assert parse(device("computer", "<capability type='system'/>")) is None
    assert parse(net("wlan0", "pci_0000_04_00_0", "<capability type='80211'/>")) is None


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<device><name>pci_0000_81_00_0</name>",
        "<domain/>",
        device("pci_0000_81_00_0", ""),
        device("pci_0000_81_00_0", "<capability type='pci'/>"),
        pci("0000:81:00.0").replace("<bus>129</bus>", "<bus>x</bus>"),
        pci("0000:81:00.0").replace("<bus>129</bus>", "<bus>4711</bus>"),
        pci("0000:81:00.0").replace("id='0x8086'", ""),
        pci("0000:81:00.0", "<numa node='one'/>"),
        pci("0000:81:00.0", "<capability type='phys_function'><address/></capability>"),
        device("net_x", "<capability type='net'/>"),
        mdev("mdev_x", ""),
        mdev(f"mdev_{UUID}", f"<uuid>{UUID}</uuid>").replace("<type id='nvidia-35'/>", ""),
    ],
)
def test_half_a_description_is_refused_with_the_devices_name(xml: str) -> None:
    with pytest.raises(FactMalformed) as error:
        parse(xml)
    assert "expected" in str(error.value)
