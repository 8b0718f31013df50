"""The machine that the agent runs on, and the driver that reports it with nothing but Linux."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

from msgspec.structs import replace
from oslo_config import cfg
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery import capture, storage
from compute_agent.discovery.bounded_calls import CLOSING, BoundedCalls, step
from compute_agent.discovery.errors import CallHangs, DiscoveryError
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.nvml.source import NvmlSource
from compute_agent.discovery.storage import FileSystem
from compute_agent.discovery.sysfs import memory
from compute_agent.discovery.sysfs.reader import SYSFS, Machine
from compute_agent.discovery.topology import Discovery
from compute_agent.discovery.uevents import HardwareEvents, kernel_socket
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.settings import disk_source
from compute_agent.virt.topology_driver import TopologyDriver

LOG = log.getLogger(__name__)

IMAGE_CACHE: Final = "_base"
"""Directory of cached images below [DEFAULT]instances_path."""

_BLOCK: Final = 512  # unit of st_blocks, whatever the file system's own is


class LocalMachine:
    """What Linux and NVIDIA's library report of the machine, and the events that it changed.

    Where [host]sysfs_root and [host]procfs_root are the two parts of a capture, its disk and GPUs
    are those that it recorded. NVML sees the machine that runs this, so it is asked only where
    the machine is not one that was captured elsewhere.

    :ivar calls: every look at files and NVML, one at a time, under a deadline.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self.calls = BoundedCalls(
            "this machine", conf.compute_agent.call_timeout, one_at_a_time=True
        )
        sysfs_root, procfs_root = conf.host.sysfs_root, conf.host.procfs_root
        self._capture = capture.directory_of(sysfs_root, procfs_root)
        self._live = is_live(conf)
        self._nvml = nvml_source(conf)
        self._discovery = Discovery(sysfs_root, procfs_root, gpu_source=self._nvml)
        self._disk = disk_source(conf)
        self._events: HardwareEvents | None = None

    def read(self, hostname: str) -> HostTopology:
        """Read the machine, whatever was read before.

        :param hostname: of the node, instead of the machine's own.
        :raises VirtDriverNotReady: CPUs or memory cannot be read, or the machine does not answer.
        """
        try:
            return self.calls.run("look", lambda: self._look(hostname))
        except DiscoveryError as error:
            raise errors.VirtDriverNotReady(
                f"This machine cannot be described: {error}."
            ) from error

    @cached_property
    def default_huge_page_kib(self) -> int | None:
        """The size of huge pages of guests that name none, chosen at boot; None = unknown.

        :raises CallHangs: the machine does not answer.
        """
        machine = Machine(self._conf.host.sysfs_root, self._conf.host.procfs_root)
        return self.calls.run("meminfo", lambda: memory.default_huge_page_kib(machine))

    def image_cache_bytes(self) -> int:
        """Return what cached images take up of the guests' disk, where the options reserve that.

        They are files, so they take nothing of a volume group or a pool.

        :raises VirtDriverNotReady: the disk does not answer.
        """
        reserves = self._conf.workarounds.reserve_disk_resource_for_image_cache
        if not reserves or not isinstance(self._disk, FileSystem):
            return 0
        cache = os.path.join(self._conf.instances_path, IMAGE_CACHE)
        try:
            return self.calls.run(cache, lambda: size_on_disk(cache))
        except CallHangs as error:
            raise errors.VirtDriverNotReady(
                f"The image cache cannot be measured: {error}."
            ) from error

    def pmem_by_device(self) -> dict[str, str]:
        """Return the names of persistent memory by the path of its device; empty if unknown."""
        try:
            return {space.device: space.name for space in storage.pmem_namespaces() if space.device}
        except DiscoveryError as error:
            LOG.warning("Persistent memory of guests is known by its device only: %s", error)
            return {}

    def watch(self, changed: Callable[[str], None]) -> None:
        """Report devices, CPUs and memory that come, go or change by the kernel's events."""
        if not self._live:
            return
        try:
            source = kernel_socket()
        except OSError as error:
            LOG.info("Only periodic passes find changes of the hardware: %s", error)
            return
        self._events = HardwareEvents(changed, source)
        self._events.start()

    def forget_fault(self, address: PciAddress) -> None:
        """Forget the errors that a GPU reported."""
        if self._nvml is not None:
            self._nvml.forget(address)

    def close(self) -> None:
        """Stop watching, and close NVML."""
        if self._events is not None:
            self._events.stop()
            self._events = None
        if self._nvml is not None:
            try:
                self.calls.run("nvmlShutdown", self._nvml.close, timeout=CLOSING)
            except CallHangs as error:
                LOG.warning("NVML stays open until the process ends: %s.", error)

    def _look(self, hostname: str) -> HostTopology:
        if self._capture is not None:
            with_nvml = self._conf.gpu.nvml == "auto"
            return capture.replay(self._capture, hostname, with_nvml=with_nvml)
        topology = self._discovery.discover(self._disk, hostname=hostname)
        if not self._conf.libvirt.pmem_namespaces:
            return topology
        namespaces, fault = storage.list_namespaces()
        return replace(topology, pmem=namespaces, pmem_fault=fault)


def is_live(conf: cfg.ConfigOpts) -> bool:
    """Whether the machine is the one that runs this, and not one that was captured elsewhere."""
    return bool(os.path.realpath(conf.host.sysfs_root) == SYSFS)


def nvml_source(conf: cfg.ConfigOpts) -> NvmlSource | None:
    """Return NVML, where it describes the machine and may be asked."""
    return NvmlSource() if is_live(conf) and conf.gpu.nvml == "auto" else None


def size_on_disk(directory: str) -> int:
    """Return the bytes a directory's files take up; 0 when there is no such directory.

    A file that vanishes meanwhile counts nothing: caches are cleaned while they are looked at.
    """
    total = 0
    for parent, _directories, files in os.walk(directory):
        step(parent)
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK
            except FileNotFoundError:
                continue
    return total


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
