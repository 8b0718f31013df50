"""Adoption of the providers that placement has by the providers of a layout.

A child that placement has is taken over under the uuid it has there when it is the same by uuid,
else by name, else by the PCI address at the end of its name. A host that another compute service
reported before is so continued without a new provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from compute_agent.discovery.facts import PciAddress
from compute_agent.provider_tree import SHARING_TRAIT, ProviderData, ProviderTree, child_uuid
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, OWNER_NOVA, PAGE_SIZE_PREFIX
from compute_agent.virt.layout import names
from compute_agent.virt.layout.wanted import ROOT, HostLayout

OTHER_OWNERS = frozenset({"OWNER_CYBORG", SHARING_TRAIT})


class Identities(NamedTuple):
    """The uuid of every provider of a layout, by key, and which of them placement has."""

    uuids: Mapping[str, str]
    known_keys: frozenset[str]
    """Keys of providers that are in the tree."""

    @property
    def root(self) -> str:
        return self.uuids[ROOT]


def identify(tree: ProviderTree, root_uuid: str, layout: HostLayout) -> Identities:
    """Find the uuid of each provider of the layout; new ones get that derived from their key."""
    uuids = {ROOT: root_uuid}
    derived_uuids = {w.key: child_uuid(root_uuid, w.key) for w in layout.children}
    free = {p.uuid: p for p in descendants(tree, root_uuid) if not p.traits & OTHER_OWNERS}

    def marks(provider: ProviderData) -> tuple[str, str, PciAddress | None]:
        address = names.device_address(layout.root.name, provider.name)
        return provider.uuid, provider.name, address

    for strength in range(3):
        by_mark = {marks(provider)[strength]: uuid for uuid, provider in reversed(free.items())}
        for wanted in layout.children:
            mark = (derived_uuids[wanted.key], wanted.name, wanted.address)[strength]
            match = by_mark.get(mark, "")
            if mark is not None and wanted.key not in uuids and match in free:
                del free[match]
                uuids[wanted.key] = match
    known_keys = frozenset(uuids)
    return Identities({**derived_uuids, **uuids}, known_keys)


def descendants(tree: ProviderTree, root_uuid: str) -> Iterator[ProviderData]:
    """Yield the providers below a root, parents first."""
    for uuid in tree.get_provider_uuids(root_uuid)[1:]:
        yield tree.data(uuid)


def is_owned(provider: ProviderData, root_name: str) -> bool:
    """Whether a layout made the provider: it carries the owner's trait and a name of ours."""
    if OWNER_NOVA not in provider.traits or provider.traits & OTHER_OWNERS:
        return False
    return names.is_ours(root_name, provider.name)


def is_cell(provider: ProviderData, root_name: str) -> bool:
    """Whether an owned provider is a NUMA cell or huge pages of one."""
    if not is_owned(provider, root_name):
        return False
    return (
        names.is_cell(root_name, provider.name)
        or HW_NUMA_ROOT in provider.traits
        or any(trait.startswith(PAGE_SIZE_PREFIX) for trait in provider.traits)
    )
