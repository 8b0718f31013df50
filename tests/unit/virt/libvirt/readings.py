"""Hypervisors as libvirt would report them."""

from __future__ import annotations

from compute_agent.discovery.libvirt import guest_abilities, source
from compute_agent.discovery.libvirt.facts import HypervisorReading
from tests.fixtures.libvirt_documents import X86_CAPABILITIES


def hypervisor(
    *documents: str,
    libvirt: tuple[int, int, int] = (9, 0, 0),
    qemu: tuple[int, int, int] = (7, 2, 0),
    kind: str = "QEMU",
    host: str = X86_CAPABILITIES,
) -> HypervisorReading:
    """A hypervisor with these domain capabilities; none = it does not report them."""
    return HypervisorReading(
        hostname="host1",
        hypervisor=kind,
        hypervisor_version=_packed(qemu),
        libvirt_version=_packed(libvirt),
        memory_kib=0,
        online_cpus=(),
        present_cpus=(),
        capabilities=source.parse_capabilities(host),
        domain_capabilities=tuple(
            guest_abilities.parse_domain_capabilities(text) for text in documents
        ),
    )


def _packed(version: tuple[int, int, int]) -> int:
    major, minor, release = version
    return major * 1_000_000 + minor * 1_000 + release
