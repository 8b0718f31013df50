"""The driver of the hypervisor that [libvirt]connection_uri names."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg
from oslo_log import log

from compute_agent import errors, extras
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.libvirt import guests, source
from compute_agent.discovery.libvirt.connection import Connection
from compute_agent.discovery.topology import Discovery
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.libvirt.holdings import holdings
from compute_agent.virt.topology_driver import TopologyDriver

LOG = log.getLogger(__name__)

DEFAULT_URIS: Final = {
    "kvm": "qemu:///system",
    "qemu": "qemu:///system",
    "lxc": "lxc:///",
    "parallels": "parallels:///system",
}


class LibvirtDriver(TopologyDriver):
    """One node: the host of one hypervisor, named as the hypervisor names it."""

    hypervisor_type = "QEMU"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        extras.require("libvirt", "[DEFAULT]compute_driver = libvirt.LibvirtDriver", "libvirt")
        self.connection = Connection(
            conf.libvirt.connection_uri or DEFAULT_URIS[conf.libvirt.virt_type]
        )
        self._discovery = Discovery(conf.host.sysfs_root, conf.host.procfs_root)

    def cleanup_host(self, host: str) -> None:
        super().cleanup_host(host)
        self.connection.close()

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        try:
            return [self.connection.call("getHostname", lambda c: str(c.getHostname()))]
        except DiscoveryError as error:
            raise errors.VirtDriverNotReady(f"{error}.") from error

    def topology(self, nodename: str) -> HostTopology:
        try:
            reading = source.read(self.connection)
            return source.join(
                reading, self._discovery.discover(self.conf.instances_path, hostname=nodename)
            )
        except DiscoveryError as error:
            raise errors.VirtDriverNotReady(f"{error}.") from error

    def list_instance_uuids(self) -> list[str] | None:
        try:
            return [guest.uuid for guest in guests.read(self.connection)]
        except DiscoveryError as error:
            raise errors.HypervisorUnavailable(f"{error}.") from error

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        for guest in guests.read(self.connection):
            if guest.uuid == uuid:
                return holdings(guest)
        return None
