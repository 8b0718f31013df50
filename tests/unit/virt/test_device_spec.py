"""Device specifications: what they match, what they say, and how wrong ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress, PciDevice
from compute_agent.virt.layout.device_spec import DeviceSpec, parse_device_specs

PF = PciDevice(PciAddress("0000:0a:00.0"), "8086", "10fb", "020000", total_vfs=4)
VF = PciDevice(
    PciAddress("0000:0a:10.2"), "8086", "10ed", "020000", physfn=PciAddress("0000:0a:00.0")
)


def spec(report: bool = False, **entry: Any) -> DeviceSpec:
    return parse_device_specs([json.dumps(entry)], report=report)[0]


@pytest.mark.parametrize(
    "entry",
    [
        {"vendor_id": "8086", "product_id": "10FB"},
        {"vendor_id": "*"},
        {"address": "0000:0a:00.0"},
        {"address": "*:0a:00.*"},
        {"address": ":0a:00."},
        {"address": "0a:00.0"},
        {"address": "0:a:0.0"},
        {"address": "0000:0?:00.[0-3]"},
        {"address": {"bus": "0[ab]", "function": "[0-7]"}},
        {"address": {"domain": "0", "bus": "0"}},  # the beginning is enough
        {"vendor_id": " 8086 ", "product_id": "0x10fb"},
        {"devname": "eth0"},
        {},
    ],
)
def test_a_specification_matches_the_device_it_describes(entry: dict[str, Any]) -> None:
    assert spec(**entry).matches(PF, ("eth0",))


@pytest.mark.parametrize(
    "entry",
    [
        {"vendor_id": "8087"},
        {"vendor_id": "8086", "product_id": "10ed"},
        {"address": "0000:0b:00.0"},
        {"address": "*:0a:00.1"},
        {"address": {"domain": "0001"}},
        {"devname": "eth1"},
    ],
)
def test_a_specification_does_not_match_another_device(entry: dict[str, Any]) -> None:
    assert not spec(**entry).matches(PF, ("eth0",))


def test_a_wildcard_is_any_number() -> None:
    device = replace(PF, address=PciAddress("10000:e1:1f.7"))
    assert spec(address="*:*:*.*").matches(device)


def test_an_unknown_key_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert spec(adress="0000:0b:00.0").matches(PF)
    assert "adress is not a known key" in caplog.text


def test_the_exact_address_of_a_pf_matches_its_vfs_and_a_pattern_does_not() -> None:
    assert spec(address="0000:0a:00.0").matches(VF)
    assert not spec(address="0000:0a:00.*").matches(VF)


@pytest.mark.parametrize(
    ("entry", "resource_class"),
    [
        ({}, "CUSTOM_PCI_8086_10FB"),
        ({"resource_class": "PGPU"}, "PGPU"),
        ({"resource_class": "my gpu-1"}, "CUSTOM_MY_GPU_1"),
        ({"resource_class": "CUSTOM_X"}, "CUSTOM_X"),
    ],
)
def test_the_class_is_the_tag_normalised_or_made_of_the_ids(
    entry: dict[str, Any], resource_class: str
) -> None:
    assert spec(**entry).class_of(PF) == resource_class


def test_traits_are_normalised_and_standard_ones_keep_their_names() -> None:
    assert spec(traits="blue, HW_GPU_API_VULKAN, ,CUSTOM_A,").traits == (
        "CUSTOM_A",
        "CUSTOM_BLUE",
        "HW_GPU_API_VULKAN",
    )


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"address": "0000:0a:00.0", "devname": "eth0"}, "exclude each other"),
        ({"address": "0000:00:0a:00.0"}, "is not <domain>"),
        ({"address": {"slots": "1"}}, "dict of domain"),
        ({"address": 5}, "a string or a dict"),
        ({"address": {"slot": "("}}, "regular expression"),
        ({"address": "0000:0a:00.8"}, "function 8 is above 7"),
        ({"address": "0000:0a:20.0"}, "slot 20 is above 1f"),
        ({"address": "0000:100:00.0"}, "bus 100 is above ff"),
        ({"address": "100000000:0a:00.0"}, "domain 100000000 is above ffffffff"),
        ({"address": "0000-0a-00-0"}, "is not <domain>"),
        ({"address": {"bus": 10}}, "regular expression"),
        ({"vendor_id": "80"}, "vendor_id '80' is not four hex digits"),
        ({"vendor_id": "808"}, "vendor_id"),
        ({"product_id": "1eg8"}, "product_id '1eg8' is not four hex digits"),
        ({"vendor_id": 8086}, "vendor_id"),
        ({"address": "0000:0a:00.0", "one_time_use": "yes"}, "report_in_placement"),
        ({"one_time_use": "perhaps"}, "yes or no"),
        ({"physical_network": 5}, "physical_network must be a text"),
        ({"devname": ["eth0"]}, "devname must be a text"),
        ({"resource_class": 5}, "resource_class must be a text"),
        ({"traits": 3}, "separated by commas"),
        ({"traits": ["BLUE", 3]}, "separated by commas"),
    ],
)
def test_a_contradictory_entry_is_refused_with_the_reason(
    entry: dict[str, Any], reason: str
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=reason) as caught:
        spec(**entry)
    assert "[pci]device_spec" in str(caught.value)


def test_a_device_name_is_refused_where_devices_go_to_placement() -> None:
    assert spec(devname="eth0").devname == "eth0"
    with pytest.raises(errors.InvalidConfiguration, match="named by address"):
        spec(report=True, devname="eth0")


@pytest.mark.parametrize(
    ("value", "reason"),
    [("{vendor_id: 8086}", "is not JSON"), ('["8086"]', "an entry must be a dict")],
)
def test_text_that_is_no_json_of_entries_is_refused(value: str, reason: str) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=reason):
        parse_device_specs([value], report=False)


def test_one_value_may_hold_a_list_of_entries() -> None:
    specs = parse_device_specs(['[{"vendor_id": "8086"}, {"vendor_id": "10de"}]'], report=False)
    assert [s.vendor_id for s in specs] == ["8086", "10de"]


def test_a_device_is_used_once_only_where_placement_can_remember_it() -> None:
    assert spec(report=True, address="0000:0a:00.0", one_time_use="yes").one_time_use


@pytest.mark.parametrize("network", ["", "  ", None])
def test_an_empty_network_is_none(network: str | None) -> None:
    assert spec(physical_network=network).physical_network is None
