"""Machines that a development run can report: this one, those that the package ships, a fake."""

from __future__ import annotations

import shutil
import socket
import tarfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from msgspec import Struct, field

SHIPPED: Final[Mapping[str, str]] = {
    "gpu-server": "two sockets, SR-IOV cards, and four GPUs on the second socket",
    "sriov-server": "two sockets, each with a card with two ports of 16 virtual functions",
    "nps4-server": "two sockets with four NUMA cells each, and cards on two of the cells",
}
"""Name of each capture that the package has, and what it is of."""

FAKE: Final = "fake"

_ARCHIVES: Final = files("compute_agent.cmd.dev") / "machines"
_MDEV_TYPES: Final = {"gpu-server": "nvidia-231"}

Options = Mapping[str, Mapping[str, str]]
"""Options of an agent by group."""


class ReportedMachine(Struct, frozen=True):
    """What agents report.

    :ivar name: None for the machine that this runs on.
    :ivar options: of the agents, by group.
    """

    name: str | None = None
    options: Options = field(
        default_factory=lambda: {"DEFAULT": {"compute_driver": "host.HostDriver"}}
    )

    def host_name(self, number: int, count: int) -> str | None:
        """Return the name of a host of several, from 1 on; None: that of this machine."""
        if count == 1:
            return self.name
        return f"{self.name or socket.gethostname()}-{number}"


def fake() -> ReportedMachine:
    """Return a machine that a driver makes up, with the guests that it is asked to run."""
    return ReportedMachine(FAKE, {"DEFAULT": {"compute_driver": "fake.FakeNumaDriver"}})


def unpack(name: str, directory: Path) -> ReportedMachine:
    """Unpack a capture that the package has below a directory, and return that machine."""
    target = directory / name
    shutil.rmtree(target, ignore_errors=True)
    with as_file(_ARCHIVES / f"{name}.tar.xz") as path, tarfile.open(path) as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(target, filter="tar")
        else:  # before Python 3.11.4
            archive.extractall(target)
    options = {
        "DEFAULT": {"compute_driver": "host.HostDriver"},
        "host": {"sysfs_root": str(target / "sys"), "procfs_root": str(target / "proc")},
    }
    if name in _MDEV_TYPES:
        options["devices"] = {"enabled_mdev_types": _MDEV_TYPES[name]}
    return ReportedMachine(name, options)
