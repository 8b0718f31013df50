"""CPUs: lists of them, threads of a core, model and flags on several architectures."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.sysfs.cpus import model_from_cpuinfo
from tests.unit.discovery.conftest import Machine

AARCH64 = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid sve
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""
S390X = """vendor_id       : IBM/S390
# processors    : 2
features\t: esan3 zarch stfle msa vx
"""
RISCV = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc
mmu\t\t: sv39
uarch\t\t: sifive,u74-mc
"""


def test_threads_of_one_core_are_siblings(machine: Machine) -> None:
    machine.cpu(0, socket=0, core=0, siblings="0-1")
    machine.cpu(1, socket=0, core=0, siblings="0-1")
    topology = machine.look()
    assert [cpu.siblings for cpu in topology.cpus] == [(0, 1), (0, 1)]
    assert topology.hyperthreading


def test_an_offline_cpu_is_present_and_nowhere_else(machine: Machine) -> None:
    machine.cpus("0,2-3", present="0-3")
    machine.node(0, cpus="0,2-3", memory_kib=1 << 20, distance="10")
    machine.cpu(0, socket=0, core=0, siblings="0-1")  # a container shown too much
    topology = machine.look()
    assert topology.online_cpus == (0, 2, 3)
    assert topology.present_cpus == (0, 1, 2, 3)
    assert topology.cells[0].cpus == (0, 2, 3)
    assert topology.cpus[0].siblings == (0,)


def test_a_cpu_without_topology_is_its_own_core(machine: Machine) -> None:
    assert machine.look().cpus[0].siblings == (0,)


def test_the_newer_name_of_the_sibling_list_counts(machine: Machine) -> None:
    machine.sys("devices/system/cpu/cpu0/topology/core_cpus_list", "0-1")
    assert machine.look().cpus[0].siblings == (0, 1)


def test_without_lists_the_directories_count(machine: Machine) -> None:
    machine.remove("sys/devices/system/cpu/online")
    machine.remove("sys/devices/system/cpu/present")
    machine.cpu(0, socket=0, core=0, siblings="0")
    machine.cpu(1, socket=0, core=1, siblings="1")
    assert machine.look().online_cpus == (0, 1)


def test_a_container_without_sys_has_the_cpus_of_cpuinfo(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cpuinfo(count=3)
    topology = machine.look()
    assert topology.online_cpus == (0, 1, 2)
    assert topology.cells[0].cpus == (0, 1, 2)


def test_a_machine_without_any_cpu_says_which_options_to_check(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.proc("cpuinfo", "")
    with pytest.raises(DiscoveryError, match="procfs_root"):
        machine.look()


def test_a_damaged_list_is_a_warning_and_the_next_source_counts(machine: Machine) -> None:
    machine.sys("devices/system/cpu/online", "zero to one")
    topology = machine.look()
    assert topology.online_cpus == (0, 1)
    assert any("zero to one" in warning for warning in topology.warnings)


def test_x86_flags_and_model_are_read(machine: Machine) -> None:
    model = machine.look().cpu_model
    assert (model.arch, model.vendor) == ("x86_64", "GenuineIntel")
    assert {"avx2", "pni", "vmx"} <= set(model.flags)
    assert list(model.flags) == sorted(model.flags)


def test_only_the_first_block_of_a_long_cpuinfo_is_needed(machine: Machine) -> None:
    machine.cpuinfo(count=512)
    assert "avx512_vnni" in machine.look().cpu_model.flags


@pytest.mark.parametrize(
    ("text", "arch", "flag", "name"),
    [
        (AARCH64, "aarch64", "asimd", "0x41/0xd0c"),
        (S390X, "s390x", "zarch", None),
        (RISCV, "riscv64", None, "sifive,u74-mc"),
        ("vendor_id : GenuineIntel\nflags : fpu sse2\n", "i686", "sse2", None),
        ("CPU implementer : 0x41\nFeatures : half thumb neon\n", "armv7l", "neon", None),
    ],
)
def test_cpuinfo_of_other_architectures(
    text: str, arch: str, flag: str | None, name: str | None
) -> None:
    model = model_from_cpuinfo(text)
    assert (model.arch, model.model_name) == (arch, name)
    assert flag is None or flag in model.flags


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("processor : 0\ncpu : POWER9, altivec supported\nmachine : PowerNV 8335-GTW\n", "ppc64le"),
        (
            "system type : generic-loongson-machine\n\nprocessor : 0\n"
            "CPU Family : Loongson-64bit\nISA : loongarch32 loongarch64\nFeatures : cpucfg lam\n",
            "loongarch64",
        ),
        ("cpu : SPARC-M7\ntype : sun4v\nncpus probed : 256\n", "sparc64"),
        ("system type : MIPS Malta\ncpu model : MIPS 24Kc\nisa : mips1 mips2 mips32r2\n", "mips"),
        ("isa : rv64imafdc\nuarch : thead,c910\n", "riscv64"),
    ],
)
def test_the_architecture_is_that_of_the_file_not_of_the_reader(
    machine: Machine, text: str, arch: str
) -> None:
    machine.proc("cpuinfo", text)
    assert machine.look().cpu_model.arch == arch


def test_the_kernels_own_word_for_its_architecture_counts(machine: Machine) -> None:
    machine.proc("cpuinfo", "processor : 0\ncpu : POWER7 (raw), altivec supported")
    machine.proc("sys/kernel/arch", "ppc64")
    assert machine.look().cpu_model.arch == "ppc64"


def test_an_unreadable_cpuinfo_leaves_the_model_unknown(machine: Machine) -> None:
    machine.remove("proc/cpuinfo")
    topology = machine.look()
    assert topology.cpu_model.flags == ()
    assert any("cpuinfo" in warning for warning in topology.warnings)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("8,0-3\n", (0, 1, 2, 3, 8)),
        ("0-1,1-2", (0, 1, 2)),
        ("0-7:2/4", (0, 1, 4, 5)),
    ],
)
def test_reads_every_form_the_kernel_writes(text: str, numbers: tuple[int, ...]) -> None:
    assert cpu_list.parse(text) == numbers


@pytest.mark.parametrize(
    "text", ["a", "3-1", "-1", "1-", "0-99999999", "1;2", "0x3", "\u0663", "1-\uff13"]
)
def test_refuses_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        cpu_list.parse(text)


@given(st.sets(st.integers(0, 4096)))
def test_reads_back_any_set_written_number_by_number(numbers: set[int]) -> None:
    assert cpu_list.parse(",".join(map(str, numbers))) == tuple(sorted(numbers))


@given(st.sets(st.integers(0, 4096)))
def test_a_mask_has_the_numbers_of_the_list(numbers: set[int]) -> None:
    text = cpu_list.write(numbers)
    assert cpu_list.mask(text) == sum(1 << number for number in numbers)
