"""An agent beside a real libvirtd on a captured machine: its tree in placement, and its guests."""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.data.machines import make
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually, running

pytestmark = pytest.mark.waiting

pytest.importorskip(
    "libvirt",
    reason="libvirt-python is not installed (pip install '.[libvirt]')",
    exc_type=ImportError,
)


@pytest.fixture
def daemon(libvirt_run_directory: Path, node: str, tmp_path: Path) -> Iterator[Libvirtd]:
    """Run a daemon of a host with two sockets, which has a name that no other test uses."""
    with running_libvirtd(libvirt_run_directory, make("two-sockets", tmp_path), node) as daemon:
        yield daemon


@pytest.fixture
def agent(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess], daemon: Libvirtd
) -> AgentProcess:
    return new_agent(
        placement.url,
        DEFAULT={"compute_driver": "libvirt.LibvirtDriver", "update_resources_interval": 3600},
        compute={"enable_numa_reporting_to_placement": True},
        devices={"enabled_mdev_types": "nvidia-231"},
        host={
            "sysfs_root": f"{daemon.machine}/sys",
            "procfs_root": f"{daemon.machine}/proc",
        },
        libvirt={"connection_uri": daemon.uri, "virt_type": "qemu"},
    )


def test_the_host_of_a_hypervisor_is_in_placement_with_all_that_it_has(
    agent: AgentProcess, placement: PlacementProcess, node: str
) -> None:
    with running(agent):
        tree = placement.tree(node)
        totals = {
            name.removeprefix(node): {
                resource_class: record["total"]
                for resource_class, record in provider["inventories"].items()
            }
            for name, provider in tree.items()
        }
        assert totals == {
            "": {"DISK_GB": 2048},
            "_NUMA0": {"VCPU": 8, "MEMORY_MB": 62464},
            "_NUMA0_PAGES2048": {"MEMORY_MB": 1024},
            "_NUMA0_PAGES1048576": {"MEMORY_MB": 2048},
            "_NIC_0000:17:00.0": {},
            "_0000:17:00.0": {"SRIOV_NET_VF": 8},
            "_0000:17:00.1": {"SRIOV_NET_VF": 8},
            "_pci_0000_18_00_0": {"VGPU": 8},
            "_pci_0000_19_00_0": {"VGPU": 8},
            "_NUMA1": {"VCPU": 8, "MEMORY_MB": 62464},
            "_NUMA1_PAGES2048": {"MEMORY_MB": 1024},
            "_NUMA1_PAGES1048576": {"MEMORY_MB": 2048},
            "_NIC_0000:81:00.0": {},
            "_0000:81:00.0": {"SRIOV_NET_VF": 8},
            "_0000:81:00.1": {"SRIOV_NET_VF": 8},
            "_pci_0000_82_00_0": {"VGPU": 8},
            "_pci_0000_83_00_0": {"VGPU": 8},
        }
        assert "COMPUTE_ARCH_X86_64" in tree[node]["traits"]
        assert agent.run("plan").returncode == 0, "nothing would change"
        assert agent.run("doctor").returncode == 0, "and nothing is wrong"
        assert agent.stop() == 0
        assert "Traceback" not in agent.logged()


def test_a_guest_that_somebody_defines_is_seen_at_once(
    agent: AgentProcess, daemon: Libvirtd
) -> None:
    import libvirt

    uuid = str(uuidlib.uuid4())
    with running(agent):
        before = agent.status()["totals"]["passes"]["completed"]
        connection = libvirt.open(daemon.uri)
        connection.defineXML(
            f"<domain type='qemu'><name>{uuid}</name><uuid>{uuid}</uuid>"
            "<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>"
        )
        connection.close()
        eventually(
            lambda: agent.status()["totals"]["passes"]["completed"] > before,
            "a pass without a period",
        )
        told = agent.run("doctor").stdout
        assert "guests: 1 known, 0 running" in told
