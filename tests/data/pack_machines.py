"""Archives of the machines that the package ships: `python -m tests.data.pack_machines`."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from tests.data.machines import SHIPPED

PLACE = Path(__file__).parents[2] / "compute_agent" / "cmd" / "dev" / "machines"


def pack(name: str) -> Path:
    """Write the archive of a machine, the same bytes whenever the machine is the same."""
    archive = PLACE / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as directory:
        machine = SHIPPED[name]().write(Path(directory) / name)
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for path in sorted(machine.rglob("*")):
                tar.add(path, str(path.relative_to(machine)), recursive=False, filter=_plain)
    return archive


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() else 0o644
    return member


if __name__ == "__main__":
    for shipped in SHIPPED:
        pack(shipped)
