"""The driver of the machine it runs on, with nothing but Linux: for container hosts and trials."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oslo_config import cfg
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery import capture
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.nvml.source import NvmlSource
from compute_agent.discovery.sysfs.reader import SYSFS
from compute_agent.discovery.topology import Discovery
from compute_agent.discovery.uevents import HardwareEvents, kernel_socket
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.topology_driver import TopologyDriver

LOG = log.getLogger(__name__)

IMAGE_CACHE: Final = "_base"
"""Directory of cached images below [DEFAULT]instances_path."""

_BLOCK: Final = 512  # unit of st_blocks, whatever the file system's own is


class HostDriver(TopologyDriver):
    """One node: this machine, or one captured below [host]sysfs_root and [host]procfs_root.

    Where these are the two parts of a capture, its disk and GPUs are those that it recorded.

    No hypervisor could name it, so it is named as the service is: [DEFAULT]host.
    """

    hypervisor_type = "host"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.hypervisor_version = kernel_version(platform.release())
        self._nodename: str = conf.DEFAULT.host
        self._mutex = threading.Lock()
        sysfs_root, procfs_root = conf.host.sysfs_root, conf.host.procfs_root
        # NVML sees the machine that runs this, not one that was captured elsewhere
        self._capture = capture.directory_of(sysfs_root, procfs_root)
        live = os.path.realpath(sysfs_root) == SYSFS
        self._nvml = NvmlSource() if live and conf.gpu.nvml == "auto" else None
        self._events: HardwareEvents | None = None
        self._live = live
        self._discovery = Discovery(sysfs_root, procfs_root, gpu_source=self._nvml)

    def init_host(self, host: str) -> None:
        try:
            super().init_host(host)
        except errors.VirtDriverNotReady as error:
            raise errors.InvalidConfiguration(
                f"{error} Check [host]sysfs_root = {self.conf.host.sysfs_root} and "
                f"[host]procfs_root = {self.conf.host.procfs_root}."
            ) from error

    def watch(self, changed: Callable[[str], None]) -> None:
        """Report devices, CPUs and memory that come, go or change by the kernel's events."""
        if not self._live:
            return
        try:
            source = kernel_socket()
        except OSError as error:
            LOG.info("Changes of the hardware are found by period only: %s", error)
            return
        self._events = HardwareEvents(changed, source)
        self._events.start()

    def cleanup_host(self, host: str) -> None:
        super().cleanup_host(host)
        if self._events is not None:
            self._events.stop()
            self._events = None
        if self._nvml is not None:
            self._nvml.close()

    def forget_fault(self, address: PciAddress) -> None:
        if self._nvml is not None:
            with self._mutex:
                self._nvml.forget(address)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        return [self._nodename]

    def topology(self, nodename: str) -> HostTopology:
        if nodename != self._nodename:
            raise errors.ComputeHostNotFound(
                f"There is no node {nodename!r} here: this machine is {self._nodename!r}."
            )
        try:
            with self._mutex:
                return self._look()
        except DiscoveryError as error:
            raise errors.VirtDriverNotReady(
                f"This machine cannot be described: {error}."
            ) from error

    def _look(self) -> HostTopology:
        if self._capture is None:
            return self._discovery.discover(self.conf.instances_path, hostname=self._nodename)
        with_nvml = self.conf.gpu.nvml == "auto"
        return capture.replay(self._capture, self._nodename, with_nvml=with_nvml)

    def current_options(self) -> LayoutOptions:
        if not self.conf.workarounds.reserve_disk_resource_for_image_cache:
            return self.options
        cache = os.path.join(self.conf.instances_path, IMAGE_CACHE)
        return replace(self.options, image_cache_bytes=size_on_disk(cache))


def kernel_version(release: str) -> int:
    """Return a kernel release as one number: 6.1.0-18-amd64 is 6001000."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return major * 1_000_000 + minor * 1_000 + patch


def size_on_disk(directory: str) -> int:
    """Return the bytes a directory's files take up; 0 when there is no such directory.

    A file that vanishes meanwhile counts nothing: caches are cleaned while they are looked at.
    """
    total = 0
    for parent, _directories, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK
            except FileNotFoundError:
                continue
    return total
