"""Persistent memory: a class on the root for each label, whose units are namespaces by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree.trait_names import PMEM_PREFIX
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord

_OPTION: Final = "[libvirt]pmem_namespaces"
_NOT_IN_CLASSES = r"[^A-Z0-9_]"


class PmemLabel(Struct, frozen=True):
    """Namespaces of which any serves a flavor that asks for the label."""

    label: str
    namespaces: tuple[str, ...]

    @property
    def resource_class(self) -> str:
        return f"{PMEM_PREFIX}{re.sub(_NOT_IN_CLASSES, '_', self.label.upper())}"


class PmemLayout(Struct, frozen=True):
    """What the root has of persistent memory, and which options do not fit the machine."""

    inventory: Mapping[str, WantedRecord]
    units: Mapping[str, tuple[str, ...]]
    errors: tuple[str, ...]

    def added_to(self, root: WantedProvider) -> WantedProvider:
        """Return the root with its persistent memory."""
        return replace(
            root,
            inventory={**root.inventory, **self.inventory},
            units={**root.units, **self.units},
        )


def parse_pmem_namespaces(entries: Iterable[str]) -> tuple[PmemLabel, ...]:
    """Read `128G:ns0|ns1`, `262144MB:ns2`: labels with their namespaces.

    :raises InvalidConfiguration: an entry of another form, or a label or namespace named twice.
    """
    labels = tuple(_label(entry) for entry in entries)
    if twice := _repeats(label.resource_class for label in labels):
        raise errors.InvalidConfiguration(
            f"{_OPTION} has labels of class {', '.join(twice)} twice. Write all namespaces of a "
            "label in one entry, as 128G:ns0|ns1; labels differ by letters and digits only."
        )
    if twice := _repeats(name for label in labels for name in label.namespaces):
        raise errors.InvalidConfiguration(
            f"{_OPTION} has the namespaces {', '.join(twice)} twice. Only one guest can have one: "
            "leave each in one place."
        )
    return labels


def lay_out_pmem(topology: HostTopology, labels: tuple[PmemLabel, ...]) -> PmemLayout:
    """Count the namespaces that the machine has.

    Where they could not be listed, those of the options count, which the start compared with the
    machine: a program that fails once takes no memory away from guests.
    """
    if not labels:
        return PmemLayout({}, {}, ())
    if topology.pmem is None:
        there = {namespace for label in labels for namespace in label.namespaces}
        why = topology.pmem_fault or "nothing looked for them"
        faults = [f"{_OPTION} cannot be compared with the namespaces of this machine: {why}"]
    else:
        namespaces = {namespace.name: namespace for namespace in topology.pmem}
        there = {
            name for name, namespace in namespaces.items() if namespace.align_bytes is not None
        }
        faults = [
            f"{_OPTION} names {namespace}, "
            + (
                "whose alignment `ndctl list -X` does not print: a guest needs one of mode devdax"
                if namespace in namespaces
                else "which `ndctl list -X` does not print; it prints "
                f"{', '.join(sorted(namespaces)) or 'none'}"
            )
            for label in labels
            for namespace in label.namespaces
            if namespace not in there
        ]
    units = {
        label.resource_class: tuple(name for name in label.namespaces if name in there)
        for label in labels
    }
    inventory = {
        resource_class: WantedRecord(len(names)) for resource_class, names in units.items()
    }
    return PmemLayout(inventory, units, tuple(faults))


def _repeats(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _label(entry: str) -> PmemLabel:
    label, _, names = entry.partition(":")
    namespaces = tuple(name.strip() for name in names.split("|"))
    if not (label.strip() and all(namespaces)):
        raise errors.InvalidConfiguration(
            f"{_OPTION}: {entry!r} is not LABEL:NAMESPACE|NAMESPACE..., for example 128G:ns0|ns1."
        )
    return PmemLabel(label.strip(), namespaces)
