"""Serial numbers in vital product data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.discovery.sysfs.reader import read_file
from compute_agent.discovery.sysfs.vpd import serial_number
from compute_agent.discovery.topology import Discovery
from tests.data.kernel_formats import vpd
from tests.data.machine_builder import MachineBuilder


def test_the_serial_number_is_found_among_other_keywords() -> None:
    assert serial_number(vpd(b"MT2043X01234")) == "MT2043X01234"
    assert serial_number(b"\x78\0\0" + vpd(b"MT2043X01234")) is None


def test_digits_that_count_up_from_another_number_are_a_serial_number() -> None:
    assert serial_number(vpd(b"45678")) == "45678"


@pytest.mark.parametrize(
    "serial",
    [
        b"",
        b"0000000",
        b"      ",
        b"\xff\xfe\x01",
        b"0123456789",
        b"1234567890",
        b"FFFFFFFF",
        b"........",
        b"N/A",
        b"None",
        b"Default string",
        b"To Be Filled By O.E.M.",
    ],
)
def test_a_number_that_identifies_nothing_is_none(serial: bytes) -> None:
    assert serial_number(vpd(serial)) is None


def test_data_cut_short_gives_no_number() -> None:
    whole = vpd(b"MT2043X01234")
    assert [serial_number(whole[:length]) for length in range(16)] == [None] * 16


@given(st.binary(max_size=200))
def test_damaged_data_never_raises(data: bytes) -> None:
    found = serial_number(data)
    assert found is None or found.isprintable()


def test_a_card_is_asked_once_in_the_life_of_the_process(tmp_path: Path) -> None:
    machine = MachineBuilder()
    machine.nic("0000:81:00.0", "ens1")
    machine.sys(f"{machine.device('0000:81:00.0')}/vpd", vpd(b"MT2043X01234"))
    machine.write(tmp_path)
    reads: list[str] = []

    def note(path: str, limit: int) -> bytes:
        reads.append(path)
        return read_file(path, limit)

    discovery = Discovery(str(tmp_path / "sys"), str(tmp_path / "proc"), read=note)
    first, second = discovery.discover(), discovery.discover()
    assert first.nics[0].serial == second.nics[0].serial == "MT2043X01234"
    assert sum(path.endswith("/vpd") for path in reads) == 1


def test_a_user_who_is_not_root_gets_no_serial_and_no_warning(tmp_path: Path) -> None:
    machine = MachineBuilder()
    machine.cpus("0")
    machine.nic("0000:81:00.0", "ens1")
    machine.sys(f"{machine.device('0000:81:00.0')}/vpd", vpd(b"MT2043X01234"))
    machine.write(tmp_path)

    def refuse(path: str, limit: int) -> bytes:
        if path.endswith("/vpd"):
            raise PermissionError(13, "Permission denied", path)
        return read_file(path, limit)

    topology = Discovery(str(tmp_path / "sys"), str(tmp_path / "proc"), read=refuse).discover()
    assert topology.nics[0].serial is None
    assert topology.warnings == ()
