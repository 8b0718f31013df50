"""Wording of the operators' tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compute_agent.placement.allocations.amounts import Amounts


def count_of(number: int, noun: str) -> str:
    """Return a number of things: `1 consumer`, `2 consumers`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def age(seconds: float) -> str:
    """Return how long ago something was, in the largest unit of which it has two: `3 h ago`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds / size)} {unit} ago"
    return f"{max(int(seconds), 0)} s ago"


def resources(amounts: Mapping[str, int]) -> str:
    """Return amounts by class: `512 MEMORY_MB, 1 VCPU`."""
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))


def allocations(held_amounts: Amounts, name_of: Callable[[str], str] = lambda uuid: uuid) -> str:
    """Return amounts by provider: `1 DISK_GB of host; 512 MEMORY_MB, 1 VCPU of host_NUMA0`.

    :param name_of: the name of the provider of a uuid.
    """
    parts = [
        f"{resources(amounts)} of {name_of(uuid)}" for uuid, amounts in sorted(held_amounts.items())
    ]
    return "; ".join(parts) or "nothing"
