"""Namespaces of persistent memory, as a stand-in prints them: no test has the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compute_agent.discovery import storage
from compute_agent.discovery.capture import capture, replay
from compute_agent.discovery.errors import FactMalformed, ProgramFailed
from compute_agent.discovery.facts import PmemNamespace
from tests.fixtures.stand_ins import StandIn

GIB = 1024**3
DEVDAX = {
    "dev": "namespace1.0",
    "mode": "devdax",
    "map": "mem",
    "size": 4 * GIB,
    "uuid": "9f2a6c6e-0d4f-4d0b-8b4c-51a5d6a0a001",
    "daxregion": {
        "id": 1,
        "size": 4 * GIB,
        "align": 2097152,
        "devices": [{"chardev": "dax1.0", "size": 4 * GIB}],
    },
    "name": "ns1",
}
OLDER = {
    "dev": "namespace0.0",
    "mode": "devdax",
    "map": "dev",
    "size": 2 * GIB,
    "chardev": "dax0.0",
    "align": 4096,
    "name": "ns0",
}
FILE_SYSTEM = {"mode": "raw", "size": GIB, "blockdev": "pmem2", "name": "ns2"}
NAMELESS = {"dev": "namespace3.0", "mode": "raw", "size": GIB, "blockdev": "pmem3"}


def test_namespaces_are_listed_by_name_with_their_devices(stand_in: StandIn) -> None:
    calls = stand_in("ndctl", json.dumps([DEVDAX, FILE_SYSTEM, NAMELESS, OLDER]))
    assert storage.pmem_namespaces() == (
        PmemNamespace("ns0", 2 * GIB, 4096, "/dev/dax0.0"),
        PmemNamespace("ns1", 4 * GIB, 2097152, "/dev/dax1.0"),
        PmemNamespace("ns2", GIB, None, "/dev/pmem2"),
    )
    assert calls.read_text() == "list -X\n"


def test_an_alignment_of_the_device_is_that_of_the_namespace(stand_in: StandIn) -> None:
    region = {"devices": [{"chardev": "dax1.0", "align": 1073741824}]}
    stand_in("ndctl", json.dumps([{**DEVDAX, "daxregion": region}]))
    assert [namespace.align_bytes for namespace in storage.pmem_namespaces()] == [1073741824]


def test_a_namespace_alone_may_be_printed_without_a_list(stand_in: StandIn) -> None:
    stand_in("ndctl", json.dumps(OLDER))
    assert [namespace.name for namespace in storage.pmem_namespaces()] == ["ns0"]


def test_nothing_printed_is_no_namespace(stand_in: StandIn) -> None:
    stand_in("ndctl")
    assert storage.pmem_namespaces() == ()


@pytest.mark.parametrize("text", ["failed", '["ns0"]', '[{"name": "ns0"}]', "5"])
def test_odd_output_of_ndctl_is_an_error(stand_in: StandIn, text: str) -> None:
    stand_in("ndctl", text)
    with pytest.raises(FactMalformed, match="the output of ndctl list -X holds"):
        storage.pmem_namespaces()


def test_a_missing_ndctl_is_an_error(stand_in: StandIn) -> None:
    with pytest.raises(ProgramFailed, match="ndctl list -X failed: No such file"):
        storage.pmem_namespaces()


def test_namespaces_are_captured_and_replayed(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("ndctl", json.dumps([DEVDAX, OLDER]))
    sysfs, procfs = "tests/data/two-cells/sys", "tests/data/two-cells/proc"
    capture(tmp_path / "copy", sysfs_root=sysfs, procfs_root=procfs, with_pmem=True)
    assert replay(tmp_path / "copy").pmem == storage.pmem_namespaces()


def test_a_capture_without_ndctl_says_so(stand_in: StandIn, tmp_path: Path) -> None:
    sysfs, procfs = "tests/data/two-cells/sys", "tests/data/two-cells/proc"
    capture(tmp_path / "copy", sysfs_root=sysfs, procfs_root=procfs, with_pmem=True)
    assert "ndctl list -X failed" in (tmp_path / "copy" / "capture.json").read_text()
    assert replay(tmp_path / "copy").pmem is None
