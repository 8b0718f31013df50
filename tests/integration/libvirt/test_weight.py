"""The agent beside a hypervisor: its size after many passes, with guests to look at."""

from __future__ import annotations

import re
from pathlib import Path

import libvirt
import pytest

from tests.data import machines
from tests.fixtures.libvirtd import running_libvirtd
from tests.functional.agent.processes import AgentProcess, PlacementProcess, running

NODE = "two-sockets.example.org"
GUESTS = 20
PASSES = 120
WARMING = 40
MOST_MIB = 70
MOST_GROWTH_MIB = 1.0
"""What the allocator keeps may still settle."""


@pytest.mark.usefixtures("console_scripts")
def test_an_agent_with_libvirt_is_light_and_stays_as_large_as_it_is(
    libvirt_run_directory: Path, placement: PlacementProcess, tmp_path: Path
) -> None:
    machine = machines.make("two-sockets", tmp_path)
    with running_libvirtd(libvirt_run_directory, machine, NODE) as daemon:
        connection = libvirt.open(daemon.uri)
        for number in range(GUESTS):
            connection.defineXML(
                f"<domain type='qemu'><name>g{number}</name><memory>65536</memory><vcpu>2</vcpu>"
                f"<cputune><vcpupin vcpu='0' cpuset='{number % 16}'/></cputune>"
                "<os><type arch='x86_64'>hvm</type></os></domain>"
            )
        connection.close()
        agent = AgentProcess(
            tmp_path,
            placement.url,
            DEFAULT={
                "compute_driver": "libvirt.LibvirtDriver",
                "update_resources_interval": -1,
            },
            libvirt={"virt_type": "qemu", "connection_uri": daemon.uri},
            host={
                "sysfs_root": f"{daemon.machine}/sys",
                "procfs_root": f"{daemon.machine}/proc",
            },
            compute={"enable_numa_reporting_to_placement": True},
            devices={"enabled_mdev_types": "nvidia-231"},
            compute_agent={"audit_interval": 1},
        )
        with running(agent):
            sizes = []
            for _ in range(PASSES):
                assert agent.report()["trouble"] is None
                sizes.append(memory_mib(agent, "VmRSS"))
            peak = memory_mib(agent, "VmHWM")
    assert peak <= MOST_MIB
    assert sizes[-1] - sizes[WARMING] <= MOST_GROWTH_MIB


def memory_mib(agent: AgentProcess, field: str) -> float:
    """Return a size of the agent's process from its status in /proc."""
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    size = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert size is not None
    return int(size[1]) / 1024
