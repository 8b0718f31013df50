"""Sizes of the stores of guests' disks.

There is no volume group and no cluster of Ceph where tests run: stand-ins for vgs and ceph print
what these programs print.
"""

from __future__ import annotations

import json
import os
import select
from pathlib import Path

import pytest

from compute_agent.discovery.errors import DiscoveryError, FactMalformed, ProgramFailed
from compute_agent.discovery.facts import DiskStore
from compute_agent.discovery.storage import CephPool, FileSystem, VolumeGroup, measure, output_of
from tests.fixtures.stand_ins import StandIn

TIB = 1024**4
CLUSTER = json.dumps(
    {
        "stats": {"total_bytes": 300 * TIB, "total_avail_bytes": 270 * TIB},
        "pools": [
            {"name": ".mgr", "id": 1, "stats": {"stored": 500, "max_avail": 85 * TIB}},
            {
                "name": "vms",
                "id": 2,
                "stats": {"stored": 5 * TIB, "bytes_used": 15 * TIB, "max_avail": 85 * TIB},
            },
        ],
    }
)


def test_a_volume_group_has_the_size_that_vgs_prints(stand_in: StandIn) -> None:
    calls = stand_in("vgs", "  107374182400\n")
    assert VolumeGroup("nova").measure() == DiskStore("volume group nova", 107374182400)
    assert calls.read_text() == "--noheadings --nosuffix --units b -o vg_size nova\n"


def test_a_pool_is_what_it_stores_and_can_store_and_not_the_raw_cluster(stand_in: StandIn) -> None:
    calls = stand_in("ceph", CLUSTER)
    assert CephPool("vms").measure() == DiskStore("pool vms", 90 * TIB)
    assert calls.read_text() == "df --format=json\n"


def test_ceph_is_asked_with_the_file_and_client_of_the_options(stand_in: StandIn) -> None:
    calls = stand_in("ceph", CLUSTER)
    CephPool("vms", "/etc/ceph/two.conf", "nova").measure()
    assert calls.read_text() == "df --format=json --conf /etc/ceph/two.conf --id nova\n"


@pytest.mark.parametrize("source", [VolumeGroup("nova"), CephPool("vms")])
def test_a_program_that_is_missing_is_named_with_what_helps(
    stand_in: StandIn, source: VolumeGroup | CephPool
) -> None:
    disk, fault = measure(source)
    assert disk is None
    program = "vgs" if isinstance(source, VolumeGroup) else "ceph"
    package = "lvm2" if isinstance(source, VolumeGroup) else "ceph-common"
    assert fault is not None
    assert fault.startswith(f"{program} ")
    assert "failed: No such file or directory" in fault
    assert f"install {package}" in fault


def test_what_a_failed_program_wrote_is_in_the_error(stand_in: StandIn) -> None:
    stand_in("vgs", complains='  Volume group "nova" not found\n', status=5)
    with pytest.raises(ProgramFailed, match='status 5: Volume group "nova" not found'):
        VolumeGroup("nova").measure()


@pytest.mark.parametrize("text", ["", "100.00g", "1 2"])
def test_odd_output_of_vgs_is_not_a_size(stand_in: StandIn, text: str) -> None:
    stand_in("vgs", text)
    with pytest.raises(FactMalformed, match=r"the output of vgs .* nova holds"):
        VolumeGroup("nova").measure()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error initializing cluster client",
        "[]",
        '{"pools": {}}',
        '{"pools": [{"name": "vms", "stats": {"stored": 1}}]}',
        '{"pools": [{"name": "vms", "stats": {"stored": "much", "max_avail": 1}}]}',
        '{"pools": [{"name": "vms", "stats": 5}]}',
    ],
)
def test_odd_output_of_ceph_is_not_a_size(stand_in: StandIn, text: str) -> None:
    stand_in("ceph", text)
    with pytest.raises(FactMalformed, match="the output of ceph df --format=json holds"):
        CephPool("vms").measure()


def test_a_pool_that_the_cluster_lacks_is_told_with_those_it_has(stand_in: StandIn) -> None:
    stand_in("ceph", CLUSTER)
    with pytest.raises(FactMalformed, match=r"the pools \.mgr, vms', expected a pool volumes"):
        CephPool("volumes").measure()


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(ProgramFailed, match=r"did not end within 0\.5 seconds"):
            output_of(("sh", "-c", f"echo held >{held}; sleep 600 >{held} & wait"), timeout=0.5)
        assert os.read(reader, 100) == b"held\n"
        hung_up = select.poll()
        hung_up.register(reader, 0)
        assert hung_up.poll(60_000), "the last process that held it has ended"
    finally:
        os.close(reader)


def test_a_directory_has_its_file_system_and_a_missing_one_none(tmp_path: Path) -> None:
    assert FileSystem(str(tmp_path)).measure().size_bytes > 0
    with pytest.raises(DiscoveryError, match="not-mounted"):
        FileSystem(str(tmp_path / "not-mounted")).measure()
