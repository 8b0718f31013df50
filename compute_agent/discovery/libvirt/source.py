"""A look at a hypervisor: what is asked of libvirt, and how its answers join those of sysfs."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.discovery.facts import CellId, CpuModel, HostTopology, NumaCell
from compute_agent.discovery.libvirt.connection import Connection
from compute_agent.discovery.libvirt.facts import HostCapabilities, HypervisorReading


def read(connection: Connection) -> HypervisorReading:
    """Ask libvirt for everything that it reports of the host.

    :raises DiscoveryError: the connection is lost, or what every hypervisor must report is missing.
    """
    return HypervisorReading(
        hostname=connection.call("getHostname", lambda c: str(c.getHostname())),
        hypervisor=connection.call("getType", lambda c: str(c.getType())),
        hypervisor_version=connection.call("getVersion", lambda c: int(c.getVersion())),
        libvirt_version=connection.call("getLibVersion", lambda c: int(c.getLibVersion())),
        memory_kib=connection.call("getInfo", lambda c: int(c.getInfo()[1]) * 1024),
        online_cpus=(),
        present_cpus=(),
        capabilities=HostCapabilities("x86_64", None, None, None, (), (), ()),
    )


def join(reading: HypervisorReading, topology: HostTopology | None) -> HostTopology:
    """Return the topology with what libvirt reports of the same host.

    :param topology: of the machine by sysfs; None: the hypervisor is of another machine.
    """
    if topology is not None:
        return replace(topology, hostname=reading.hostname)
    host = reading.capabilities
    return HostTopology(
        hostname=reading.hostname,
        cells=host.cells or (NumaCell(CellId(0), reading.online_cpus, reading.memory_kib),),
        cpus=host.cpus,
        online_cpus=reading.online_cpus,
        present_cpus=reading.present_cpus,
        cpu_model=CpuModel(host.arch, host.vendor, host.model, reading.guest_features or ()),
        memory_kib=reading.memory_kib,
        warnings=reading.warnings,
    )
