"""Caches and packages of CPUs, read once for all that share them."""

from __future__ import annotations

import pytest

from compute_agent.discovery.sysfs import cpus, memory
from compute_agent.discovery.sysfs.reader import Machine
from tests.data.machines import make


@pytest.fixture
def machine(tmp_path):
    return make("two-sockets", tmp_path / "machine")


def read(machine) -> dict[int, tuple[int | None, int | None]]:
    found = cpus.discover(Machine(str(machine / "sys"), str(machine / "proc")))
    return {cpu.id: (cpu.package, cpu.l3) for cpu in found.cpus}


def test_without_caches_the_package_is_known(machine):
    assert {l3 for _package, l3 in read(machine).values()} == {None}
    assert {package for package, _l3 in read(machine).values()} == {0, 1}


def test_cpus_that_share_a_cache_of_level_3_have_its_lowest_cpu_as_name(machine):
    before = read(machine)
    for cpu in before:
        first = cpu % 8 & ~1
        shared_by = f"{first}-{first + 1},{first + 8}-{first + 9}"
        cache = machine / f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index, level, shared in (
            ("index0", 1, f"{cpu}"),
            ("index3", 3, shared_by),
        ):
            (cache / index).mkdir(parents=True)
            (cache / index / "level").write_text(f"{level}\n")
            (cache / index / "shared_cpu_list").write_text(f"{shared}\n")
    after = read(machine)
    assert {cpu: l3 for cpu, (_package, l3) in after.items()} == {
        cpu: cpu % 8 & ~1 for cpu in after
    }


def test_the_default_size_of_huge_pages_is_that_of_the_kernel(machine):
    meminfo = machine / "proc/meminfo"
    meminfo.write_text(meminfo.read_text() + "Hugepagesize:    1048576 kB\n")
    assert memory.default_huge_page_kib(Machine(str(machine / "sys"), str(machine / "proc"))) == (
        1048576
    )
