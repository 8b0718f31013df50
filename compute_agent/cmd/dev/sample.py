"""The sample claim: amounts that fit this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compute_agent.manage.tree_reading import ProviderLines

_MEMORY_MB = (512, 64, 1)


def sample_resources(providers: Sequence[ProviderLines]) -> Mapping[str, int]:
    """Return a small amount of what the machine has: a CPU and some memory of one provider, a disk.

    Empty on a machine that has none of these free.
    """
    resources: dict[str, int] = {}
    cells = [provider for provider in providers if _free(provider, "VCPU") > 0]
    if cells:
        resources["VCPU"] = 1
        most = max(_free(cell, "MEMORY_MB") for cell in cells)
        fitting = [amount for amount in _MEMORY_MB if amount <= most]
        resources |= {"MEMORY_MB": fitting[0]} if fitting else {}
    if any(_free(provider, "DISK_GB") > 0 for provider in providers):
        resources["DISK_GB"] = 1
    return resources


def _free(provider: ProviderLines, resource_class: str) -> int:
    line = provider.inventories.get(resource_class)
    return line.free if line else 0
