"""Classes under another name: what was held of the old one is held of the new one.

    CUSTOM_<CLASS> -> <CLASS>, and back    on any provider, the root included: a class has become a
                                           standard one, or is reported by an older release again
    one class -> another                   on a device that counts the same number of the same kind
                                           of thing under another name, by [mdev_*]mdev_class or
                                           the resource_class of [pci]device_spec

Whether a reshape is due is asked of the tree. What moves is asked of the allocations too: the tree
may have been edited half and lack classes already of which something is still held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from compute_agent.provider_tree.inventory import Inventory, other_spelling
from compute_agent.virt.driver import Allocations
from compute_agent.virt.layout.device_spec import class_of_ids
from compute_agent.virt.layout.devices.gpus import MIG_CLASS_PREFIX
from compute_agent.virt.layout.devices.pci import MANAGED
from compute_agent.virt.layout.wanted import WantedProvider
from compute_agent.virt.reshape.moves import Situation, Unit, held_by_provider, move_all

_WHOLE_DEVICES = ("PGPU", "CUSTOM_PCI_")
_NEVER = (MIG_CLASS_PREFIX, "NET_BW_", "SRIOV_NET_VF")


def reasons(situation: Situation) -> Iterator[str]:
    for source, target in _renamings(situation):
        name = situation.name_of(source.provider)
        yield f"{source.resource_class} on {name} becomes {target.resource_class}"


def move(situation: Situation, allocations: Allocations) -> None:
    """Edit `allocations` in place."""
    for source, target in _renamings(situation, held_by_provider(allocations)):
        move_all(allocations, source, target)


def _renamings(
    situation: Situation, sums: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> Iterator[tuple[Unit, Unit]]:
    """Yield the old and the new unit of each class that changed its name.

    :param sums: what is held, by provider and class. Placement lets nobody take away a record of
        which something is held, so where the tree has none any more an edit of this tree took it;
        where one class is left so, it is the one whose name changed.
    """
    for uuid, wanted_provider in situation.wanted_providers.items():
        stored = situation.stored_inventory(uuid)
        lost_classes = stored.keys() - wanted_provider.inventory.keys()
        new_classes = wanted_provider.inventory.keys() - stored.keys()
        left_classes = sums.get(uuid, {}).keys() - stored.keys() - wanted_provider.inventory.keys()
        for old, new in (
            *sorted(_pairs(situation, wanted_provider, lost_classes, new_classes, stored)),
            *sorted(_pairs(situation, wanted_provider, left_classes, wanted_provider.inventory)),
        ):
            yield Unit(uuid, old), Unit(uuid, new)


def _pairs(
    situation: Situation,
    wanted_provider: WantedProvider,
    lost_classes: Collection[str],
    new_classes: Collection[str],
    stored_inventory: Inventory | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield the old and the new name of each class that changed it.

    :param stored_inventory: the records; without them a total cannot differ.
    """
    respelt_pairs = [
        (old, new) for old in lost_classes if (new := other_spelling(old)) in new_classes
    ]
    yield from respelt_pairs
    if wanted_provider.address is None:
        return
    remaining_classes = [
        rc for rc in lost_classes if rc not in {old for old, _new in respelt_pairs}
    ]
    remaining_news = [rc for rc in new_classes if rc not in {new for _old, new in respelt_pairs}]
    for is_pci in (False, True):
        olds = [rc for rc in remaining_classes if _is_pci(rc, situation, wanted_provider) is is_pci]
        news = [rc for rc in remaining_news if _is_pci(rc, situation, wanted_provider) is is_pci]
        if len(olds) != 1 or len(news) != 1:
            continue
        old, new = olds[0], news[0]
        same_number = (
            stored_inventory is None
            or stored_inventory[old]["total"] == wanted_provider.inventory[new].total
        )
        if same_number and _may_be(old, situation, wanted_provider.units.get(new, ())):
            yield old, new


def _is_pci(
    resource_class: str, situation: Situation, wanted_provider: WantedProvider
) -> bool | None:
    """Whether it counts whole devices, or else vGPUs; None: no other class takes its place."""
    if resource_class.startswith(_NEVER):
        return None
    if resource_class.startswith(_WHOLE_DEVICES):
        return True
    traits = wanted_provider.traits
    if resource_class not in wanted_provider.inventory:
        uuid = situation.identities.uuids[wanted_provider.key]
        traits = situation.tree.data(uuid).traits if situation.tree.exists(uuid) else traits
    return MANAGED in traits


def _may_be(old_class: str, situation: Situation, functions: Collection[str]) -> bool:
    """Whether the class may have named these functions: one made of ids names those of no other."""
    if not old_class.startswith("CUSTOM_PCI_"):
        return True
    devices = situation.topology.pci_devices
    classes = {class_of_ids(d.vendor_id, d.product_id) for d in devices if d.address in functions}
    return classes == {old_class}
