"""Aliases of PCI devices: the names by which flavors request devices, of option [pci]alias."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from compute_agent import errors
from compute_agent.provider_tree.trait_names import HW_PCI_LIVE_MIGRATABLE
from compute_agent.virt.layout.device_spec import DeviceEntry, class_of_ids, entries

_OPTION: Final = "[pci]alias"
_KEYS: Final = (
    *("name", "vendor_id", "product_id", "resource_class", "traits"),
    *("device_type", "numa_policy", "live_migratable", "capability_type"),
)
_NUMA_POLICIES: Final = ("legacy", "preferred", "required", "socket")
_DEVICE_TYPES: Final = {
    # a PF takes all VFs of its port with it, and a vDPA function is for ports of its own kind
    "": frozenset(("PCI", "VF")),
    "type-PCI": frozenset(("PCI",)),
    "type-PF": frozenset(("PF",)),
    "type-VF": frozenset(("VF",)),
    "type-VDPA": frozenset(("VDPA",)),
}


class PciAlias(Struct, frozen=True):
    """The meaning of an alias: one device of this class with these traits.

    `device_types`: those of which it is, as agents mark them: PCI, PF, VF or VDPA.
    `numa_policy`: its distance from a guest that has NUMA nodes: required, legacy,
    preferred or socket.
    """

    resource_class: str
    traits: frozenset[str] = frozenset()
    numa_policy: str = "legacy"
    forbidden_traits: frozenset[str] = frozenset()
    device_types: frozenset[str] = frozenset(("PCI", "VF"))


def pci_aliases(texts: Iterable[str]) -> dict[str, PciAlias]:
    """Return the aliases by name.

    :raises InvalidConfiguration: an entry that no device can have, or a name that two have.
    """
    aliases: dict[str, PciAlias] = {}
    for name, alias in read_aliases(texts):
        if name in aliases:
            raise errors.InvalidConfiguration(
                f"{_OPTION} has the name {name} twice. A request for devices of placement names "
                "one class: give both kinds of devices one resource_class in [pci]device_spec and "
                "name it in one alias, or give the aliases names of their own."
            )
        aliases[name] = alias
    return aliases


def read_aliases(texts: Iterable[str]) -> list[tuple[str, PciAlias]]:
    """Return names and meanings, a name as often as it is there.

    Where devices are not requested from placement, entries of one name are alternatives.

    :raises InvalidConfiguration: an entry that no device can have, or alternatives that differ in
        more than the device.
    """
    aliases: list[tuple[str, PciAlias]] = []
    first_of: dict[str, PciAlias] = {}
    for entry in (entry for text in texts for entry in entries(_OPTION, text)):
        name, alias = _alias(entry)
        first = first_of.setdefault(name, alias)
        for key, value, expected in (
            ("device_type", alias.device_types, first.device_types),
            ("numa_policy", alias.numa_policy, first.numa_policy),
        ):
            if value != expected:
                raise entry.refusal(f"{key} differs from that of the entry before of this name")
        aliases.append((name, alias))
    return aliases


def _alias(entry: DeviceEntry) -> tuple[str, PciAlias]:
    name = entry.body.get("name")
    if not isinstance(name, str) or not name.strip():
        raise entry.refusal("an alias needs a name")
    if unknown_keys := entry.unknown_keys(_KEYS):
        raise entry.refusal(
            f"{unknown_keys[0]} is not a known key; known are {', '.join(sorted(_KEYS))}"
        )
    entry.one_of("capability_type", ("pci",), "pci")
    ids = entry.hex_id("vendor_id"), entry.hex_id("product_id")
    resource_class = entry.resource_class()
    if resource_class is None:
        if ids[0] is None or ids[1] is None:
            missing = "vendor_id" if ids[0] is None else "product_id"
            raise entry.refusal(f"{missing} is missing; without resource_class it needs both ids")
        resource_class = class_of_ids(ids[0], ids[1])
    traits, forbidden_traits = set(entry.traits()), set[str]()
    is_migratable = entry.flag("live_migratable")
    if is_migratable is not None:
        (traits if is_migratable else forbidden_traits).add(HW_PCI_LIVE_MIGRATABLE)
    return name.strip(), PciAlias(
        resource_class,
        frozenset(traits),
        entry.one_of("numa_policy", _NUMA_POLICIES, "legacy"),
        frozenset(forbidden_traits),
        _DEVICE_TYPES[entry.one_of("device_type", _DEVICE_TYPES, "")],
    )
