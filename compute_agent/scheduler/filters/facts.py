"""Facts of a host by the names that flavors and hints have for them, and their comparison."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compute_agent.scheduler.host_state import HostState

_COUNTED: Mapping[str, Callable[[HostState], int]] = {
    "vcpus_total": lambda host: host.capacity("VCPU"),
    "vcpus_used": lambda host: host.capacity("VCPU") - host.free("VCPU"),
    "free_vcpus": lambda host: host.free("VCPU"),
    "total_usable_ram_mb": lambda host: host.capacity("MEMORY_MB"),
    "free_ram_mb": lambda host: host.free("MEMORY_MB"),
    "total_usable_disk_gb": lambda host: host.capacity("DISK_GB"),
    "free_disk_gb": lambda host: host.free("DISK_GB"),
    "free_disk_mb": lambda host: host.free("DISK_GB") * 1024,
}
_NAMES = ("host", "nodename", "hypervisor_hostname")


def fact(host: HostState, path: Sequence[str]) -> Any:
    """Return what placement or the agent of a host says of something; `None` if nothing.

    :param path: its name, and the keys below it.
    """
    name = path[0]
    if len(path) == 1 and name in _COUNTED:
        return _COUNTED[name](host)
    if len(path) == 1 and name in _NAMES:
        return host.name
    announcement = host.announcement
    if announcement is None:
        return None
    if name in ("num_instances", "num_io_ops"):
        return announcement.instances if name == "num_instances" else announcement.io_ops
    value: Any = announcement.attributes
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s>=": operator.ge,
    "s>": operator.gt,
    "s<=": operator.le,
    "s<": operator.lt,
}


def matches(fact: Any, condition: str) -> bool:
    """Return whether `fact` meets `condition`; no text meets a comparison of numbers."""
    words = condition.split()
    sign, rest = (words[0], words[1:]) if words else ("", [])
    if sign == "<or>":
        return str(fact) in [word for word in words if word != "<or>"]
    if sign == "<in>":
        return " ".join(rest) in str(fact)
    if sign == "<all-in>":
        facts = fact if isinstance(fact, list | tuple | set | frozenset) else str(fact)
        return all(word in facts for word in rest)
    if sign in _TEXTS and rest:
        return _TEXTS[sign](str(fact), rest[0])
    if sign in _NUMBERS and rest:
        try:
            return _NUMBERS[sign](float(fact), float(rest[0]))
        except (TypeError, ValueError):
            return False
    return str(fact) == condition
