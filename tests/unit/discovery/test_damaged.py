"""Machines with damaged files: each is discovered, or refused in one known way."""

from __future__ import annotations

import errno
import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.sysfs import memory
from compute_agent.discovery.sysfs.reader import Machine, read_file
from compute_agent.discovery.topology import Discovery
from tests.data.machine_builder import MachineBuilder
from tests.data.make_two_cells import TWO_CELLS

FILES = sorted(str(path.relative_to(TWO_CELLS)) for path in TWO_CELLS.rglob("*") if path.is_file())
ERRORS = (errno.EACCES, errno.EIO, errno.ENOENT, errno.EINVAL, errno.ENODEV)
CONTENTS = (b"", b"\n", b"-1\n", b"0x\n", b"\xff\xfe\x00", b"99999999999999999999\n", b"a b c\n")

damages = st.dictionaries(
    st.sampled_from(FILES),
    st.one_of(st.sampled_from(ERRORS), st.sampled_from(CONTENTS), st.binary(max_size=64)),
    max_size=40,
)


@cache
def real(path: str) -> str:
    return os.path.realpath(path)


def discovery_of(damage: dict[str, int | bytes]) -> Discovery:
    """The machine of two cells with some files unreadable (errno) or holding something else."""
    at_fault = {real(str(TWO_CELLS / name)): what for name, what in damage.items()}

    def read(path: str, limit: int) -> bytes:
        what = at_fault.get(real(path))
        if isinstance(what, int):
            raise OSError(what, os.strerror(what), path)
        return read_file(path, limit) if what is None else what[:limit]

    return Discovery(str(TWO_CELLS / "sys"), str(TWO_CELLS / "proc"), read=read)


def coherent(topology: HostTopology) -> None:
    """What layouts may count on."""
    ids = {cell.id for cell in topology.cells}
    assert ids
    devices = {device.address: device for device in topology.pci_devices}
    placed = [cpu for cell in topology.cells for cpu in cell.cpus]
    assert len(placed) == len(set(placed))
    assert set(placed) <= set(topology.online_cpus) <= set(topology.present_cpus)
    for device in topology.pci_devices:
        assert re.fullmatch("[0-9a-f]{4}", device.vendor_id)
        assert re.fullmatch("[0-9a-f]{6}", device.class_code)
        assert device.total_vfs >= 0
        assert device.numa_node is None or device.numa_node in ids
        assert all(vf in devices for vf in device.vfs)
    for nic in topology.nics:
        assert tuple(vf.address for vf in nic.vfs) == devices[nic.address].vfs
    for gpu in topology.gpus:
        assert gpu.address in devices


@given(damages)
def test_any_damage_leaves_a_coherent_machine_or_says_why_not(
    damage: dict[str, int | bytes],
) -> None:
    discovery = discovery_of(damage)
    try:
        topology = discovery.discover()
    except DiscoveryError as error:
        reason = str(error)
        event("refused")
    else:
        event("discovered")
        coherent(topology)
        reason = ""
        assert discovery.discover() == topology
    assert not reason or "meminfo" in reason or "no CPU found" in reason


def test_damage_to_one_device_leaves_the_others_as_they_were() -> None:
    whole = discovery_of({}).discover()
    name = next(name for name in FILES if name.endswith("0000:84:00.0/class"))
    damaged = discovery_of({name: errno.EACCES}).discover()
    assert damaged.gpus == whole.gpus[:1]
    assert damaged.nics == whole.nics
    assert damaged.cells == whole.cells


NODES = "sys/devices/system/node"


@pytest.mark.parametrize(
    ("name", "words", "cells"),
    [
        ("online", "node/online is not a list of nodes", [0, 1]),
        ("node1/cpulist", "a list of CPUs", [0]),
    ],
)
def test_a_damaged_list_of_nodes_or_of_their_cpus(name: str, words: str, cells: list[int]) -> None:
    topology = discovery_of({f"{NODES}/{name}": b"a b c"}).discover()
    assert any(words in warning for warning in topology.warnings)
    assert [cell.id for cell in topology.cells] == cells


def test_a_damaged_number_of_keys_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "fs/cgroup").mkdir(parents=True)
    (tmp_path / memory.CAPACITY).write_text("sev x\ntdx 30\n")
    machine = Machine(str(tmp_path))
    assert memory.encryption(machine).capacity == (("tdx", 30),)
    assert "holds 'sev x'" in machine.warnings[0]


def test_a_directory_or_link_that_cannot_be_read_is_empty_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    machine = Machine(str(tmp_path))
    assert machine.sys.names("loop") == ()
    assert machine.sys.link("loop/driver") is None
    assert [warning.split()[-1] for warning in machine.warnings] == ["empty", "unknown"]


@pytest.mark.parametrize("vfs", [8, 64])
def test_a_vf_costs_a_fixed_number_of_reads(tmp_path: Path, vfs: int) -> None:
    machine = MachineBuilder()
    machine.cpus("0")
    machine.nic("0000:81:00.0", "ens1", vfs=vfs)
    machine.write(tmp_path)
    reads: list[str] = []

    def note(path: str, limit: int) -> bytes:
        reads.append(path)
        return read_file(path, limit)

    Discovery(str(tmp_path / "sys"), str(tmp_path / "proc"), read=note).discover()
    of_vfs = [path for path in reads if "/0000:81:00.0/" not in path and "0000:81:" in path]
    assert len(of_vfs) <= 10 * vfs
