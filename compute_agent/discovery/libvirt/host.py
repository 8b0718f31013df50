"""The host's CPUs, memory and machine types as libvirt reports them; what is slow is kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from compute_agent.discovery.errors import CallFailed, CallUnsupported, FactMalformed
from compute_agent.discovery.facts import CpuId
from compute_agent.discovery.libvirt import capabilities, cpu_features, domain_capabilities
from compute_agent.discovery.libvirt.connection import Connection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import DomainCapabilities, Emulator, HostCapabilities

LOG = logging.getLogger(__name__)

_EMULATED: Final = "qemu"


@dataclass(frozen=True, slots=True)
class GuestAbilities:
    """Everything that guests can have, which changes only with the hypervisor or the host's CPU."""

    domain_capabilities: tuple[DomainCapabilities, ...]
    """Empty: libvirt does not report them."""
    features: tuple[str, ...] | None
    """Of guests' CPUs; None = unknown."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """One look at the host."""

    capabilities: HostCapabilities
    """Without CPUs that are offline."""
    abilities: GuestAbilities
    memory_kib: int
    online_cpus: tuple[CpuId, ...]
    present_cpus: tuple[CpuId, ...]


class HostReader:
    """Looks at one host again and again.

    Huge pages, cells and CPUs are read each time. The capabilities of guests, of which libvirt has
    a document for each architecture and machine type, are asked for once for each connection, and
    again when the hypervisor, its emulators or the CPU of the host change.
    """

    def __init__(self, connection: Connection, options: GuestCpuOptions) -> None:
        self._connection = connection
        self._options = options
        self._kept: tuple[object, GuestAbilities] | None = None

    def read(self, *versions: int) -> HostReading:
        """Look at the host now.

        :param versions: of hypervisor and libvirt.
        :raises DiscoveryError: the connection is lost, or the capabilities cannot be read.
        """
        text = self._connection.call("getCapabilities", lambda c: str(c.getCapabilities()))
        host = capabilities.parse(text)
        processors, memory_kib = self._connection.call(
            "getInfo", lambda c: _processors_and_memory(c.getInfo())
        )
        online, present = self._cpus(host, processors)
        return HostReading(
            capabilities=capabilities.restricted(host, online),
            abilities=self._abilities(host, versions),
            memory_kib=memory_kib,
            online_cpus=online,
            present_cpus=present,
        )

    def _cpus(
        self, host: HostCapabilities, processors: int
    ) -> tuple[tuple[CpuId, ...], tuple[CpuId, ...]]:
        """Return the CPUs that are online and those that are present."""
        try:
            running = self._connection.call("getCPUMap", lambda c: list(c.getCPUMap()[1]))
        except CallUnsupported:
            known = tuple(cpu.id for cpu in host.cpus) or tuple(map(CpuId, range(processors)))
            return known, known
        online = tuple(CpuId(number) for number, is_online in enumerate(running) if is_online)
        return online, tuple(map(CpuId, range(len(running))))

    def _abilities(self, host: HostCapabilities, versions: tuple[int, ...]) -> GuestAbilities:
        basis = (versions, host.cpu_xml, host.emulators)
        if self._kept is None or self._kept[0] != basis:
            domains = read_domain_capabilities(self._connection, host, self._options.virt_type)
            abilities = GuestAbilities(
                domains,
                cpu_features.guest_features(self._connection, self._options, host, domains),
            )
            self._kept = (basis, abilities)
        return self._kept[1]


def read_domain_capabilities(
    connection: Connection, host: HostCapabilities, virt_type: str
) -> tuple[DomainCapabilities, ...]:
    """Ask for what guests of each architecture and machine type can have.

    Architectures that only an emulator can run are asked about as emulated ones.

    :returns: by architecture and machine type; empty = libvirt does not report them.
    :raises HypervisorUnreachable: there is no answer now.
    """
    facts = []
    for emulator in host.emulators:
        kind = _kind(emulator, virt_type)
        if kind is None:
            continue
        for machine in emulator.machines or (None,):
            try:
                text = _ask(connection, emulator, machine, kind)
                facts.append(domain_capabilities.parse(text))
            except CallUnsupported as error:
                LOG.info("What guests can have is unknown: %s", error)
                return ()
            except (CallFailed, FactMalformed) as error:
                LOG.warning("%s guests of type %s are left out: %s", emulator.arch, kind, error)
    return tuple(facts)


def _ask(connection: Connection, emulator: Emulator, machine: str | None, kind: str) -> str:
    return connection.call(
        f"getDomainCapabilities of {emulator.arch} {machine or 'guests'}",
        lambda c: str(c.getDomainCapabilities(emulator.path, emulator.arch, machine, kind, 0)),
    )


def _kind(emulator: Emulator, virt_type: str) -> str | None:
    if virt_type in emulator.virt_types:
        return virt_type
    return _EMULATED if virt_type == "kvm" and _EMULATED in emulator.virt_types else None


def _processors_and_memory(info: list[int]) -> tuple[int, int]:
    """Return the number of CPUs and the memory in KiB; libvirt's binding returns MiB."""
    return int(info[2]), int(info[1]) * 1024
