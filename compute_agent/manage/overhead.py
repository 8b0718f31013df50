"""Memory that guests take beyond their own, by their processes, compared with what is reserved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from compute_agent.manage.diagnosis import Diagnosis, Level, Setting

_RESIDENT = re.compile(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)


def overheads(procfs: Path, memory_kib: Mapping[str, int]) -> dict[str, int]:
    """Return the KiB that the process of each guest has resident beyond the guest's memory.

    A guest that has not touched all its memory yet counts as 0; one without a process is left out.

    :param memory_kib: of the guests that run, by uuid.
    """
    found: dict[str, int] = {}
    for process in procfs.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            uuid = words[words.index("-uuid") + 1].lower() if "-uuid" in words[:-1] else ""
            if uuid in memory_kib:
                status = (process / "status").read_text()
                resident_kib = sum(map(int, _RESIDENT.findall(status)))
                found[uuid] = max(0, resident_kib - memory_kib[uuid])
        except OSError:
            continue  # it ended meanwhile, or is not ours to see
    return found


def examine_overhead(
    procfs: Path, memory_kib: Mapping[str, int], reserved_mib: int
) -> Iterator[Diagnosis]:
    """Check that what guests take beyond their memory is reserved."""
    found = overheads(procfs, memory_kib)
    if not found:
        return
    taken_mib = -(-sum(found.values()) // 1024)
    text = (
        f"{len(found)} guest(s) take {taken_mib} MiB beyond their memory, and {reserved_mib} MiB "
        "are reserved for that and for the host itself"
    )
    if taken_mib < reserved_mib:
        yield Diagnosis(Level.FINE, "overhead", text)
        return
    needed = Setting("DEFAULT", "reserved_host_memory_mb", str(taken_mib + 512))
    yield Diagnosis(Level.WARNING, "overhead", f"{text}: the host may run out of memory", needed)
