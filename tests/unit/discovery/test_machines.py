"""Machines of the catalogue, each with what it shows, and one that a real kernel wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.discovery import capture
from compute_agent.discovery.capture import replay
from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.topology import Discovery
from tests.data import figures, machines
from tests.data.archive import unpack

README = Path(machines.__file__).with_name("README.md")
LESSONS = {"limited-container": 1, "fake-cells": 3}
"""How many warnings a machine is about."""
EXPECTED = dict(line.split(": ", 1) for line in figures.EXPECTED.read_text().splitlines())


@pytest.mark.parametrize("name", machines.NAMES)
def test_each_machine_is_read_and_described(name: str, tmp_path: Path) -> None:
    machine = machines.make(name, tmp_path)
    topology = Discovery(str(machine / "sys"), str(machine / "proc")).discover()
    assert len(topology.warnings) == LESSONS.get(name, 0), topology.warnings
    assert f"`{name}`" in README.read_text()


@pytest.mark.parametrize("name", machines.NAMES)
def test_each_machine_has_the_figures_that_are_expected(name: str, tmp_path: Path) -> None:
    line = figures.figures(capture.replay(machines.make(name, tmp_path)))
    assert line == EXPECTED[name].partition(" | libvirt")[0]


def test_there_are_figures_of_every_machine_and_no_other() -> None:
    assert list(EXPECTED) == list(machines.NAMES)


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> HostTopology:
    return replay(unpack("emulated-numa", tmp_path_factory.mktemp("machine")))


def test_nothing_in_it_is_odd(topology: HostTopology) -> None:
    assert topology.warnings == ()


def test_the_offline_cpu_is_on_no_cell(topology: HostTopology) -> None:
    assert topology.present_cpus == (0, 1, 2, 3)
    assert [cell.cpus for cell in topology.cells] == [(0, 1), (2,)]
    assert [cell.distances for cell in topology.cells] == [((0, 10), (1, 21)), ((0, 21), (1, 10))]
    assert [[(p.size_kib, p.total) for p in cell.huge_pages] for cell in topology.cells] == [
        [(2048, 32), (1048576, 0)]
    ] * 2


def test_ports_hang_off_their_cells_and_their_links_are_down(topology: HostTopology) -> None:
    assert [(nic.address, nic.numa_node, nic.speed_mbps) for nic in topology.nics] == [
        ("0000:41:00.0", 0, None),
        ("0000:82:00.0", 1, None),
    ]


def test_vfs_are_the_hosts_the_guests_or_free(topology: HostTopology) -> None:
    first, second = topology.nics
    # the first VF got an address by `ip addr add`, one of the other card went to vfio-pci
    assert [vf.in_use_by_host for vf in first.vfs] == [True, False, False]
    assert [vf.netdev is None for vf in second.vfs] == [False, True, False]


def test_a_drive_with_sriov_is_a_pf_and_no_port(topology: HostTopology) -> None:
    (drive,) = (device for device in topology.pci_devices if device.class_code == "010802")
    assert (drive.total_vfs, drive.vfs, drive.numa_node) == (4, (), 1)
    assert drive.address not in [nic.address for nic in topology.nics]
