"""Memory of guests beyond their own, by the files of their processes."""

from __future__ import annotations

from pathlib import Path

from compute_agent.manage.diagnosis import Level
from compute_agent.manage.hypervisor import examine_overhead, overheads

A, B, C = (f"{n}0000000-0000-4000-8000-000000000000" for n in "abc")
MIB = 1024


def process(procfs: Path, pid: int, *words: str, resident: int = 0, huge: int = 0) -> None:
    directory = procfs / str(pid)
    directory.mkdir()
    (directory / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
    (directory / "status").write_text(
        f"Name:\tqemu\nVmRSS:\t{resident * MIB:8d} kB\nHugetlbPages:\t{huge * MIB:8d} kB\n"
    )


def test_the_resident_memory_of_a_guests_process_counts_huge_pages_too(tmp_path: Path) -> None:
    process(tmp_path, 1, "init", resident=900)
    process(tmp_path, 2, "qemu", "-uuid", A, "-m", "100", resident=340)
    process(tmp_path, 3, "qemu", "-uuid", B.upper(), resident=90, huge=256)
    process(tmp_path, 4, "qemu", "-uuid", C, resident=10)
    process(tmp_path, 5, "qemu", "-uuid")
    (tmp_path / "6").mkdir()
    memory = dict.fromkeys((A, B, C), 256 * MIB)
    assert overheads(tmp_path, memory) == {A: 84 * MIB, B: 90 * MIB, C: 0}


def test_more_than_is_reserved_is_a_warning_with_the_amount_to_reserve(tmp_path: Path) -> None:
    process(tmp_path, 2, "qemu", "-uuid", A, resident=1256)
    (found,) = examine_overhead(tmp_path, {A: 256 * MIB}, 512)
    assert found.level is Level.WARNING
    assert "take 1000 MiB beyond their memory, and 512 MiB are reserved" in found.text
    assert str(found.advice) == "[DEFAULT]reserved_host_memory_mb = 1512"
    (found,) = examine_overhead(tmp_path, {A: 256 * MIB}, 4096)
    assert found.level is Level.FINE
    assert list(examine_overhead(tmp_path, {}, 512)) == []
