"""PCI devices in a layout that guests get whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import PciOptions

from .hosts_with_devices import PF0, devices, nic_host, pci
from .wanted_providers import named, totals


class TestPci:
    """Devices that guests get whole."""

    def test_functions_of_a_port_are_counted_on_the_port(self) -> None:
        options = LayoutOptions(pci=pci(product_id="1889"))
        layout = lay_out("host1", nic_host(vfs_per_pf=4), options)
        assert devices(layout) == [PF0, "_0000:80:00.1"]
        assert totals(layout, PF0) == {"CUSTOM_PCI_8086_1889": 4}
        assert "COMPUTE_MANAGED_PCI_DEVICE" in named(layout, PF0).traits

    def test_a_function_is_not_counted_as_pci_device_and_as_network_function(self) -> None:
        options = LayoutOptions(is_nested=True, pci=pci(product_id="1889", address="*:80:00.[01]"))
        layout = lay_out("host1", nic_host(vfs_per_pf=4), options)
        counted = sum(sum(totals(layout, name).values()) for name in (PF0, "_0000:80:00.1"))
        assert counted == 8

    def test_a_port_given_whole_counts_no_functions(self) -> None:
        options = LayoutOptions(is_nested=True, pci=pci(product_id="1593"))
        layout = lay_out("host1", nic_host(), options)
        assert totals(layout, PF0) == {"CUSTOM_PCI_8086_1593": 1}
        assert "CUSTOM_VNIC_TYPE_DIRECT_PHYSICAL" in named(layout, PF0).traits

    @pytest.mark.parametrize(
        ("entries", "reason"),
        [
            ([{"vendor_id": "8086"}], "either passed whole"),
            (
                [
                    {"address": "0001:80:00.0", "resource_class": "A"},
                    {"product_id": "1889", "resource_class": "B"},
                ],
                "different classes",
            ),
            ([{"product_id": "1889", "one_time_use": "yes"}], "one_time_use"),
            (
                [
                    {"address": "0001:80:00.0", "live_migratable": "yes"},
                    {"product_id": "1889"},
                ],
                "HW_PCI_LIVE_MIGRATABLE",
            ),
        ],
    )
    def test_a_contradiction_is_an_error_and_leaves_the_device_out(
        self, entries: list[dict[str, Any]], reason: str
    ) -> None:
        specs = parse_device_specs([json.dumps(entries)], report=True)
        layout = lay_out("host1", nic_host(), LayoutOptions(pci=PciOptions(True, specs)))
        assert any(reason in error for error in layout.errors)
        assert PF0 not in devices(layout)

    def test_the_advice_on_a_contradiction_can_be_followed(self) -> None:
        """Functions of a GPU mostly have the product id of the card."""
        facts = nic_host()
        alike = replace(
            facts,
            pci_devices=tuple(replace(d, product_id="2235") for d in facts.pci_devices),
        )
        options = LayoutOptions(pci=pci(vendor_id="8086"))
        assert "product_id 1889" in lay_out("host1", facts, options).errors[0]
        (first, _second) = lay_out("host1", alike, options).errors
        assert "product_id" not in first
        assert '"address": "0001:80:' in first

    @pytest.mark.parametrize(
        "entry",
        [
            {"product_id": "1889", "physical_network": "physnet0"},
            {"product_id": "1889", "remote_managed": "true"},
        ],
    )
    def test_devices_that_belong_to_ports_are_not_counted(self, entry: dict[str, Any]) -> None:
        assert devices(lay_out("host1", nic_host(), LayoutOptions(pci=pci(**entry)))) == []

    def test_nothing_is_counted_unless_reporting_is_on(self) -> None:
        options = LayoutOptions(pci=replace(pci(product_id="1889"), report=False))
        assert devices(lay_out("host1", nic_host(), options)) == []

    @pytest.mark.parametrize(("product", "kind"), [("1889", "VF"), ("1593", "PF")])
    def test_a_device_says_of_which_type_it_is(self, product: str, kind: str) -> None:
        layout = lay_out("host1", nic_host(), LayoutOptions(pci=pci(product_id=product)))
        device = named(layout, PF0)
        assert {t for t in device.traits if "_PCI_TYPE_" in t} == {f"CUSTOM_PCI_TYPE_{kind}"}
        assert "CUSTOM_PCI_TYPE_" in device.absent_prefixes

    @pytest.mark.parametrize(("every", "kind"), [(True, "VDPA"), (False, "VF")])
    def test_functions_are_of_type_vdpa_once_all_of_them_are(self, every: bool, kind: str) -> None:
        host = nic_host()
        functions = [device for device in host.pci_devices if device.is_vf]
        ready = functions if every else functions[:1]
        given = tuple(
            replace(device, vdpa="vdpa0") if device in ready else device
            for device in host.pci_devices
        )
        layout = lay_out(
            "host1",
            replace(host, pci_devices=given),
            LayoutOptions(pci=pci(product_id="1889")),
        )
        assert not layout.errors
        device = named(layout, PF0)
        assert {t for t in device.traits if "_PCI_TYPE_" in t} == {f"CUSTOM_PCI_TYPE_{kind}"}

    def test_tags_of_functions_are_on_their_provider_and_its_units(self) -> None:
        entry = {"product_id": "1889", "trusted": "true", "live_migratable": "yes"}
        layout = lay_out("host1", nic_host(), LayoutOptions(pci=pci(managed="no", **entry)))
        device = named(layout, PF0)
        assert {"HW_NIC_SRIOV_TRUSTED", "HW_PCI_LIVE_MIGRATABLE"} <= device.traits
        assert device.unmanaged_units == set(device.units["CUSTOM_PCI_8086_1889"])
        plain = named(lay_out("host1", nic_host(), LayoutOptions(pci=pci(product_id="1889"))), PF0)
        assert {"HW_NIC_SRIOV_TRUSTED", "HW_PCI_LIVE_MIGRATABLE"} <= plain.absent_traits
        assert not device.traits & device.absent_traits
        assert not plain.traits & plain.absent_traits
        assert not plain.unmanaged_units
