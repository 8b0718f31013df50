"""Facts that every driver reports about a node, out-of-tree drivers too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compute_agent import errors

MANDATORY_FACTS = (
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "vcpus",
    "vcpus_used",
    "memory_mb",
    "memory_mb_used",
    "local_gb",
    "local_gb_used",
    "cpu_info",
    "numa_topology",
)


def check_facts(facts: Mapping[str, Any], node: str) -> None:
    """Refuse the facts of a driver that leaves some out.

    :raises InvalidInput: facts are missing.
    """
    missing_keys = [key for key in MANDATORY_FACTS if key not in facts]
    if missing_keys:
        raise errors.InvalidInput(
            f"The driver's facts about node {node} lack {', '.join(missing_keys)}. This "
            "is a defect of the driver; nothing is reported for the node."
        )
