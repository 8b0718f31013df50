"""What of the host a guest holds, in the terms of the contract with drivers."""

from __future__ import annotations

from compute_agent.discovery.libvirt.facts import Guest
from compute_agent.virt.driver import InstanceDevices


def holdings(guest: Guest) -> InstanceDevices:
    """Return what the guest holds exclusively, and where it floats."""
    return InstanceDevices(pci_addresses=guest.pci_addresses)
