"""Stores of the guests' disks: a file system, an LVM volume group, or a pool of Ceph."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from typing import Protocol

from compute_agent.discovery import program
from compute_agent.discovery.bounded_calls import step
from compute_agent.discovery.errors import DiscoveryError, FactMalformed, FactUnreadable
from compute_agent.discovery.facts import DiskStore


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


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The file system that holds a directory."""

    path: str

    @property
    def remedy(self) -> str:
        return "create or mount [DEFAULT]instances_path"

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


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """A volume group of LVM."""

    name: str

    @property
    def remedy(self) -> str:
        return (
            "correct [libvirt]images_volume_group, install lvm2, or allow this user to run vgs, "
            "whichever it is"
        )

    def measure(self) -> DiskStore:
        command = ("vgs", "--noheadings", "--nosuffix", "--units", "b", "-o", "vg_size", self.name)
        text = program.output_of(command)
        if not text.strip().isdecimal():
            raise FactMalformed(f"the output of {shlex.join(command)}", text, "a number of bytes")
        return DiskStore(f"volume group {self.name}", int(text))


@dataclass(frozen=True, slots=True)
class CephPool:
    """A pool of a Ceph cluster, as large as what is stored in it and what more it can store.

    Both numbers count data once, however often the cluster stores it.

    :ivar conf: path of ceph.conf; "" = where ceph looks by itself.
    :ivar user: name of the client without its type: nova for client.nova; None = ceph's default.
    """

    name: str
    conf: str = ""
    user: str | None = None

    @property
    def remedy(self) -> str:
        return (
            "correct [libvirt]images_rbd_pool, images_rbd_ceph_conf or rbd_user, install "
            "ceph-common, or give this user the keyring, whichever it is"
        )

    def measure(self) -> DiskStore:
        command = ["ceph", "df", "--format=json"]
        if self.conf:
            command += ["--conf", self.conf]
        if self.user:
            command += ["--id", self.user]
        text = program.output_of(command)
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
