"""From a configuration file to the options of a layout."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.virt.layout.options import Ratio, ReservedPages
from compute_agent.virt.settings import layout_options

from .conftest import MakeConf


def test_an_empty_configuration_gives_the_documented_defaults(make_conf: MakeConf) -> None:
    options = layout_options(make_conf(""))
    assert not options.is_nested
    assert options.reserved_memory_mib == 512
    assert options.ratios == {
        "VCPU": Ratio(None, 4.0),
        "MEMORY_MB": Ratio(None, 1.0),
        "DISK_GB": Ratio(None, 1.0),
    }


def test_every_kind_of_option_arrives(make_conf: MakeConf) -> None:
    options = layout_options(
        make_conf(
            """
            reserved_huge_pages = node:0,size:2048,count:64
            reserved_huge_pages = node:1,size:1GB,count:1
            cpu_allocation_ratio = 2.5
            [compute]
            cpu_dedicated_set = 2-3
            reserved_host_memory_mb_per_numa = 0:2048,1:512
            enable_numa_reporting_to_placement = True
            [devices]
            enabled_mdev_types = nvidia-35,nvidia-36
            [mdev_nvidia-36]
            device_addresses = 00000000:84:00.0
            mdev_class = CUSTOM_BIG
            max_instances = 2
            [gpu]
            numa_node_override = 0000:84:00.0=1
            [nic]
            physnet_mappings = net-a:ens1
            """
        )
    )
    assert options.is_nested
    assert options.reserved_pages == (ReservedPages(0, 2048, 64), ReservedPages(1, 1048576, 1))
    assert options.ratios["VCPU"] == Ratio(2.5, 4.0)
    assert options.cpu_sets.dedicated_cpus == {2, 3}
    assert options.reserved_memory_mib_per_cell == {0: 2048, 1: 512}
    assert [t.type_id for t in options.gpu.mdev_types] == ["nvidia-35", "nvidia-36"]
    assert options.gpu.mdev_types[1].device_addresses == ("0000:84:00.0",)
    assert options.gpu.mdev_types[1].resource_class == "CUSTOM_BIG"
    assert options.gpu.mdev_types[1].max_instances == 2
    assert options.gpu.numa_node_override == {"0000:84:00.0": 1}
    assert options.nic.physnets == {"ens1": "net-a"}


def test_old_names_of_the_mdev_options_are_still_read(make_conf: MakeConf) -> None:
    options = layout_options(
        make_conf(
            "[devices]\nenabled_vgpu_types = nvidia-35\n"
            "[vgpu_nvidia-35]\ndevice_addresses = 0000:84:00.0\n"
        )
    )
    assert options.gpu.mdev_types[0].device_addresses == ("0000:84:00.0",)


def test_the_old_pin_set_is_the_shared_set(make_conf: MakeConf) -> None:
    assert layout_options(make_conf("vcpu_pin_set = 1-2")).cpu_sets.shared_cpus == {1, 2}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("reserved_host_cpus = 2\n[compute]\ncpu_shared_set = 0-3", "reserved_host_cpus"),
        ("[libvirt]\nfile_backed_memory = 1024", "file_backed_memory"),
        ("[compute]\ncpu_shared_set = 0-3\ncpu_dedicated_set = 3-5", "cpu_dedicated_set"),
        ("vcpu_pin_set = 1\n[compute]\ncpu_shared_set = 0-3", "vcpu_pin_set"),
        ("reserved_huge_pages = node:0,size:2048", "reserved_huge_pages"),
        ("reserved_huge_pages = node:0,size:big,count:1", "reserved_huge_pages"),
        ("[compute]\nreserved_host_memory_mb_per_numa = a:2", "reserved_host_memory_mb_per_numa"),
        ("[gpu]\nnuma_node_override = gpu1=0", r"\[gpu\]numa_node_override"),
        ("[nic]\nphysnet_mappings = physnet0", "physnet_mappings"),
        ("[nic]\nphysnet_mappings = net0:ens1, net1:ens1", "names ens1 twice"),
        (
            "[devices]\nenabled_mdev_types = a\n[mdev_a]\ndevice_addresses = 84.00.0",
            r"\[mdev_a\]device_addresses",
        ),
        ("[devices]\nenabled_mdev_types = a\n[mdev_a]\nmdev_class = BIG", r"\[mdev_a\]mdev_class"),
        (
            "[devices]\nenabled_mdev_types = a,b\n[mdev_a]\ndevice_addresses = 0000:84:00.0\n"
            "[mdev_b]\ndevice_addresses = 84:00.0",
            "both name 0000:84:00.0",
        ),
    ],
)
def test_a_contradiction_is_refused_naming_the_option(
    make_conf: MakeConf, text: str, names: str
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=names):
        layout_options(make_conf(text))


def test_a_second_type_without_devices_is_warned_about(
    make_conf: MakeConf, caplog: pytest.LogCaptureFixture
) -> None:
    named = "[devices]\nenabled_mdev_types = a,b,c\n[mdev_a]\ndevice_addresses = 0000:84:00.0\n"
    layout_options(make_conf(named))
    assert "names c without device_addresses" in caplog.text
    caplog.clear()
    layout_options(make_conf(named.replace(",c", "")))
    assert "device_addresses" not in caplog.text


@pytest.mark.parametrize(("strategy", "may_be_offline"), [("cpu_state", True), ("governor", False)])
def test_only_a_strategy_that_switches_cpus_off_lets_dedicated_ones_be_offline(
    make_conf: MakeConf, strategy: str, may_be_offline: bool
) -> None:
    options = layout_options(
        make_conf(
            f"[libvirt]\ncpu_power_management = True\ncpu_power_management_strategy = {strategy}\n"
        )
    )
    assert options.cpu_power_management is may_be_offline


def test_cells_of_networks_arrive_by_the_group_that_names_them(make_conf: MakeConf) -> None:
    options = layout_options(
        make_conf(
            "[neutron]\nphysnets = a,b\n[neutron_physnet_a]\nnuma_nodes = 0,1\n"
            "[neutron_physnet_b]\nnuma_nodes = 1\n[neutron_tunnel]\nnuma_nodes = 3\n"
        )
    )
    assert options.network_cells == {
        "neutron_physnet_a": {0, 1},
        "neutron_physnet_b": {1},
        "neutron_tunnel": {3},
    }
