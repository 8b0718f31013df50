"""The guests of a hypervisor, with all of the host that each of them holds."""

from __future__ import annotations

from compute_agent.discovery.libvirt.connection import Connection
from compute_agent.discovery.libvirt.facts import Guest


def read(connection: Connection) -> tuple[Guest, ...]:
    """Return every domain of the hypervisor, running or not, by uuid.

    :raises DiscoveryError: libvirt does not list them now.
    """
    return tuple(
        Guest(
            uuid=domain.UUIDString(),
            name=domain.name(),
            running=bool(domain.isActive()),
            vcpus=int(domain.maxVcpus()),
            memory_kib=int(domain.maxMemory()),
        )
        for domain in connection.call("listAllDomains", lambda c: c.listAllDomains())
    )
