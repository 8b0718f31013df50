"""Storage for guests: the store of their disks, and namespaces of persistent memory."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct

from compute_agent.discovery.bounded_calls import step
from compute_agent.discovery.errors import (
    DiscoveryError,
    FactMalformed,
    FactUnreadable,
    ProgramFailed,
)
from compute_agent.discovery.facts import DiskStore, PmemNamespace

NDCTL: Final = ("ndctl", "list", "-X")
PROGRAM_TIMEOUT: Final = 30.0
"""Seconds for one program."""

_LAST_WORDS: Final = 200
_AFTER_KILL: Final = 1.0


class DiskSource(Protocol):
    """Measures the store of a host's guests.

    :ivar remedy: what an operator does where it cannot be measured.
    """

    @property
    def remedy(self) -> str: ...

    def measure(self) -> DiskStore:
        """Return the store with its size.

        :raises DiscoveryError: it cannot be measured; says what was tried, and what came of it.
        """
        ...


class FileSystem(Struct, frozen=True):
    """The file system that holds a directory."""

    path: str

    remedy: ClassVar = "create or mount [DEFAULT]instances_path"

    def measure(self) -> DiskStore:
        """Read its size.

        :raises FactUnreadable: the directory does not exist. Taking the file system that would
            hold it would announce the size of / for a disk that is not mounted.
        """
        step(self.path)
        try:
            status = os.statvfs(self.path)
        except OSError as error:
            raise FactUnreadable(self.path, error) from error
        return DiskStore(self.path, status.f_frsize * status.f_blocks)


class VolumeGroup(Struct, frozen=True):
    """A volume group of LVM."""

    name: str

    remedy: ClassVar = (
        "correct [libvirt]images_volume_group, install lvm2, or allow this user to run vgs, "
        "whichever it is"
    )

    def measure(self) -> DiskStore:
        command = ("vgs", "--noheadings", "--nosuffix", "--units", "b", "-o", "vg_size", self.name)
        text = output_of(command)
        if not text.strip().isdecimal():
            raise FactMalformed(f"the output of {shlex.join(command)}", text, "a number of bytes")
        return DiskStore(f"volume group {self.name}", int(text))


class CephPool(Struct, frozen=True):
    """A pool of a Ceph cluster, as large as what is stored in it and what more it can store.

    Both numbers count data once, however often the cluster stores it.

    :ivar conf: path of ceph.conf; "" = where ceph looks by itself.
    :ivar user: name of the client without its type: nova for client.nova; None = ceph's default.
    """

    name: str
    conf: str = ""
    user: str | None = None

    remedy: ClassVar = (
        "correct [libvirt]images_rbd_pool, images_rbd_ceph_conf or rbd_user, install "
        "ceph-common, or give this user the keyring, whichever it is"
    )

    def measure(self) -> DiskStore:
        command = ["ceph", "df", "--format=json"]
        if self.conf:
            command += ["--conf", self.conf]
        if self.user:
            command += ["--id", self.user]
        text = output_of(command)
        output = f"the output of {shlex.join(command)}"
        try:
            pools = {pool["name"]: pool["stats"] for pool in json.loads(text)["pools"]}
        except (ValueError, KeyError, TypeError) as error:
            raise FactMalformed(output, text, "a JSON object with pools and their stats") from error
        if self.name not in pools:
            names = ", ".join(sorted(map(str, pools))) or "none"
            raise FactMalformed(output, f"the pools {names}", f"a pool {self.name}")
        stats = pools[self.name]
        try:
            size = int(stats["max_avail"]) + int(stats["stored"])
        except (ValueError, KeyError, TypeError) as error:
            expectation = f"numbers max_avail and stored of pool {self.name}"
            raise FactMalformed(output, json.dumps(stats), expectation) from error
        return DiskStore(f"pool {self.name}", size)


def measure(source: DiskSource) -> tuple[DiskStore | None, str | None]:
    """Return the store, or None and the reason with its remedy."""
    try:
        return source.measure(), None
    except DiscoveryError as error:
        return None, f"{error}; {source.remedy}"


def pmem_namespaces() -> tuple[PmemNamespace, ...]:
    """Return the namespaces that have a name, by name.

    :raises DiscoveryError: ndctl is missing or fails, or prints something else.
    """
    text = output_of(NDCTL)
    # nothing is printed where there is no namespace
    try:
        document = json.loads(text) if text.strip() else []
        # one namespace may be printed without a list around it
        namespaces = _namespaces([document] if isinstance(document, dict) else document)
        return tuple(sorted(namespaces, key=lambda namespace: namespace.name))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        output = f"the output of {shlex.join(NDCTL)}"
        raise FactMalformed(output, text, "a JSON list of namespaces") from error


def list_namespaces() -> tuple[tuple[PmemNamespace, ...] | None, str | None]:
    """Return the namespaces, or None and the reason."""
    try:
        return pmem_namespaces(), None
    except DiscoveryError as error:
        return None, str(error)


def _namespaces(entries: list[dict[str, Any]]) -> Iterator[PmemNamespace]:
    for entry in entries:
        if not entry.get("name"):
            continue
        region = entry.get("daxregion") or {}
        devices = region.get("devices") or [{}]
        align = entry.get("align") or region.get("align") or devices[0].get("align")
        character_device = entry.get("chardev") or devices[0].get("chardev")
        device = character_device or entry.get("blockdev")
        yield PmemNamespace(
            name=str(entry["name"]),
            size_bytes=int(entry["size"]),
            align_bytes=None if align is None else int(align),
            device=f"/dev/{device}" if device else None,
        )


def output_of(command: Sequence[str], timeout: float = PROGRAM_TIMEOUT) -> str:
    """Run a program to its end and return what it wrote to its standard output.

    One that does not end in time is killed with all that it started, and left behind where even
    that does not end it, as a read of a dead disk.

    :raises ProgramFailed: it is missing, fails, or does not end in time.
    """
    import subprocess  # only for stores that are no file systems

    command_line = shlex.join(command)
    step(command_line)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramFailed(command_line, error.strerror or str(error)) from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL)
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()
        raise ProgramFailed(command_line, f"it did not end within {timeout:g} seconds") from error
    if process.returncode:
        words = " ".join((err or out).decode(errors="replace").split())[-_LAST_WORDS:]
        raise ProgramFailed(command_line, f"status {process.returncode}: {words or 'no message'}")
    return out.decode(errors="replace")
