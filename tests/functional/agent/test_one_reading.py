"""A pass reads the machine once, and keeps nothing of it for the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from oslo_config import cfg

from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.sysfs.reader import read_file
from compute_agent.discovery.topology import Discovery
from compute_agent.virt.driver import ComputeDriver
from compute_agent.virt.host import HostDriver
from compute_agent.virt.settings import disk_source
from tests.data.machine_builder import MachineBuilder
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours

pytestmark = pytest.mark.waiting


class CountingHost(HostDriver):
    """The driver of this machine, which counts the files that it opens."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.opened = 0
        self._counted = Discovery(conf.host.sysfs_root, conf.host.procfs_root, read=self._open)

    def topology(self, nodename: str) -> HostTopology:
        return self._counted.discover(disk_source(self.conf), nodename)

    def _open(self, path: str, limit: int) -> bytes:
        self.opened += 1
        return read_file(path, limit)


class PlainDriver(ComputeDriver):
    """A driver from elsewhere that knows nothing of readings."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return [self.conf.DEFAULT.host]

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        numbers = dict.fromkeys(
            ("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used"), 1
        )
        return {
            "hypervisor_hostname": nodename,
            "hypervisor_type": "plain",
            "hypervisor_version": 1,
            "cpu_info": "{}",
            "numa_topology": None,
            **numbers,
        }

    def update_provider_tree(self, provider_tree: Any, nodename: str) -> None:  # type: ignore[override]
        provider_tree.update_inventory(nodename, {"CUSTOM_THING": {"total": 4, "max_unit": 4}})


def machine() -> MachineBuilder:
    """Two cells of 32 threads each, two ports of 16 VFs, two GPUs."""
    built = MachineBuilder()
    built.memory(64 << 20)
    built.cpus("0-63")
    built.nodes("0-1")
    for cell in (0, 1):
        cpus = range(32 * cell, 32 * (cell + 1))
        built.node(cell, cpus=f"{cpus[0]}-{cpus[-1]}", memory_kib=32 << 20, distance="10 21")
        built.huge_pages(cell, 2048, 0, 0)
        built.huge_pages(cell, 1048576, 0, 0)
        for cpu in cpus:
            pair = cpu - cpu % 2
            built.cpu(cpu, socket=cell, core=pair, siblings=f"{pair}-{pair + 1}")
        built.nic(f"0000:{0x18 + cell:x}:00.0", f"ens{cell}", vfs=16, numa_node=cell)
        built.gpu(f"0000:{0x80 + cell:x}:00.0", numa_node=cell)
    return built


class AgentStarts:
    """Starts of the agent on one machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._app = ours(directory)
        self._last: Node | None = None
        machine().write(directory / "machine")

    def start(self, driver: type[ComputeDriver] = CountingHost) -> Node:
        self.stop()
        root = self._directory / "machine"
        self._last = Node(
            self._app,
            self._directory,
            name="host1",
            extra=f"[DEFAULT]\ncompute_driver = {__name__}.{driver.__name__}\n"
            f"[host]\nsysfs_root = {root}/sys\nprocfs_root = {root}/proc\n",
        )
        return self._last

    def stop(self) -> None:
        if self._last is not None:
            self._last.parts.close()
            self._last = None


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentStarts]:
    started = AgentStarts(tmp_path)
    yield started
    started.stop()


def opened_by(node: Node) -> int:
    """Return how many files a pass opened."""
    before = node.driver.opened
    assert node.run().completed
    return int(node.driver.opened - before)


def test_a_pass_opens_the_files_of_the_machine_once(agent: AgentStarts) -> None:
    """257 files.

    It was 1162 while facts and layout read the machine each by themselves, and 581 while discovery
    read facts that nothing used.
    """
    node = agent.start()
    assert opened_by(node) == opened_by(node) <= 257


def test_a_pass_that_reshapes_opens_the_files_of_the_machine_once(agent: AgentStarts) -> None:
    """257 files; 2324 while the machine was read again for facts, layout and reshape."""
    assert agent.start().run().completed
    node = agent.start()
    node.driver.options = replace(node.driver.options, is_nested=True)
    assert opened_by(node) <= 257
    tree, root = node.tracker.reported_tree("host1")
    assert "VCPU" not in tree.data(root).inventory, "it was a reshape"


def test_a_pass_sees_what_changed_since_the_one_before(agent: AgentStarts, tmp_path: Path) -> None:
    node = agent.start()
    assert node.run().completed
    (tmp_path / "machine/sys/devices/system/cpu/online").write_text("0-31\n")
    assert node.run().completed
    tree, root = node.tracker.reported_tree("host1")
    assert tree.data(root).inventory["VCPU"]["total"] == 32
    assert node.tracker.facts("host1")["vcpus"] == 32


def test_a_question_outside_a_pass_reads_the_machine_by_itself(agent: AgentStarts) -> None:
    node = agent.start()
    readings = []
    for _ in range(2):
        before = node.driver.opened
        node.driver.get_available_resource("host1")
        readings.append(node.driver.opened - before)
    assert readings[0] == readings[1] > 0


def test_a_driver_that_only_edits_the_tree_still_works(agent: AgentStarts) -> None:
    node = agent.start(PlainDriver)
    assert node.run().completed
    tree, root = node.tracker.reported_tree("host1")
    assert tree.data(root).inventory["CUSTOM_THING"]["total"] == 4
