"""Application of a layout to a provider tree; what is not the driver's stays as it is.

What placement has and the layout has not is taken away, unless a consumer holds it: then exactly
what is held stays, all of it reserved, so that nobody new gets it.

A child that placement has is adopted under the uuid it has there when it is the same by uuid, else
by name, else by the PCI address at the end of its name. A host that another compute service
reported before is so continued without a new provider.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from compute_agent.discovery.facts import PciAddress
from compute_agent.provider_tree import SHARING_TRAIT, ProviderData, ProviderTree, child_uuid
from compute_agent.provider_tree.inventory import Inventory, InventoryRecord, other_spelling
from compute_agent.provider_tree.provider import UNMANAGED, Resource
from compute_agent.provider_tree.trait_names import (
    CUSTOM_DEVICE_MISSING,
    CUSTOM_GPU_UNHEALTHY,
    HW_NUMA_ROOT,
    OWNER_NOVA,
    PAGE_SIZE_PREFIX,
    PMEM_PREFIX,
)
from compute_agent.virt.layout import names
from compute_agent.virt.layout.options import Ratio
from compute_agent.virt.layout.wanted import (
    ROOT,
    HostLayout,
    WantedProvider,
    WantedRecord,
)

OTHER_OWNERS = frozenset({"OWNER_CYBORG", SHARING_TRAIT})


LAYOUT_CLASSES = frozenset(
    {
        "VCPU",
        "PCPU",
        "MEMORY_MB",
        "DISK_GB",
        "VGPU",
        "PGPU",
        "SRIOV_NET_VF",
        "NET_BW_EGR_KILOBIT_PER_SEC",
        "NET_BW_IGR_KILOBIT_PER_SEC",
        "MEM_ENCRYPTION_CONTEXT",
    }
)
"""Classes a layout may report on the root and on cells, with those of persistent memory; on
devices it may report any class.

