"""Traits, classes and their prefixes that several parts of the agent and the scheduler name."""

from __future__ import annotations

from typing import Final

COMPUTE_NODE: Final = "COMPUTE_NODE"
"""On the root provider of every host."""

OWNER_NOVA: Final = "OWNER_NOVA"
"""On every provider that a compute service keeps."""

COMPUTE_STATUS_DISABLED: Final = "COMPUTE_STATUS_DISABLED"
"""On a host that takes no new instances."""

MISC_SHARES_VIA_AGGREGATE: Final = "MISC_SHARES_VIA_AGGREGATE"
"""On a provider that serves every tree with which it has an aggregate in common."""

HW_NUMA_ROOT: Final = "HW_NUMA_ROOT"
"""On the provider of a NUMA cell."""

CUSTOM_DEVICE_MISSING: Final = "CUSTOM_DEVICE_MISSING"
"""On the provider of a device that is gone, as long as a consumer holds something of it."""

CUSTOM_GPU_UNHEALTHY: Final = "CUSTOM_GPU_UNHEALTHY"
"""On a broken GPU: nothing of it is given out until an operator takes the trait off."""

HW_CPU_HYPERTHREADING: Final = "HW_CPU_HYPERTHREADING"

CUSTOM_PREFIX: Final = "CUSTOM_"
STORAGE_PREFIX: Final = "STORAGE_"
NVLINK_PREFIX: Final = "CUSTOM_NVLINK_GROUP_"
XGMI_PREFIX: Final = "CUSTOM_XGMI_GROUP_"
"""GPUs of a host with the same number reach each other through NVLinks, or XGMI."""
PMEM_PREFIX: Final = "CUSTOM_PMEM_NAMESPACE_"
"""Beginning of the classes of namespaces of persistent memory."""
PAGE_SIZE_PREFIX: Final = "CUSTOM_MEMORY_PAGE_SIZE_"

HW_PCI_LIVE_MIGRATABLE: Final = "HW_PCI_LIVE_MIGRATABLE"
DEVICE_TYPE_PREFIX: Final = "CUSTOM_PCI_TYPE_"
"""Beginning of the traits of PCI devices by type: PCI, PF, VF, VDPA."""
