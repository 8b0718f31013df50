"""Readings of nodes, of which a pass makes one."""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from compute_agent.discovery.facts import CellId, CpuId, HostTopology
from compute_agent.virt.cpu_sets import guest_cpus
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.cells import cell_facts, host_memory_mib
from compute_agent.virt.layout.devices.gpus import gpu_facts


class NodeReading(Struct, frozen=True, dict=True):
    """A node as it was read, and the options that applied then."""

    topology: HostTopology
    options: LayoutOptions

    @cached_property
    def resources(self) -> dict[str, Any]:
        """What `available_resource` makes of it."""
        return available_resource(self.topology, self.options)


class ReadingsOfPass(threading.local):
    """What the pass of this thread has read, by what it is; None outside a pass.

    `was_asked`: whether it asked what guests and consumers hold, which no reading shows.
    """

    by_subject: dict[str, Any] | None = None
    was_asked: bool = False


VENDORS: Final = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon"}
"""libvirt's names of the vendors that x86 CPUs name."""

_GIB = 1024**3


def available_resource(topology: HostTopology, options: LayoutOptions) -> dict[str, Any]:
    """Return amounts, and the facts of CPU, cells, GPUs and PCI devices."""
    cpus = guest_cpus(
        options.cpu_sets,
        topology.online_cpus,
        topology.present_cpus,
        power_management=options.cpu_power_management,
    )
    return {
        "vcpus": len(cpus.shared_cpus) + len(cpus.dedicated_cpus),
        "vcpus_used": 0,
        "memory_mb": options.file_backed_memory_mib or host_memory_mib(topology, options),
        "memory_mb_used": 0,
        "local_gb": topology.disk.size_bytes // _GIB if topology.disk else 0,
        "local_gb_used": 0,
        "cpu_info": json.dumps(_cpu_info(topology)),
        "numa_topology": json.dumps(cell_facts(topology, cpus, options)),
        "gpus": gpu_facts(topology),
        "pci_passthrough_devices": json.dumps(
            [
                {
                    "address": device.address,
                    "vendor_id": device.vendor_id,
                    "product_id": device.product_id,
                    "numa_node": device.numa_node,
                    "dev_type": f"type-{device.kind}",
                    "parent_addr": device.physfn,
                    "pcie_root": device.bridges[0] if device.bridges else None,
                }
                for device in topology.pci_devices
            ]
        ),
    }


def _cpu_info(topology: HostTopology) -> dict[str, Any]:
    """Return the CPU in libvirt's words, in which flavors compare it, with its own full name."""
    model = topology.cpu_model
    features = model.flags if model.guest_features is None else model.guest_features
    info: dict[str, Any] = {
        "arch": model.arch,
        "vendor": VENDORS.get(model.vendor or "", model.vendor),
        "model": model.libvirt_model or model.model_name,
        "model_name": model.model_name,
        "features": list(features),
        "topology": _cpu_topology(topology),
    }
    if model.address_bits is not None:
        info["maxphysaddr"] = {"mode": "emulate", "bits": model.address_bits}
    return info


def _cpu_topology(topology: HostTopology) -> dict[str, int]:
    """Return the cells, and the most sockets of a cell, cores of a socket, threads of a core."""
    cell_of = {cpu: cell.id for cell in topology.cells for cpu in cell.cpus}
    sockets: dict[CellId | None, set[int | None]] = {}
    cores: dict[tuple[CellId | None, int | None], set[CpuId]] = {}
    for cpu in topology.cpus:
        cell = cell_of.get(cpu.id)
        sockets.setdefault(cell, set()).add(cpu.package)
        cores.setdefault((cell, cpu.package), set()).add(min(cpu.siblings))
    return {
        "cells": len(topology.cells),
        "sockets": max(map(len, sockets.values()), default=1),
        "cores": max(map(len, cores.values()), default=1),
        "threads": max((len(cpu.siblings) for cpu in topology.cpus), default=1),
    }
