"""The driver of the machine it runs on, with nothing but Linux: for container hosts and trials."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import replace

from oslo_config import cfg

from compute_agent import errors
from compute_agent.discovery.errors import CallHangs
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.local_machine import LocalMachine
from compute_agent.virt.topology_driver import TopologyDriver


class HostDriver(TopologyDriver):
    """One node: this machine, or one captured below [host]sysfs_root and [host]procfs_root.

    No hypervisor could name it, so it is named as the service is: [DEFAULT]host.
    """

    hypervisor_type = "host"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.hypervisor_version = kernel_version(platform.release())
        self._nodename: str = conf.DEFAULT.host
        self._machine = LocalMachine(conf)
        self.add_source(self._machine.calls)

    def init_host(self, host: str) -> None:
        try:
            super().init_host(host)
        except errors.VirtDriverNotReady as error:
            if isinstance(error.__cause__, CallHangs):
                raise
            raise errors.InvalidConfiguration(
                f"{error} Check [host]sysfs_root = {self.conf.host.sysfs_root} and "
                f"[host]procfs_root = {self.conf.host.procfs_root}."
            ) from error

    def watch(self, changed: Callable[[str], None]) -> None:
        super().watch(changed)
        self._machine.watch(changed)

    def cleanup_host(self, host: str) -> None:
        super().cleanup_host(host)
        self._machine.close()

    def forget_fault(self, address: PciAddress) -> None:
        self._machine.forget_fault(address)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        return [self._nodename]

    def topology(self, nodename: str) -> HostTopology:
        if nodename != self._nodename:
            raise errors.ComputeHostNotFound(
                f"There is no node {nodename!r} here: this machine is {self._nodename!r}."
            )
        return self._machine.read(nodename)

    def current_options(self) -> LayoutOptions:
        return replace(self.options, image_cache_bytes=self._machine.image_cache_bytes())


def kernel_version(release: str) -> int:
    """Return a kernel release as one number: 6.1.0-18-amd64 is 6001000."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return major * 1_000_000 + minor * 1_000 + patch
