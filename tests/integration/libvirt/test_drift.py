"""An agent beside a real libvirtd: guests that placement does not agree with, and claims."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compute_agent.discovery.pci_address import pci_address
from tests.data.machines import make, two_sockets
from tests.fixtures.allocations import new_uuid
from tests.fixtures.libvirt_guests import function_of_host, mediated_device, on_cell, pinned
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    claim,
    eventually,
    running,
)
from tests.integration.libvirt.hosts import Host, hypervisor_host

FLAVOR = {"vcpus": 2, "memory_mb": 32, "root_gb": 0}
ON_CELL = {"VCPU": 2, "MEMORY_MB": 32}
AUDIT = {"audit_interval": 1, "audit_grace": 0}


@pytest.fixture
def host(libvirt_run_directory: Path, tmp_path: Path) -> Iterator[Host]:
    """A host of two cells with GPUs and ports."""
    machine = make("two-cells", tmp_path)
    with hypervisor_host(libvirt_run_directory, tmp_path, machine) as of_the_test:
        yield of_the_test


@pytest.fixture
def agent_on(
    placement: PlacementProcess, tmp_path: Path
) -> Iterator[Callable[[Host], AgentProcess]]:
    """Makes the agent of a host, which reports its cells."""
    made: list[AgentProcess] = []

    def make_agent(host: Host) -> AgentProcess:
        directory = tmp_path / "agent"
        directory.mkdir()
        machine = host.daemon.machine
        agent = AgentProcess(
            directory,
            placement.url,
            DEFAULT={
                "compute_driver": "libvirt.LibvirtDriver",
                "host": host.name,
                "instances_path": directory,
            },
            libvirt={"virt_type": "qemu", "connection_uri": host.daemon.uri},
            host={"sysfs_root": f"{machine}/sys", "procfs_root": f"{machine}/proc"}
            if machine
            else {},
            compute={"enable_numa_reporting_to_placement": True},
        )
        made.append(agent)
        return agent

    yield make_agent
    for agent in made:
        agent.cleanup()


@pytest.fixture
def agent(host: Host, agent_on: Callable[[Host], AgentProcess]) -> AgentProcess:
    return agent_on(host)


def provider(placement: PlacementProcess, host: Host, suffix: str) -> str:
    uuid: str = placement.tree(host.name)[f"{host.name}{suffix}"]["uuid"]
    return uuid


def held(placement: PlacementProcess, host: Host, consumer: str) -> dict[str, dict[str, int]]:
    names = {provider["uuid"]: name for name, provider in placement.tree(host.name).items()}
    return {
        names[uuid].removeprefix(host.name): amounts
        for uuid, amounts in placement.held(consumer).items()
    }


def drifted(agent: AgentProcess, kind: str, *consumers: str) -> None:
    """Wait for an audit that reports just these consumers."""
    eventually(
        lambda: agent.report()["drift"].get(kind) == sorted(consumers),
        f"{kind} are {consumers}; the status: {agent.node()}",
    )


def by_file(path: Path, healing: str, host: Host, **flavors: object) -> dict[str, object]:
    """Options of an audit that heals by a file of instances, written after all it judges."""
    owner = {"host": host.name, "project_id": "a-project", "user_id": "a-user"}
    lines = ({"uuid": uuid, "flavor": flavor, **owner} for uuid, flavor in flavors.items())
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    later = time.time() + 60
    os.utime(path, (later, later))
    return {**AUDIT, "instance_source": "file", "instance_file": path, healing: True}


def test_guests_and_allocations_that_do_not_agree_are_reported(
    agent: AgentProcess, host: Host, placement: PlacementProcess
) -> None:
    agent.configure(compute_agent=AUDIT)
    at_home, elsewhere, without = host.define(on_cell(1)), host.define(on_cell(0)), host.define()
    with running(agent):
        claim(placement, provider(placement, host, "_NUMA1"), ON_CELL, at_home)
        claim(placement, provider(placement, host, "_NUMA1"), ON_CELL, elsewhere)
        gone = claim(placement, provider(placement, host, "_NUMA0"), ON_CELL)
        drifted(agent, "orphaned", gone)
        drifted(agent, "missing", without)
        drifted(agent, "differing", elsewhere)
        assert "its memory is on NUMA cells 0 and it holds of 1" in agent.logged()

        host.end(at_home)
        drifted(agent, "orphaned", gone, at_home)
        host.end(without)
        drifted(agent, "missing")


def test_a_guest_that_is_gone_is_an_orphan_only_after_the_time_of_grace(
    agent: AgentProcess, host: Host, placement: PlacementProcess
) -> None:
    agent.configure(compute_agent={"audit_interval": 1, "audit_grace": 3600})
    guest = host.define()
    with running(agent):
        claim(placement, provider(placement, host, "_NUMA0"), ON_CELL, guest)
        host.end(guest)
        stranger = host.define()
        drifted(agent, "missing", stranger)
        assert agent.node()["drift"]["orphaned"] == []


def test_the_allocations_of_a_deleted_guest_are_deleted_and_a_stopped_guest_keeps_its_own(
    agent: AgentProcess, host: Host, placement: PlacementProcess, tmp_path: Path
) -> None:
    agent.configure(compute_agent=by_file(tmp_path / "instances", "heal_orphans", host))
    stopped, deleted = host.define(), host.define()
    with running(agent):
        for guest in (stopped, deleted):
            claim(placement, provider(placement, host, "_NUMA0"), ON_CELL, guest)
        host.end(deleted)
        eventually(lambda: agent.report() and not held(placement, host, deleted), "it is deleted")
        assert held(placement, host, stopped) == {"_NUMA0": ON_CELL}


def test_a_guest_without_allocations_gets_them_where_it_is(
    agent: AgentProcess, host: Host, placement: PlacementProcess, tmp_path: Path
) -> None:
    guest = host.define(on_cell(1))
    healing = by_file(tmp_path / "instances", "heal_missing", host, **{guest: FLAVOR})
    agent.configure(compute_agent=healing)
    with running(agent):
        eventually(lambda: agent.report() and held(placement, host, guest), "it is healed")
        assert held(placement, host, guest) == {"_NUMA1": ON_CELL}
        drifted(agent, "missing")


def test_cpus_that_a_guest_has_without_a_claim_are_given_to_nobody_else(
    agent: AgentProcess, host: Host, placement: PlacementProcess
) -> None:
    agent.configure(compute={"cpu_dedicated_set": "12-14", "cpu_shared_set": "0-7"})
    host.define(pinned(12, 13))
    newcomer = new_uuid()
    with running(agent):
        cell = provider(placement, host, "_NUMA1")
        claim(placement, cell, {"PCPU": 1}, newcomer)
        claimed = agent.ask("instance_claim", spec={"instance_uuid": newcomer})
        assert [unit["name"] for unit in claimed["units"]] == ["14"]


def test_a_function_that_a_stopped_guest_has_is_given_to_nobody_else(
    agent: AgentProcess, host: Host, placement: PlacementProcess
) -> None:
    agent.configure(
        pci={
            "report_in_placement": True,
            "device_spec": '{"vendor_id": "8086", "product_id": "1889"}',
        }
    )
    functions = sorted(
        path.name
        for path in (host.daemon.machine or Path()).glob("sys/bus/pci/devices/0000:18:*")
        if (path / "physfn").exists()
    )
    host.define(devices=function_of_host(pci_address(functions[0])))
    newcomer = new_uuid()
    with running(agent):
        port = provider(placement, host, "_0000:18:00.0")
        claim(placement, port, {"CUSTOM_PCI_8086_1889": 1}, newcomer)
        claimed = agent.ask("instance_claim", spec={"instance_uuid": newcomer})
        assert [unit["name"] for unit in claimed["units"]] == [functions[1]]


@pytest.fixture
def mdev() -> str:
    return new_uuid()


@pytest.fixture
def gpu_host(libvirt_run_directory: Path, tmp_path: Path, mdev: str) -> Iterator[Host]:
    """A host of two sockets, with a mediated device on a GPU of the second."""
    machine = two_sockets()
    machine.mdev("0000:82:00.0", mdev, "nvidia-222", iommu_group=900)
    path = machine.write(tmp_path / "machine")
    with hypervisor_host(libvirt_run_directory, tmp_path, path) as of_the_test:
        yield of_the_test


def test_a_guest_without_allocations_gets_its_vgpu_on_the_gpu_that_it_has(
    gpu_host: Host,
    agent_on: Callable[[Host], AgentProcess],
    placement: PlacementProcess,
    tmp_path: Path,
    mdev: str,
) -> None:
    guest = gpu_host.define(on_cell(1), devices=mediated_device(mdev))
    flavors = {guest: {**FLAVOR, "extra_specs": {"resources:VGPU": "1"}}}
    healing = by_file(tmp_path / "instances", "heal_missing", gpu_host, **flavors)
    agent = agent_on(gpu_host)
    agent.configure(devices={"enabled_mdev_types": "nvidia-222"}, compute_agent=healing)
    with running(agent):
        eventually(lambda: agent.report() and held(placement, gpu_host, guest), "it is healed")
        assert held(placement, gpu_host, guest) == {
            "_NUMA1": ON_CELL,
            "_pci_0000_82_00_0": {"VGPU": 1},
        }


def test_the_place_of_a_mediated_device_without_a_claim_is_given_to_nobody_else(
    gpu_host: Host,
    agent_on: Callable[[Host], AgentProcess],
    placement: PlacementProcess,
    mdev: str,
) -> None:
    gpu_host.define(devices=mediated_device(mdev))
    agent = agent_on(gpu_host)
    agent.configure(devices={"enabled_mdev_types": "nvidia-222"})
    newcomer = new_uuid()
    with running(agent):
        claim(placement, provider(placement, gpu_host, "_pci_0000_82_00_0"), {"VGPU": 1}, newcomer)
        claimed = agent.ask("instance_claim", spec={"instance_uuid": newcomer})
        assert [unit["name"] for unit in claimed["units"]] == ["0000:82:00.0/1"]


def test_a_start_with_cpu_sets_that_do_not_fit_the_guests_names_them_and_their_cpus(
    agent: AgentProcess, host: Host
) -> None:
    on_own, stopped = host.define(pinned(2, 3)), host.define(pinned(8, 9))
    agent.configure(compute={"cpu_dedicated_set": "8-15", "cpu_shared_set": "0-7"})
    agent.start()
    assert agent.ended() == 1
    assert f"guest {on_own} is pinned to CPUs 2-3" in agent.logged()
    assert stopped not in agent.logged()
    agent.configure(compute_agent={"allow_cpu_set_change": True})
    with running(agent):
        agent.stop(signal.SIGTERM)


def test_a_guest_that_runs_anywhere_is_in_the_way_of_dedicated_cpus_until_it_has_a_set(
    libvirt_run_directory: Path, tmp_path: Path, agent_on: Callable[[Host], AgentProcess]
) -> None:
    with hypervisor_host(libvirt_run_directory, tmp_path) as this_machine:
        stopped, guest = this_machine.define(), this_machine.run()
        agent = agent_on(this_machine)
        agent.configure(compute={"cpu_dedicated_set": "1", "cpu_shared_set": "0"})
        agent.start()
        assert agent.ended() == 1
        assert f"guest {guest} may run on CPUs 1, which" in agent.logged()
        assert stopped not in agent.logged()
        cpus = this_machine.libvirt.getInfo()[2]
        for vcpu in (0, 1):
            this_machine.libvirt.lookupByUUIDString(guest).pinVcpu(
                vcpu, tuple(cpu == 0 for cpu in range(cpus))
            )
        with running(agent):
            assert agent.stop(signal.SIGTERM) == 0


def test_a_start_without_the_type_of_a_mediated_device_that_a_guest_has_is_refused(
    gpu_host: Host, agent_on: Callable[[Host], AgentProcess], mdev: str
) -> None:
    guest = gpu_host.define(devices=mediated_device(mdev))
    agent = agent_on(gpu_host)
    agent.configure(devices={"enabled_mdev_types": "nvidia-230"})
    agent.start()
    assert agent.ended() == 1
    assert f"guest {guest} holds a mediated device of type nvidia-222" in agent.logged()
    agent.configure(devices={"enabled_mdev_types": "nvidia-222"})
    with running(agent):
        assert agent.stop(signal.SIGTERM) == 0
