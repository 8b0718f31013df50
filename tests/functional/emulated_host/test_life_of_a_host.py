"""The life of a host: functions, pages, a guest as planned, one as it is, libvirtd, power cut."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import requests

from tests.fixtures.allocations import claim_body
from tests.fixtures.emulated_host import OUTSIDE, PATIENCE, EmulatedHost
from tests.functional.agent.processes import PlacementProcess, eventually, running_placement
from tests.functional.emulated_host.relay import START_LIBVIRTD, NoHost, Relay, new_host
from tests.integration.holders.machines import xml_of

pytestmark = pytest.mark.long

Tree: TypeAlias = dict[str, dict[str, Any]]

NODE: Final = "emulated.example.org"
CELL: Final = f"{NODE}_NUMA1"
PAGES: Final = f"{CELL}_PAGES2048"
DRIVE: Final = f"{NODE}_0000:81:00.0"
GUEST: Final = str(uuid.UUID(int=0x15))
PLANNED: Final = str(uuid.UUID(int=0x36))

MAKE_FUNCTIONS: Final = "echo 2 >/sys/bus/pci/devices/0000:81:00.0/sriov_numvfs"
TAKE_PAGES: Final = (
    "echo 64 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
)
# Paused: it has its pages, CPU and function, and firmware that is emulated twice takes no time.
START_GUEST: Final = """
import libvirt
guest = libvirt.open("qemu:///system").defineXML(open("/run/outside/guest.xml").read())
guest.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
"""
# what libvirt reports of a guest, and what the kernel does with the threads and memory of its QEMU
LOOK_AT_GUEST: Final = """
import json, os, libvirt
from pathlib import Path
from xml.etree import ElementTree
connection = libvirt.open("qemu:///system")
guest = connection.defineXML(open("/run/outside/planned.xml").read())
guest.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
pid = Path(f"/run/libvirt/qemu/{guest.name()}.pid").read_text().strip()
threads = {
    (task / "comm").read_text().split("/")[0]: sorted(os.sched_getaffinity(int(task.name)))
    for task in Path(f"/proc/{pid}/task").iterdir()
}
seen = {
    "vcpupin": [[i for i, on in enumerate(row) if on] for row in guest.vcpuPinInfo(0)],
    "threads": [threads[f"CPU {vcpu}"] for vcpu in range(2)],
    "numatune": [
        [int(node.get("cellid")), node.get("mode"), node.get("nodeset")]
        for node in ElementTree.fromstring(guest.XMLDesc(0)).iter("memnode")
    ],
    "nodeset": guest.numaParameters(0)["numa_nodeset"],
    "bound": sorted({
        line.split()[1]
        for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
        if line.split()[1].startswith("bind")
    }),
}
Path("/run/outside/planned.json").write_text(json.dumps(seen))
"""
END_GUEST: Final = """
import libvirt, uuid
guest = libvirt.open("qemu:///system").lookupByName("test-" + str(uuid.UUID(int=0x36)))
guest.destroy()
guest.undefine()
"""
CONFIGURATION: Final = """
[DEFAULT]
host = emulated
compute_driver = libvirt.LibvirtDriver
state_path = /disk/agent
instances_path = /disk/instances
update_resources_interval = 600
periodic_fuzzy_delay = 0
[libvirt]
virt_type = qemu
[compute]
enable_numa_reporting_to_placement = true
cpu_shared_set = 0,2
cpu_dedicated_set = 1,3
[compute_agent]
audit_interval = 1
audit_grace = 0
[pci]
report_in_placement = true
device_spec = {"address": "0000:81:00.[1-4]", "resource_class": "CUSTOM_NVME"}
[placement]
auth_type = noauth
"""
GUEST_XML: Final = f"""
<domain type='qemu'>
  <name>pinned</name><uuid>{GUEST}</uuid>
  <memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>
  <cputune><vcpupin vcpu='0' cpuset='3'/></cputune>
  <numatune><memory mode='strict' nodeset='1'/></numatune>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0' bus='0x81' slot='0' function='1'/></source>
    </hostdev>
    <memballoon model='none'/>
  </devices>
