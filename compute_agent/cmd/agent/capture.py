"""The command `compute-agent capture DIR`: the machine's description for a bug report."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.discovery import capture as captures
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.virt.host import nvml_source
from compute_agent.virt.settings import disk_source

if TYPE_CHECKING:
    from oslo_config import cfg


def capture(namespace: argparse.Namespace) -> None:
    """Write the capture and print its place.

    :raises InvalidConfiguration: the directory cannot be used.
    """
    conf, target = program.configuration(namespace), Path(namespace.directory)
    try:
        place = captures.capture(
            target,
            sysfs_root=conf.host.sysfs_root,
            procfs_root=conf.host.procfs_root,
            disk_source=disk_source(conf),
            hostname=socket.getfqdn(),
            gpu_source=nvml_source(conf),
            with_pmem=bool(conf.libvirt.pmem_namespaces),
        )
    except FileExistsError as error:
        raise errors.InvalidConfiguration(f"{error}.") from error
    except OSError as error:
        raise errors.InvalidConfiguration(
            f"The capture cannot be written to {target}: {error.strerror}. Name a directory that "
            "is new and that this user may write to."
        ) from error
    print(f"The description of this machine is in {place}.")
    print("It holds serial numbers and MAC addresses; look through it before you share it.")
    print(f"See what the agent makes of it: compute-agent plan --from-capture {place}")


def use(conf: cfg.ConfigOpts, directory: str) -> None:
    """Configure the host driver for the machine captured in `directory`, instead of this one.

    The host's name is taken from the capture, and the identity of this host is not read.

    :raises InvalidConfiguration: the directory does not hold a capture.
    """
    source = Path(directory)
    try:
        hostname = captures.read_description(source).hostname
    except DiscoveryError as error:
        raise errors.InvalidConfiguration(
            f"{source} is not a capture of a machine: {error}. Name a directory that "
            "`compute-agent capture` wrote."
        ) from error
    conf.set_override("compute_driver", "host.HostDriver")
    conf.set_override("sysfs_root", str(source / "sys"), group="host")
    conf.set_override("procfs_root", str(source / "proc"), group="host")
    conf.set_override("host", hostname or source.name, group="DEFAULT")
    conf.set_override("state_path", str(source))
