"""A look at a hypervisor: all that is asked of libvirt about the host."""

from __future__ import annotations

from compute_agent.discovery.errors import CallFailed, CallUnsupported
from compute_agent.discovery.facts import CpuId
from compute_agent.discovery.libvirt import capabilities, node_devices
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.domain import MOST_CPUS
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader


def read(
    connection: LibvirtConnection,
    ability_reader: AbilityReader,
    before: HypervisorReading | None = None,
) -> HypervisorReading:
    """Ask libvirt for everything that it reports of the host.

    :param ability_reader: of the same connection.
    :param before: an earlier reading; what cannot have changed since is not asked again.
    :raises DiscoveryError: the connection is lost, or what every hypervisor must report is missing.
    """
    warnings: list[str] = []
    online_cpus, present_cpus = _cpus(connection, warnings)
    host = capabilities.parse(
        connection.call("getCapabilities", lambda c: str(c.getCapabilities()))
    )
    hypervisor_version = connection.call("getVersion", lambda c: int(c.getVersion()))
    libvirt_version = connection.call("getLibVersion", lambda c: int(c.getLibVersion()))
    abilities = ability_reader.read(host, hypervisor_version, libvirt_version)
    devices, device_warnings = node_devices.read(
        connection, before=node_devices.NO_DEVICES if before is None else before.devices
    )
    return HypervisorReading(
        hostname=connection.call("getHostname", lambda c: str(c.getHostname())),
        hypervisor=connection.call("getType", lambda c: str(c.getType())),
        hypervisor_version=hypervisor_version,
        libvirt_version=libvirt_version,
        memory_kib=_memory_kib(connection, warnings),
        online_cpus=online_cpus,
        present_cpus=present_cpus,
        capabilities=capabilities.restrict_to_online(host, online_cpus),
        domain_capabilities=abilities.domain_capabilities,
        guest_features=abilities.features,
        guest_cpu_mode=abilities.cpu_mode,
        devices=devices,
        warnings=(*warnings, *host.warnings, *device_warnings),
    )


def _memory_kib(connection: LibvirtConnection, warnings: list[str]) -> int:
    """Return the memory of the host; 0 where it is unknown."""
    try:
        return connection.call("getInfo", lambda c: int(c.getInfo()[1]) * 1024)
    except CallFailed as error:
        warnings.append(f"{error}; the memory of the host is that of its cells, or of sysfs")
        return 0


def _cpus(
    connection: LibvirtConnection, warnings: list[str]
) -> tuple[tuple[CpuId, ...], tuple[CpuId, ...]]:
    """Return the CPUs that are online, and those that exist; () where they are unknown.

    libvirt reports how far the numbers of CPUs go, not which are missing in between.
    """
    try:
        count, online, _ = connection.call("getCPUMap", lambda c: c.getCPUMap(0))
        if count > MOST_CPUS:
            raise CallFailed("getCPUMap", f"{count} CPUs are more than there can be")
    except CallFailed as error:
        if not isinstance(error, CallUnsupported):
            warnings.append(f"{error}; online are the CPUs of the cells, or those of sysfs")
        return (), ()
    return (
        tuple(CpuId(number) for number, is_online in enumerate(online) if is_online),
        tuple(CpuId(number) for number in range(count)),
    )
