"""From options of group libvirt to the values its driver works with; contradictions end a start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from oslo_config import cfg

from compute_agent.discovery.disk import CephPool, DiskSource
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import DiskStore
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.virt.libvirt.guest_cpu import guest_cpu_options
from compute_agent.virt.libvirt.host_traits import TraitOptions
from compute_agent.virt.settings import disk_source

DEFAULT_URIS: Final = {
    "kvm": "qemu:///system",
    "qemu": "qemu:///system",
    "lxc": "lxc:///",
    "parallels": "parallels:///system",
}


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """Options of the driver that are not options of a layout.

    :ivar uri: of the hypervisor, as qemu:///system.
    :ivar is_local: it manages the machine that the agent runs on.
    """

    uri: str
    virt_type: str
    is_local: bool
    guest_cpu: GuestCpuOptions
    traits: TraitOptions


def libvirt_settings(conf: cfg.ConfigOpts) -> LibvirtSettings:
    """Return the options of the driver.

    :raises InvalidConfiguration: an option that cannot be used, with its value and a way out.
    """
    virt_type = conf.libvirt.virt_type
    uri = conf.libvirt.connection_uri or DEFAULT_URIS[virt_type]
    return LibvirtSettings(
        uri,
        virt_type,
        is_local(uri),
        guest_cpu_options(conf),
        TraitOptions(
            virt_type,
            tpm=conf.libvirt.swtpm_enabled,
            tpm_secrets=tuple(conf.libvirt.supported_tpm_secret_security),
            images_type=conf.libvirt.images_type,
            file_backed_memory=conf.libvirt.file_backed_memory > 0,
        ),
    )


class _RemoteStorage:
    """Files or a volume group of another machine, which nothing here can measure."""

    remedy = (
        "run the agent on that machine, or let a provider with the trait "
        "MISC_SHARES_VIA_AGGREGATE give the disk"
    )

    def measure(self) -> DiskStore:
        raise DiscoveryError("the disks of guests are on the hypervisor's own machine")


def disk_seen_from_elsewhere(conf: cfg.ConfigOpts) -> DiskSource:
    """Return what measures the store of guests' disks on another machine: a pool of Ceph, or none.

    :raises InvalidConfiguration: the store has no name.
    """
    source = disk_source(conf)
    return source if isinstance(source, CephPool) else _RemoteStorage()


def is_local(uri: str) -> bool:
    """Whether a URI names a hypervisor of this machine: no other host, not the test driver.

    >>> is_local("qemu:///system"), is_local("qemu+tls://host2/system"), is_local("test:///default")
    (True, False, False)
    """
    parts = urlsplit(uri)
    return not parts.hostname and parts.scheme.partition("+")[0] != "test"
