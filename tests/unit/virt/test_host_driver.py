"""The driver that needs nothing but Linux, on a captured machine and on odd ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import os_traits
import pytest

from compute_agent import errors
from compute_agent.provider_tree import SHARING_TRAIT, ProviderTree
from compute_agent.tracker.passes import corrections
from compute_agent.virt.host import HostDriver, kernel_version, size_on_disk
from tests.data.machine_builder import MachineBuilder
from tests.fixtures.stand_ins import StandIn

from .conftest import MakeConf

ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
CAPTURED = """
[host]
sysfs_root = tests/data/two-cells/sys
procfs_root = tests/data/two-cells/proc
"""
NESTED = f"{CAPTURED}[compute]\nenable_numa_reporting_to_placement = True\n"


def tree_of(driver: HostDriver) -> ProviderTree:
    (node,) = driver.get_available_nodes()
    tree = ProviderTree()
    tree.new_root(node, ROOT, 1)
    driver.update_provider_tree(tree, node)
    return tree


def drawn(tree: ProviderTree) -> list[str]:
    return sorted(
        f"{p.name.removeprefix('host1') or 'root'} "
        + " ".join(f"{rc}={record['total']}" for rc, record in sorted(p.inventory.items()))
        for p in map(tree.data, tree.get_provider_uuids())
    )


def test_a_captured_machine_is_reported_flat(make_conf: MakeConf) -> None:
    driver = HostDriver(make_conf(CAPTURED))
    driver.init_host("host1")
    tree = tree_of(driver)
    assert len(tree) == 1
    root = tree.data(ROOT)
    assert (root.inventory["VCPU"]["total"], root.inventory["MEMORY_MB"]["total"]) == (16, 128608)
    assert {"HW_ARCH_X86_64", "HW_CPU_HYPERTHREADING"} <= root.traits


def test_a_captured_machine_is_reported_nested_with_its_devices(make_conf: MakeConf) -> None:
    text = f"{NESTED}[devices]\nenabled_mdev_types = nvidia-222\n"
    driver = HostDriver(make_conf(text))
    driver.init_host("host1")
    shown = drawn(tree_of(driver))
    disk = shown.pop()
    assert disk.startswith("root DISK_GB=")
    assert shown == [
        "_0000:18:00.0 SRIOV_NET_VF=8",
        "_0000:81:00.0 SRIOV_NET_VF=8",
        "_NIC_0000:18:00.0 ",
        "_NIC_0000:81:00.0 ",
        "_NUMA0 MEMORY_MB=58160 VCPU=8",
        "_NUMA0_PAGES1048576 MEMORY_MB=4096",
        "_NUMA0_PAGES2048 MEMORY_MB=2048",
        "_NUMA1 MEMORY_MB=58160 VCPU=8",
        "_NUMA1_PAGES1048576 MEMORY_MB=4096",
        "_NUMA1_PAGES2048 MEMORY_MB=2048",
        "_pci_0000_17_00_0 VGPU=16",
        "_pci_0000_84_00_0 VGPU=16",
    ]


def test_the_live_machine_is_reported(make_conf: MakeConf) -> None:
    driver = HostDriver(make_conf("[gpu]\nnvml = never\nreserved_host_memory_mb = 0\n"))
    driver.init_host("host1")
    root = tree_of(driver).data(ROOT)
    assert {"VCPU", "MEMORY_MB"} <= root.inventory.keys()
    assert any(trait.startswith("HW_ARCH_") for trait in root.traits)


def test_the_node_is_named_as_the_service(make_conf: MakeConf) -> None:
    assert HostDriver(make_conf(CAPTURED)).get_available_nodes() == ["host1"]


def test_facts_are_json_and_agree_with_the_tree(make_conf: MakeConf) -> None:
    driver = HostDriver(make_conf(CAPTURED))
    facts = driver.get_available_resource("host1")
    assert facts["hypervisor_type"] == "host"
    assert (facts["vcpus"], facts["memory_mb"]) == (16, 128608)
    assert [cell["id"] for cell in json.loads(facts["numa_topology"])] == [0, 1]
    devices = json.loads(facts["pci_passthrough_devices"])
    assert sum(device["dev_type"] == "type-VF" for device in devices) == 16


def test_a_missing_sysfs_is_a_configuration_error_at_the_start(
    make_conf: MakeConf, tmp_path: Path
) -> None:
    driver = HostDriver(make_conf(f"[host]\nprocfs_root = {tmp_path}/none\n"))
    with pytest.raises(errors.InvalidConfiguration, match=r"\[host\]procfs_root"):
        driver.init_host("host1")


def test_a_machine_that_cannot_be_read_later_is_not_ready(
    make_conf: MakeConf, tmp_path: Path
) -> None:
    machine = MachineBuilder()
    machine.node(0, cpus="0-3", memory_kib=1 << 20)
    machine.write(tmp_path)
    roots = f"[host]\nsysfs_root = {tmp_path}/sys\nprocfs_root = {tmp_path}/proc\n"
    driver = HostDriver(make_conf(f"reserved_host_memory_mb = 0\n{roots}"))
    driver.init_host("host1")
    (tmp_path / "proc" / "meminfo").unlink()
    with pytest.raises(errors.VirtDriverNotReady, match="meminfo"):
        driver.get_available_resource("host1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("reserved_host_memory_mb = 999999\n", "999999"),
        ("reserved_huge_pages = node:5,size:2048,count:1\n", "cell 5"),
        ("[compute]\ncpu_dedicated_set = 15-20\n", "16-20"),
    ],
)
def test_options_that_do_not_fit_the_machine_end_the_start(
    make_conf: MakeConf, text: str, reason: str
) -> None:
    driver = HostDriver(make_conf(f"{text}{CAPTURED}"))
    with pytest.raises(errors.InvalidConfiguration, match=reason):
        driver.init_host("host1")


@pytest.fixture
def uncaptured(tmp_path: Path) -> str:
    """Options for a machine without the description of a capture, so that disk is looked for."""
    for name in ("sys", "proc"):
        shutil.copytree(f"tests/data/two-cells/{name}", tmp_path / "m" / name, symlinks=True)
    return f"[host]\nsysfs_root = {tmp_path}/m/sys\nprocfs_root = {tmp_path}/m/proc\n"


def test_without_a_directory_for_instances_no_disk_is_reported(
    make_conf: MakeConf, uncaptured: str, tmp_path: Path
) -> None:
    conf = make_conf(uncaptured)
    (tmp_path / "instances").rmdir()
    driver = HostDriver(conf)
    assert "DISK_GB" not in tree_of(driver).data(ROOT).inventory
    assert driver.get_available_resource("host1")["local_gb"] == 0


def test_the_image_cache_is_reserved_where_asked_for(make_conf: MakeConf, tmp_path: Path) -> None:
    workaround = "[workarounds]\nreserve_disk_resource_for_image_cache = True\n"
    conf = make_conf(f"{CAPTURED}{workaround}")
    cache = tmp_path / "instances" / "_base"
    cache.mkdir()
    (cache / "image").write_bytes(b"x" * 100_000)
    assert size_on_disk(str(cache)) >= 100_000
    assert tree_of(HostDriver(conf)).data(ROOT).inventory["DISK_GB"]["reserved"] == 1


@pytest.mark.parametrize(
    ("release", "number"),
    [("6.1.0-18-amd64", 6_001_000), ("5.15.160", 5_015_160), ("6.9", 6_009_000), ("odd", 0)],
)
def test_a_kernel_release_is_one_number(release: str, number: int) -> None:
    assert kernel_version(release) == number


def test_a_capture_is_replayed_with_the_disk_and_gpus_it_recorded(
    make_conf: MakeConf, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree("tests/data/two-cells", elsewhere, symlinks=True)
    description = json.loads((elsewhere / "capture.json").read_text())
    description["nvml"][0]["mig_devices"] = [
        {
            "uuid": "MIG-1",
            "profile": "1g.10gb",
            "gpu_instance": 7,
            "compute_instance": 0,
            "slices": 1,
            "memory_mib": 9728,
        }
    ]
    (elsewhere / "capture.json").write_text(json.dumps(description))
    roots = f"[host]\nsysfs_root = {elsewhere}/sys\nprocfs_root = {elsewhere}/proc\n"
    driver = HostDriver(make_conf(f"{roots}[gpu]\nmig_classes = True\n"))
    driver.init_host("host1")
    shown = drawn(tree_of(driver))
    assert any(line.startswith("root DISK_GB=2048 ") for line in shown), shown
    assert any("CUSTOM_MIG_1G_10GB=1" in line for line in shown), shown
    without = HostDriver(make_conf(f"{roots}[gpu]\nmig_classes = True\nnvml = never\n"))
    without.init_host("host1")
    assert not any("MIG" in line for line in drawn(tree_of(without)))


STORES = {
    "lvm": ("images_volume_group = nova", "vgs"),
    "rbd": ("images_rbd_pool = vms", "ceph"),
}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_cannot_be_measured_is_no_disk_and_warned_of_once(
    make_conf: MakeConf, uncaptured: str, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    option, program = STORES[kind]
    driver = HostDriver(make_conf(f"{uncaptured}[libvirt]\nimages_type = {kind}\n{option}\n"))
    tree = tree_of(driver)
    tree_of(driver)
    assert "DISK_GB" not in tree.data("host1").inventory
    [caveat] = driver.caveats("host1")
    assert caveat.startswith(f"host1 reports no DISK_GB: {program} ")
    assert option.partition(" ")[0] in caveat
    assert [r.levelname for r in caplog.records if r.getMessage() == caveat] == ["WARNING"]


def test_a_volume_group_without_a_name_ends_the_start(make_conf: MakeConf) -> None:
    with pytest.raises(errors.InvalidConfiguration, match="images_volume_group is not set"):
        HostDriver(make_conf("[libvirt]\nimages_type = lvm\n"))


def test_a_volume_group_is_what_is_reported_of_disk_and_an_image_cache_takes_nothing_of_it(
    make_conf: MakeConf, uncaptured: str, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in("vgs", "  107374182400\n")
    conf = make_conf(
        f"{uncaptured}[libvirt]\nimages_type = lvm\nimages_volume_group = nova\n"
        "[workarounds]\nreserve_disk_resource_for_image_cache = True\n"
    )
    cache = tmp_path / "instances" / "_base"
    cache.mkdir()
    (cache / "image").write_bytes(b"x" * 100_000)
    driver = HostDriver(conf)
    disk = tree_of(driver).data(ROOT).inventory["DISK_GB"]
    assert (disk["total"], disk["reserved"]) == (100, 0)
    assert driver.caveats("host1") == ()


@pytest.mark.parametrize("kind", ["default", "raw", "qcow2", "flat", "ploop"])
def test_a_disk_of_files_is_not_warned_of(make_conf: MakeConf, kind: str) -> None:
    driver = HostDriver(make_conf(f"{CAPTURED}[libvirt]\nimages_type = {kind}\n"))
    tree_of(driver)
    assert driver.caveats("host1") == ()


def test_a_pool_that_a_provider_shares_is_not_warned_of(make_conf: MakeConf) -> None:
    driver = HostDriver(make_conf(f"{CAPTURED}[libvirt]\nimages_type = rbd\n"))
    tree = ProviderTree()
    tree.new_root("host1", "00000000-0000-4000-8000-00000000aaaa", 1)
    pool = tree.new_root("pool", "00000000-0000-4000-8000-00000000bbbb", 1)
    tree.update_inventory(pool, {"DISK_GB": {"total": 100}})
    tree.add_traits(pool, SHARING_TRAIT)
    for provider in ("host1", "pool"):
        tree.add_aggregates(provider, "00000000-0000-4000-8000-00000000cccc")
    driver.update_provider_tree(tree, "host1")
    assert "DISK_GB" not in tree.data("host1").inventory
    assert driver.caveats("host1") == ()


@pytest.mark.parametrize("layout", [CAPTURED, NESTED], ids=["flat", "nested"])
def test_a_takeover_leaves_every_capability_that_the_driver_does_not_know(
    make_conf: MakeConf, layout: str
) -> None:
    driver = HostDriver(make_conf(layout))
    tree = ProviderTree()
    tree.new_root("host1", ROOT, 1)
    before = {trait for trait in os_traits.get_traits() if trait.startswith("COMPUTE_")}
    tree.add_traits(ROOT, *before)
    driver.update_provider_tree(tree, "host1")
    corrections.synchronise_traits(
        tree,
        ROOT,
        capabilities=driver.capabilities_as_traits(),
        is_enabled=True,
        owned_uuids={ROOT},
    )
    assert before - tree.data(ROOT).traits == {"COMPUTE_STATUS_DISABLED"}


def test_a_contradiction_that_comes_up_while_the_agent_runs_is_a_caveat_and_logged_once(
    make_conf: MakeConf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody makes functions of a card that is offered by its vendor."""

    def machine(vfs: int) -> MachineBuilder:
        builder = MachineBuilder()
        builder.cpus("0-1")
        builder.nic("0000:17:00.0", "ens1f0", vfs=vfs)
        return builder

    root = machine(0).write(tmp_path / "machine")
    driver = HostDriver(
        make_conf(
            f"[host]\nsysfs_root = {root}/sys\nprocfs_root = {root}/proc\n"
            '[pci]\nreport_in_placement = True\ndevice_spec = {"vendor_id": "8086"}\n'
        )
    )
    driver.init_host("host1")
    assert "_0000:17:00.0 CUSTOM_PCI_8086_1592=1" in drawn(tree_of(driver))
    (node,) = driver.get_available_nodes()
    assert not [caveat for caveat in driver.caveats(node) if "device_spec" in caveat]
    shutil.rmtree(root)
    machine(2).write(root)
    assert not [name for name in drawn(tree_of(driver)) if "0000:17:00.0" in name]
    (caveat,) = (caveat for caveat in driver.caveats(node) if "device_spec" in caveat)
    assert "both the PF 0000:17:00.0 and its VFs" in caveat
    assert sum(caveat in record.getMessage() for record in caplog.records) == 1
