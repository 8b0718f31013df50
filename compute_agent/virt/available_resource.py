"""The resources of a node as `get_available_resource` names them, made from its topology. Pure."""

from __future__ import annotations

import json
from typing import Any

from compute_agent.discovery.facts import HostTopology, PciDevice
from compute_agent.virt.cpu_sets import guest_cpus
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.cells import cell_facts, host_memory_mib
from compute_agent.virt.layout.devices.gpus import gpu_facts

_GIB = 1024**3


def available_resource(topology: HostTopology, options: LayoutOptions) -> dict[str, Any]:
    """Return amounts, and the facts of CPU, cells, GPUs and PCI devices."""
    cpus = guest_cpus(
        options.cpu_sets,
        topology.online_cpus,
        topology.present_cpus,
        power_management=options.cpu_power_management,
    )
    model = topology.cpu_model
    features = model.flags if model.guest_features is None else model.guest_features
    cpu_info = {
        "arch": model.arch,
        "vendor": model.vendor,
        "model": model.model_name,
        "features": list(features),
        "topology": {"cells": len(topology.cells)},
    }
    return {
        "vcpus": len(cpus.shared_cpus) + len(cpus.dedicated_cpus),
        "vcpus_used": 0,
        "memory_mb": options.file_backed_memory_mib or host_memory_mib(topology, options),
        "memory_mb_used": 0,
        "local_gb": topology.disk.size_bytes // _GIB if topology.disk else 0,
        "local_gb_used": 0,
        "cpu_info": json.dumps(cpu_info),
        "numa_topology": json.dumps(cell_facts(topology, cpus, options)),
        "gpus": gpu_facts(topology),
        "pci_passthrough_devices": json.dumps(
            [_pci_device(device) for device in topology.pci_devices]
        ),
    }


def _pci_device(device: PciDevice) -> dict[str, Any]:
    return {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "numa_node": device.numa_node,
        "dev_type": "type-VF" if device.is_vf else "type-PF" if device.is_pf else "type-PCI",
        "parent_addr": device.physfn,
        "pcie_root": device.bridges[0] if device.bridges else None,
    }