Others there come from provider config files and are put back after the driver, so whether they are
held is not the driver's to ask.
"""

HeldUnits = Callable[[str], Mapping[str, int]]


class Identities(Struct, frozen=True):
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


class Ratios(Struct, frozen=True):
    """Overcommit by options, and what a class moves along with when its provider changes."""

    options: Mapping[str, Ratio]
    inherited_ratios: Mapping[str, float] = MappingProxyType({})

    def of(
        self, resource_class: str, record: WantedRecord, stored_record: InventoryRecord | None
    ) -> float:
        if record.ratio is not None:
            return record.ratio
        stored_ratio = (
            stored_record["allocation_ratio"]
            if stored_record
            else self.inherited_ratios.get(resource_class)
        )
        return self.options[resource_class].of(stored_ratio)


def apply_layout(
    tree: ProviderTree,
    layout: HostLayout,
    identities: Identities,
    ratios: Ratios,
    held_units: HeldUnits,
) -> list[str]:
    """Edit `tree` in place.

    :param held_units: what consumers hold of a provider; asked only about what would be taken away.
    :returns: a sentence for each record that stays only because it is held.
    """
    kept_records: list[str] = []
    _place_known(tree, layout, identities)
    for wanted_provider in layout.providers:
        uuid = identities.uuids[wanted_provider.key]
        if not tree.exists(uuid):
            name = _free_name(tree, wanted_provider.name, wanted_provider.key)
            tree.new_child(name, identities.uuids[wanted_provider.parent], uuid=uuid)
        kept_records.extend(_write(tree, uuid, wanted_provider, ratios, held_units))
    kept_records.extend(_take_away(tree, layout, identities, held_units))
    return kept_records


def _place_known(tree: ProviderTree, layout: HostLayout, identities: Identities) -> None:
    """Rename and move providers that are there already, before anything takes their names.

    Cards may have swapped their slots, so the names are all given up before they are given out.
    """
    uuids = identities.uuids
    renamed_providers = [
        (w, tree.data(uuids[w.key]).name)
        for w in layout.children
        if w.key in identities.known_keys and tree.data(uuids[w.key]).name != w.name
    ]
    for wanted, _old_name in renamed_providers:
        tree.rename(uuids[wanted.key], f"~{uuids[wanted.key]}")
    for wanted, old_name in renamed_providers:
        name = old_name if tree.exists(wanted.name) else wanted.name
        tree.rename(uuids[wanted.key], _free_name(tree, name, wanted.key))
    for wanted in layout.children:
        uuid, parent = uuids[wanted.key], uuids[wanted.parent]
        if not tree.exists(parent):
            above = layout.provider(wanted.parent)
            name = _free_name(tree, above.name, above.key)
            tree.new_child(name, uuids[above.parent], uuid=parent)
        if wanted.key in identities.known_keys and tree.data(uuid).parent_uuid != parent:
            tree.move(uuid, parent)


def _free_name(tree: ProviderTree, name: str, key: str) -> str:
    """Return the name, or one made unique where another provider has it."""
    if not tree.exists(name):
        return name
    return f"{name[:191]}~{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _write(
    tree: ProviderTree,
    uuid: str,
    wanted_provider: WantedProvider,
    ratios: Ratios,
    held_units: HeldUnits,
) -> list[str]:
    provider = tree.data(uuid)
    units = {
        rc: names for rc, names in wanted_provider.units.items() if rc in wanted_provider.inventory
    }
    inventory: dict[str, InventoryRecord] = {}
    is_broken = CUSTOM_GPU_UNHEALTHY in provider.traits | wanted_provider.traits
    for resource_class, record in wanted_provider.inventory.items():
        stored_record = _stored_record(provider, resource_class, wanted_provider)
        ratio = ratios.of(resource_class, record, stored_record)
        inventory[resource_class] = _record(
            provider, resource_class, record, stored_record, ratio, held_units, is_broken=is_broken
        )
    gone_classes = {
        rc: record
        for rc, record in provider.inventory.items()
        if rc not in inventory
        and (
            wanted_provider.address is not None
            or rc in LAYOUT_CLASSES
            or rc.startswith(PMEM_PREFIX)
        )
    }
    leftover = _held_records(gone_classes, held_units(uuid)) if gone_classes else {}
    tree.update_inventory(uuid, {**inventory, **leftover})
    tree.update_resources(
        uuid,
        {
            rc: [
                Resource(
                    uuid, rc, name, UNMANAGED if name in wanted_provider.unmanaged_units else None
                )
                for name in names
            ]
            for rc, names in units.items()
        },
    )
    absent = {*wanted_provider.absent_traits, CUSTOM_DEVICE_MISSING} - wanted_provider.traits
    absent.update(
        trait
        for trait in provider.traits - wanted_provider.traits
        if trait.startswith(wanted_provider.absent_prefixes)
    )
    owner = () if wanted_provider.is_root else (OWNER_NOVA,)
    tree.add_traits(uuid, *sorted(wanted_provider.traits), *owner)
    tree.remove_traits(uuid, *absent)
    return _sentences(provider, leftover)


def _stored_record(
    provider: ProviderData, resource_class: str, wanted_provider: WantedProvider
) -> InventoryRecord | None:
    """Return what placement has of a class, perhaps under another name (see `reshape.renames`)."""
    for name in (resource_class, other_spelling(resource_class)):
        if name in provider.inventory and (
            name == resource_class or name not in wanted_provider.inventory
        ):
            return provider.inventory[name]
    record = wanted_provider.inventory[resource_class]
    lost_records = [
        other_record
        for rc, other_record in provider.inventory.items()
        if rc not in wanted_provider.inventory
    ]
    if record.keep_reserved and len(lost_records) == 1 and lost_records[0]["total"] == record.total:
        return lost_records[0]
    return None


def _record(
    provider: ProviderData,
    resource_class: str,
    wanted_record: WantedRecord,
    stored_record: InventoryRecord | None,
    ratio: float,
    held_units: HeldUnits,
    *,
    is_broken: bool,
) -> InventoryRecord:
    reserved = wanted_record.reserved
    used_up = wanted_record.reserve_when_held
    if (
        stored_record
        and wanted_record.keep_reserved
        and (CUSTOM_DEVICE_MISSING not in provider.traits or used_up)
    ):
        reserved = int(stored_record["reserved"])
    if is_broken and wanted_record.ratio is not None:
        reserved = wanted_record.total
    if (
        used_up
        and stored_record
        and reserved < wanted_record.total
        and held_units(provider.uuid).get(resource_class)
    ):
        reserved = wanted_record.total
    return {
        "total": wanted_record.total,
        "reserved": min(reserved, wanted_record.total),
        "min_unit": wanted_record.min_unit,
        "max_unit": wanted_record.total
        if wanted_record.max_unit is None
        else wanted_record.max_unit,
        "step_size": wanted_record.step_size,
        "allocation_ratio": ratio,
    }


def _take_away(
    tree: ProviderTree, layout: HostLayout, identities: Identities, held_units: HeldUnits
) -> list[str]:
    """Remove owned providers that are no longer wanted, children first."""
    kept_records: list[str] = []
    wanted_uuids = set(identities.uuids.values())
    for provider in reversed(list(descendants(tree, identities.root))):
        if provider.uuid in wanted_uuids or not is_owned(provider, layout.root.name):
            continue
        leftover = {}
        if provider.inventory:
            leftover = _held_records(provider.inventory, held_units(provider.uuid))
        if not leftover and not tree.children(provider.uuid):
            tree.remove(provider.uuid)
            continue
        tree.update_inventory(provider.uuid, leftover)
        tree.update_resources(provider.uuid, {})
        tree.add_traits(provider.uuid, CUSTOM_DEVICE_MISSING)
        kept_records.extend(_sentences(provider, leftover))
    return kept_records


def _held_records(
    records: Inventory, held_amounts: Mapping[str, int]
) -> dict[str, InventoryRecord]:
    """Return records shrunk to what is held, all of it reserved."""
    return {
        rc: {
            **record,
            "total": held_amounts[rc],
            "reserved": held_amounts[rc],
            "max_unit": held_amounts[rc],
        }
        for rc, record in records.items()
        if held_amounts.get(rc)
    }


def _sentences(provider: ProviderData, leftover: Inventory) -> list[str]:
    return [
        f"{provider.name} no longer has {rc}, of which {record['total']} are still allocated: "
        "these stay, reserved, until they are released"
        for rc, record in leftover.items()
    ]
