"""Instances as a file describes them, and the hosts that they run on."""

import json
import uuid
from typing import Any

from tests.functional.manage.conftest import Operator, PlacementView

FLAVOR = {"vcpus": 2, "memory_mb": 512, "root_gb": 10}
NEED = {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}
ROOM = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}
HOST_TRAITS = ("COMPUTE_NODE",)


def instance(host: str, **fields: Any) -> dict[str, Any]:
    """What a file says of an instance."""
    described = {
        "uuid": str(uuid.uuid4()),
        "host": host,
        "project_id": "a-project",
        "user_id": "a-user",
        "flavor": FLAVOR,
    }
    return described | fields


def described(operator: Operator, *lines: Any) -> str:
    """Write a file of instances; the argument that names it."""
    file = operator.directory / "instances.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("".join(f"{text}\n" for text in texts))
    return f"--instances={file}"


def flat_host(placement: PlacementView, name: str = "flat", **room: int) -> str:
    return placement.new_provider(name, {**ROOM, **room}, HOST_TRAITS)


def nested_host(placement: PlacementView, name: str = "nested") -> tuple[str, str, str]:
    """A host with disk on the root, and CPUs and memory on two NUMA cells."""
    root = placement.new_provider(name, {"DISK_GB": 100}, HOST_TRAITS)
    zero, one = (
        placement.new_provider(
            f"{name}_NUMA{cell}", {"VCPU": 4, "MEMORY_MB": 1024}, ("HW_NUMA_ROOT",), root
        )
        for cell in (0, 1)
    )
    return root, zero, one


def consumer(placement: PlacementView, uuid_: str) -> Any:
    return placement.ask("GET", f"/allocations/{uuid_}")
