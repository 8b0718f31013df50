"""The sample claim, of resources that fit the machine, and the commands to type after it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from compute_agent.manage.tree_reading import ProviderLines

_MEMORY_MB: Final = (512, 64, 1)
_CPUS: Final = 4
_DEVICES: Final = {"VGPU": "GPU", "SRIOV_NET_VF": "VF"}
"""Classes of devices, and the groups that ask for one of them."""
_CELL: Final = "CELL"


class Sample(Struct, frozen=True):
    """A request: amounts by class, by the suffix of their group.

    Where there are several groups, their providers are in the subtree of the first one's.
    """

    groups: Mapping[str, Mapping[str, int]]

    def __str__(self) -> str:
        amounts = (amount for group in self.groups.values() for amount in group.items())
        return " ".join(f"{name}={amount}" for name, amount in amounts)

    @property
    def is_close(self) -> bool:
        """Whether it asks for devices of one NUMA cell."""
        return len(self.groups) > 1

    @property
    def options(self) -> str:
        """The same as options of `compute-scheduler claim`."""
        words = []
        for suffix, resources in self.groups.items():
            amounts = ",".join(f"{name}={amount}" for name, amount in resources.items())
            words.append(f"--group {suffix}:{amounts}" if suffix else f"--resources {amounts}")
        if self.is_close:
            words.append(f"--same-subtree {','.join(self.groups)}")
        return " ".join(words)

    def extra_specs(self) -> dict[str, str]:
        """Return the same as extra specs of a flavor."""
        specs = {
            f"resources{f'_{suffix}' if suffix else ''}:{name}": str(amount)
            for suffix, resources in self.groups.items()
            for name, amount in resources.items()
        }
        if self.is_close:
            specs["group_policy"] = "none"
            specs["same_subtree"] = ",".join(f"_{suffix}" for suffix in self.groups)
        return specs


def sample_of(providers: Sequence[ProviderLines], *, most_of_a_cell: bool = False) -> Sample | None:
    """Return a small request that fits: CPUs, memory, and devices of the same cell or a disk.

    :param most_of_a_cell: with so much memory that a cell has no room for a second one.
    :returns: None on a machine of which nothing is free.
    """
    cells = [provider for provider in providers if _free(provider, "VCPU") > 0]
    if not cells:
        disk = any(_free(provider, "DISK_GB") > 0 for provider in providers)
        return Sample({"": {"DISK_GB": 1}}) if disk else None
    devices = {cell.uuid: _devices_below(cell, providers) for cell in cells}
    cell = max(cells, key=lambda cell: (len(devices[cell.uuid]), _free(cell, "MEMORY_MB")))
    memory = _free(cell, "MEMORY_MB")
    fitting_amounts = [amount for amount in _MEMORY_MB if amount <= memory]
    resources = {"VCPU": 1} | ({"MEMORY_MB": fitting_amounts[0]} if fitting_amounts else {})
    if most_of_a_cell:
        cpus = min(_CPUS, cell.inventories["VCPU"].total)
        resources = {"VCPU": cpus, "MEMORY_MB": max(1, memory * 5 // 8)}
    if devices[cell.uuid]:
        device_amounts = {_DEVICES[name]: {name: 1} for name in devices[cell.uuid]}
        return Sample({_CELL: resources, **device_amounts})
    if any(_free(provider, "DISK_GB") > 0 for provider in providers):
        resources["DISK_GB"] = 1
    return Sample({"": resources})


def _devices_below(cell: ProviderLines, providers: Sequence[ProviderLines]) -> list[str]:
    """Return the classes of devices of which something is free below a cell."""
    below = list(_below(cell.uuid, providers))
    return [name for name in _DEVICES if any(_free(provider, name) > 0 for provider in below)]


def _below(parent: str, providers: Sequence[ProviderLines]) -> Iterator[ProviderLines]:
    for provider in providers:
        if provider.parent == parent:
            yield provider
            yield from _below(provider.uuid, providers)


def _free(provider: ProviderLines, resource_class: str) -> int:
    line = provider.inventories.get(resource_class)
    return line.free if line else 0


_HOME = "~/"


def next_steps(
    environment: Path, home: str, hosts: Sequence[str], sample: Sample | None, *, answers: bool
) -> list[tuple[str, str]]:
    """Return pairs of a command's purpose and the command.

    :param environment: the file that a shell reads first.
    :param home: the home directory of the user.
    :param hosts: names of the hosts that are reported.
    :param sample: the claim that was made; None where nothing is free.
    :param answers: whether the agent answers commands.
    """
    first = shlex.quote(hosts[0])
    steps = [
        ("let the shell know this run, once", f". {_short(environment, home)}"),
        ("the tree, as placement has it", f"placement tree {first}"),
    ]
    if sample is not None:
        steps += [
            ("claim", f"compute-scheduler claim {sample.options}"),
            ("give back", "compute-scheduler release CONSUMER"),
            ("where it would fit, or why not", f"compute-scheduler explain {sample.options}"),
        ]
    steps.append(("all hosts", "compute-manage host list"))
    if answers:
        steps.append(("how the agent is", "compute-agent status"))
    steps.append(("what the agent would change now", "compute-agent plan"))
    return steps


def _short(path: Path, home: str) -> str:
    """Return a path as a person types it."""
    below = str(path).removeprefix(home.rstrip("/") + "/")
    if home and below != str(path):
        return _HOME + shlex.quote(below)
    return shlex.quote(str(path))
