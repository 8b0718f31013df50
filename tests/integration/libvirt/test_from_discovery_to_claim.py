"""The uses that everything is for: from what libvirt discovers to what a guest is given by name.

A host of two sockets, on each a card of two ports and two GPUs, is discovered by a real libvirtd,
reported to a real placement, searched and claimed by the scheduler, and given out by the host.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compute_agent.agent import assembly, claim_messages
from compute_agent.claims.assignment import Assigner
from compute_agent.conf import new_config
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.request.ports import binding_allocation, groups_of_port
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from tests.data import machines
from tests.fixtures.libvirtd import running_libvirtd
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

NODE = "two-sockets.example.org"
CELL_OF_BUS = {"17": 0, "18": 0, "19": 0, "81": 1, "82": 1, "83": 1}
GBIT = 1_000_000
"""In kbit/s, the unit of bandwidth."""


@dataclass(frozen=True)
class Guest:
    """A guest that has its place: its cells, and its units by resource class."""

    instance: str
    cells: tuple[int, ...]
    units: dict[str, list[str]]
    mappings: dict[str, list[str]]


class Host:
    """One host, and guests that are scheduled to it and claimed on it."""

    def __init__(self, world: World, assigner: Assigner, root: str) -> None:
        self._world = world
        self._assigner = assigner
        tree = world.call("GET", f"/resource_providers?in_tree={root}")["resource_providers"]
        self.names: dict[str, str] = {
            provider["uuid"]: provider["name"].removeprefix(f"{NODE}_") for provider in tree
        }

    def guest(self, asked: RequestSpec) -> Guest:
        """Schedule a guest and claim it.

        :raises NoValidHost: it does not fit.
        """
        instance = str(uuid.uuid4())
        ((selection,),) = self._world.scheduler().select_destinations(asked, [instance])
        allocated = json.loads(selection.allocation_request)
        request = claim_messages.request_from(
            {"instance_uuid": instance}, allocated["allocations"], allocated["mappings"]
        )
        claim = self._assigner.claim(request)
        units: dict[str, list[str]] = {}
        for unit in claim.units:
            units.setdefault(unit.resource_class, []).append(unit.name)
        cells = tuple(cell.cell for cell in claim.cells)
        return Guest(instance, cells, units, allocated["mappings"])


def cell_of(unit: str) -> int:
    """Return the cell of the device that a unit is a part of."""
    return CELL_OF_BUS[unit.split(":")[1]]


def port_of(function: str) -> int:
    """Return the port of its card, 0 or 1, that a VF belongs to."""
    return int(function.split(":")[2].split(".")[0], 16) // 9


@pytest.fixture(scope="module")
def host(libvirt_run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    directory = tmp_path_factory.mktemp("discovery-to-claim")
    machine = machines.make("two-sockets", directory)
    with running_libvirtd(libvirt_run_directory, machine, NODE) as daemon:
        config = directory / "agent.conf"
        config.write_text(
            f"[DEFAULT]\nhost = two-sockets\nstate_path = {directory}/state\n"
            "compute_driver = libvirt.LibvirtDriver\n"
            f"[libvirt]\nvirt_type = qemu\nconnection_uri = {daemon.uri}\n"
            f"[host]\nsysfs_root = {daemon.machine}/sys\nprocfs_root = {daemon.machine}/proc\n"
            f"[compute]\nprovider_config_location = {directory}/none\n"
            "enable_numa_reporting_to_placement = true\n"
            "[devices]\nenabled_mdev_types = nvidia-231\n"
            "[nic]\nreport_bandwidth = true\nbandwidth_share = 1.0\n"
            "physnet_mappings = physnet0:ens1f0np0,physnet1:ens1f1np1,"
            "physnet0:ens2f0np0,physnet1:ens2f1np1\n"
        )
        transport = InProcessTransport(ours(directory))
        conf = new_config([f"--config-file={config}"], default_config_dirs=[])
        parts = assembly.build(conf, transport=transport)
        tracker = parts.tracker(wait=lambda _seconds: False)
        ((node, root),) = parts.setup.nodes().items()
        tracker.add_node(node, root)
        assert tracker.run_pass(node).completed
        world = World(transport, directory / "journal")
        yield Host(world, parts.assigner(parts.claims(tracker)), root)
        parts.close()


def test_cpus_memory_and_vgpu_of_a_guest_are_of_one_cell(host: Host) -> None:
    together = spec({"resources_GPU:VGPU": "1", "same_subtree": "_GPU,_NUMA0"}, root_gb=0)
    cells = set()
    for _ in range(10):
        guest = host.guest(together)
        (vgpu,) = guest.units["VGPU"]
        assert guest.cells == (cell_of(vgpu),)
        cells.add(cell_of(vgpu))
    assert cells == {0, 1}


def test_a_vgpu_may_be_asked_for_on_another_cell_than_the_cpus(host: Host) -> None:
    apart = spec({"resources_GPU:VGPU": "1", "same_subtree": "_NUMA0,!_GPU"}, root_gb=0)
    for _ in range(5):
        guest = host.guest(apart)
        (vgpu,) = guest.units["VGPU"]
        assert guest.cells == (1 - cell_of(vgpu),)


def test_two_functions_are_of_different_ports_of_one_card(host: Host) -> None:
    bond = spec(
        {
            "trait_CARD:CUSTOM_NIC_ROOT": "required",
            "resources_A:SRIOV_NET_VF": "1",
            "resources_B:SRIOV_NET_VF": "1",
            "same_subtree": "_CARD,_A,_B",
            "group_policy": "isolate",
        },
        root_gb=0,
    )
    for _ in range(5):
        functions = host.guest(bond).units["SRIOV_NET_VF"]
        assert sorted(map(port_of, functions)) == [0, 1]
        assert len(set(map(cell_of, functions))) == 1


def test_each_port_of_a_guest_gets_a_function_where_its_bandwidth_is(host: Host) -> None:
    wanted = {
        str(uuid.uuid4()): {
            "resources": {
                "SRIOV_NET_VF": 1,
                "NET_BW_EGR_KILOBIT_PER_SEC": 15 * GBIT,
                "NET_BW_IGR_KILOBIT_PER_SEC": 15 * GBIT,
            },
            "required": [f"CUSTOM_PHYSNET_PHYSNET{network}", "CUSTOM_VNIC_TYPE_DIRECT"],
        }
        for network in range(2)
    }
    groups = [group for port in wanted.items() for group in groups_of_port(*port)[0]]
    asked = spec({"group_policy": "none"}, root_gb=0, requested_groups=tuple(groups))
    for _ in range(2):
        guest = host.guest(asked)
        functions = {port_of(function): function for function in guest.units["SRIOV_NET_VF"]}
        for network, (port, request) in enumerate(wanted.items()):
            provider = host.names[str(binding_allocation(port, request, guest.mappings))]
            assert provider.endswith(f".{network}")
            assert cell_of(provider) == cell_of(functions[network])
    # 10 of 25 Gbit/s are left on each of the four ports, and many functions
    with pytest.raises(NoValidHost):
        host.guest(asked)