</domain>
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[EmulatedHost]:
    try:
        emulated = new_host(tmp_path / "host", NODE)
    except NoHost as error:
        pytest.skip(str(error))
    yield emulated
    emulated.turn_off()


@pytest.fixture
def placement(tmp_path: Path) -> Iterator[PlacementProcess]:
    with running_placement(tmp_path) as server:
        yield server


def await_slowly(condition: Callable[[], Any], what: str) -> Any:
    """Return what is true at last; to ask more often would take the host's time."""
    return eventually(condition, what, PATIENCE, pause=0.5)


class Operator(Relay):
    """Does on the host what operators and their scripts do, and looks at placement."""

    def __init__(self, host: EmulatedHost, placement: PlacementProcess) -> None:
        super().__init__(host)
        self.placement = placement

    def boot(self, *scripts: str) -> None:
        """Turn the host on and start what is installed, after the scripts."""
        self.host.turn_on()
        endpoint = f"endpoint_override = http://{OUTSIDE}:{self.placement.port}\n"
        (self.host.shared / "agent.conf").write_text(CONFIGURATION + endpoint)
        (self.host.shared / "guest.xml").write_text(GUEST_XML)
        self.install(*scripts)

    def tree(self, expected: Callable[[Tree], bool], what: str) -> Tree:
        """Return the host's tree once it is as expected."""

        def seen() -> Tree | None:
            try:
                tree = self.placement.tree(NODE)
            except requests.HTTPError:
                return None  # a provider went while the others were read
            return tree if expected(tree) else None

        log = self.host.shared / "agent.log"
        try:
            found: Tree = await_slowly(seen, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the agent's log: {log.read_text()}") from None
        return found

    def wait_for_agent(self) -> None:
        """Wait until the agent answers, and has completed its first pass."""
        await_slowly(self._is_started, "a first pass")

    def _is_started(self) -> bool:
        try:
            nodes = self.ask("status")["nodes"]
        except AssertionError:
            return False  # the socket is one that the power cut left
        return bool(nodes) and not any(node["startup"] for node in nodes)

    def report(self) -> dict[str, Any]:
        """Ask the agent for a pass; returns the node's status after it."""
        node: dict[str, Any] = self.ask("report")["nodes"][0]
        return node

    def sees_drift(self, **expected: list[str]) -> None:
        """Wait until instances and allocations are compared again, and differ as expected."""
        drift = {"orphaned": [], "missing": [], "differing": [], **expected}
        await_slowly(lambda: self.report()["drift"] == drift, f"drift {drift}")

    def allocate(self, consumer: str, resources: dict[str, dict[str, int]]) -> None:
        """Allocate for a guest, as a scheduler does."""
        self.placement.send("PUT", f"/allocations/{consumer}", claim_body(resources))


def total(tree: Tree, provider: str, resource_class: str) -> int:
    record = tree.get(provider, {}).get("inventories", {}).get(resource_class, {})
    return int(record.get("total", 0))


def identities(tree: Tree) -> dict[str, tuple[str, str | None, list[str]]]:
    """Return uuid, parent and resource classes of each provider by name."""
    return {
        name: (provider["uuid"], provider["parent"], sorted(provider["inventories"]))
        for name, provider in tree.items()
    }


def is_reported(tree: Tree) -> bool:
    return total(tree, NODE, "DISK_GB") > 0 and total(tree, CELL, "PCPU") == 1


def check_planned_guest(operator: Operator, tree: Tree) -> None:
    """Start a guest of two nodes as it is planned; what libvirt reports of it is the plan."""
    sizes = {f"{NODE}_NUMA0": 96, CELL: 64}
    held = {tree[cell]["uuid"]: {"PCPU": 1, "MEMORY_MB": mib} for cell, mib in sizes.items()}
    extra = {"numa_nodes": 2, "numa_mem.0": 64, "numa_mem.1": 96, "cpu_policy": "dedicated"}
    extra |= {"numa_cpus.0": 0, "numa_cpus.1": 1}
    settings = {f"hw:{name}": str(value) for name, value in extra.items()}
    flavor = {"vcpus": 2, "memory_mb": 160, "extra_specs": settings}
    operator.allocate(PLANNED, held)
    claimed = operator.ask("instance_claim", spec={"instance_uuid": PLANNED, "flavor": flavor})
    cells = claimed["cells"]
    assert [(c["cell"], c["pinned_cpus"], c["memory_mib"]) for c in cells] == [
        (1, [3], 64),
        (0, [1], 96),
    ]
    (operator.host.shared / "planned.xml").write_text(xml_of(PLANNED, claimed))
    operator.run_python(LOOK_AT_GUEST)
    seen = json.loads((operator.host.shared / "planned.json").read_text())
    assert seen == {
        "vcpupin": [cell["pinned_cpus"] for cell in cells],
        "threads": [cell["pinned_cpus"] for cell in cells],
        "numatune": [[i, "strict", str(cell["cell"])] for i, cell in enumerate(cells)],
        "nodeset": "0-1",
        "bound": ["bind:0", "bind:1"],
    }
    operator.sees_drift()
    operator.run_python(END_GUEST)
    assert operator.ask("drop_claim", instance=PLANNED)
    assert operator.placement.request("DELETE", f"/allocations/{PLANNED}").status_code == 204


@pytest.mark.timeout(900)  # an emulated CPU is 10 times slower, and shared with other tests
def test_a_host_is_reported_as_it_is_through_all_that_happens_to_it(
    host: EmulatedHost, placement: PlacementProcess
) -> None:
    operator = Operator(host, placement)
    operator.boot()
    tree = operator.tree(is_reported, "the agent reports the host")
    assert (total(tree, f"{NODE}_NUMA0", "VCPU"), total(tree, CELL, "VCPU")) == (1, 1)
    memory_before = total(tree, CELL, "MEMORY_MB")
    assert DRIVE not in tree

    # the kernel's event makes the agent look, long before the next pass is due; it listens once
    # its start is complete
    operator.wait_for_agent()
    host.run(MAKE_FUNCTIONS)
    operator.tree(lambda tree: total(tree, DRIVE, "CUSTOM_NVME") == 2, "two functions")

    check_planned_guest(operator, tree)

    host.run(TAKE_PAGES)
    assert operator.report()["trouble"] is None
    tree = placement.tree(NODE)
    assert total(tree, PAGES, "MEMORY_MB") == 128
    assert total(tree, CELL, "MEMORY_MB") == memory_before - 128

    operator.run_python(START_GUEST)
    operator.sees_drift(missing=[GUEST])
    held = {
        tree[CELL]["uuid"]: {"PCPU": 1},
        tree[PAGES]["uuid"]: {"MEMORY_MB": 64},
        tree[DRIVE]["uuid"]: {"CUSTOM_NVME": 1},
    }
    operator.allocate(GUEST, held)
    claimed = operator.ask("instance_claim", spec={"instance_uuid": GUEST})
    units = {unit["resource_class"]: unit["name"] for unit in claimed["units"]}
    assert units == {"PCPU": "3", "CUSTOM_NVME": "0000:81:00.1"}
    operator.sees_drift()

    host.run("kill -9 $(cat /run/libvirtd.pid)")
    trouble = operator.report()["trouble"]
    assert "libvirt" in trouble["message"]
    host.run(START_LIBVIRTD)
    await_slowly(lambda: operator.report()["trouble"] is None, "a connection again")
    operator.sees_drift()

    tree = placement.tree(NODE)
    host.turn_off()
    operator.boot(MAKE_FUNCTIONS, TAKE_PAGES)
    operator.wait_for_agent()
    assert operator.report()["trouble"] is None
    operator.sees_drift()
    assert identities(placement.tree(NODE)) == identities(tree)
    assert operator.ask("claims") == [claimed]
    assert placement.held(GUEST) == held
