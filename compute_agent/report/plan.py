"""Plans: the ordered steps from the tree in placement to the wanted tree.  Pure.

The order, in which every prefix is a legal state of placement:

    names and classes     traits and custom classes that the rest needs
    free names            a name that another provider takes over is given up by its holder
    create                parents first, empty: an empty provider is never a candidate
    move and rename
    new providers         aggregates, then traits: no search sees a device without its traits
    restricting traits    of existing providers
    inventories           what shrinks first, what grows after: capacity is never shown twice
    aggregates, traits    of existing providers: a trait promises what the inventory already has
    delete                children first, only what this agent owns
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from compute_agent.placement.allocations.amounts import of_record
from compute_agent.provider_tree import MAX_NAME, ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory, capacity
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.report.diff import Difference, diff
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    PutProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
    Step,
)

RESTRICTING: Final = frozenset({COMPUTE_STATUS_DISABLED})
"""Traits whose presence keeps candidates away."""

BULK_FROM: Final = 9
"""From so many changed inventories on, one request that needs the right to reshape pays."""


def plan(
    base: ProviderTree,
    wanted_tree: ProviderTree,
    *,
    is_owned: Callable[[ProviderData], bool] = lambda _provider: True,
    allocations: Mapping[str, Mapping[str, Any]] | None = None,
    original_allocations: Mapping[str, Mapping[str, Any]] | None = None,
    bulk: bool = False,
    known_traits: Collection[str] = (),
    known_classes: Collection[str] = (),
) -> list[Step]:
    """Return the steps from `base` to `wanted_tree`, in order; empty without a difference.

    :param is_owned: whether a provider of `base` may be deleted by this agent.
    :param allocations: consumer uuid -> record, as they shall be; with them, inventories and
        allocations change together in one reshape.
    :param original_allocations: as they were; with them only consumers that differ are part of the
        reshape, else all that hold a class whose inventory changes.
    :param bulk: whether many inventories may be written with one request.
    :param known_traits, known_classes: names that need not be ensured.
    """
    changes = diff(base, wanted_tree)
    owners = {d.uuid: is_owned(base.data(d.uuid)) for d in changes.delete}
    deletions = [d for d in changes.delete if owners[d.uuid]]
    new_uuids = {step.uuid for step in changes.create}
    freed_names = list(_freed_names(base, changes, owners))
    # children first
    emptied_inventories = [
        SetInventory(d.uuid, d.name, inventory, FrozenRecord())
        for d in reversed(deletions)
        if (inventory := base.data(d.uuid).inventory)
    ]
    restricted_uuids = {t.uuid for t in changes.traits if _restricts(t)}
    steps: list[Step] = [
        *_names(changes, known_traits, known_classes),
        *freed_names,
        *changes.create,
        *_puts(base, changes, freed_names),
        *(a for a in changes.aggregates if a.uuid in new_uuids),
        *(t for t in changes.traits if t.uuid in new_uuids),
        *(t for t in changes.traits if t.uuid not in new_uuids and t.uuid in restricted_uuids),
    ]
    if allocations is not None and (changes.inventories or emptied_inventories):
        moving_inventories = (*changes.inventories, *emptied_inventories)
        involved_consumers = _involved_consumers(
            moving_inventories, allocations, original_allocations, base, wanted_tree
        )
        steps.append(Reshape(moving_inventories, involved_consumers))
    else:
        steps += _inventories(changes.inventories, emptied_inventories, bulk=bulk)
    steps += [
        *(a for a in changes.aggregates if a.uuid not in new_uuids),
        *(t for t in changes.traits if t.uuid not in new_uuids | restricted_uuids),
    ]
    steps += [d if owners[d.uuid] else KeepProvider(d.uuid, d.name) for d in changes.delete]
    return steps


def stages(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Split a plan where order matters: the steps of one list may run at the same time."""
    current: list[Step] = []
    for step in steps:
        if current and not _may_join(step, current):
            yield current
            current = []
        current.append(step)
    if current:
        yield current


def order_inventories(changes: Iterable[SetInventory]) -> list[SetInventory]:
    """Sort inventory changes so that capacity of a class never shows in two places.

    Changes that only shrink go first, those that only grow last.  One that does both goes between,
    unless it gains a class that another such one loses: then it is written twice, first only
    shrunk.
    """
    shrinking_changes, mixed_changes, growing_changes = [], [], []
    for change in changes:
        if not _gains(change):
            shrinking_changes.append(change)
        elif not _loses(change):
            growing_changes.append(change)
        else:
            mixed_changes.append(change)
    plain_changes = []
    lost_classes = set().union(*map(_loses, mixed_changes))
    for change in mixed_changes:
        if _gains(change) & lost_classes:
            between = _only_shrunk(change)
            shrinking_changes.append(SetInventory(change.uuid, change.name, change.before, between))
            growing_changes.append(SetInventory(change.uuid, change.name, between, change.after))
        else:
            plain_changes.append(change)
    return [*shrinking_changes, *plain_changes, *growing_changes]


def _gains(change: SetInventory) -> set[str]:
    """Return the classes of which the provider can give more afterwards."""
    return {rc for rc in change.after if _capacity(change.after, rc) > _capacity(change.before, rc)}


def _loses(change: SetInventory) -> set[str]:
    """Return the classes of which the provider can give less afterwards."""
    return {
        rc for rc in change.before if _capacity(change.after, rc) < _capacity(change.before, rc)
    }


def _capacity(inventory: Inventory, resource_class: str) -> float:
    return capacity(inventory[resource_class]) if resource_class in inventory else 0.0


def _only_shrunk(change: SetInventory) -> FrozenRecord:
    """Return the inventory between: every class at the smaller of its two capacities."""
    gaining = _gains(change)
    return FrozenRecord(
        {
            rc: change.before[rc] if rc in gaining else record
            for rc, record in change.after.items()
            if rc not in gaining or rc in change.before
        }
    )


def _names(
    changes: Difference, known_traits: Collection[str], known_classes: Collection[str]
) -> Iterator[Step]:
    traits = sorted(
        {trait for t in changes.traits for trait in t.after - t.before}.difference(known_traits)
    )
    if traits:
        yield EnsureTraits(tuple(traits))
    classes = {rc for i in changes.inventories for rc in i.after if rc not in i.before}
    for resource_class in sorted(classes.difference(known_classes)):
        if resource_class.startswith("CUSTOM_"):
            yield EnsureResourceClass(resource_class)


def _freed_names(
    base: ProviderTree, changes: Difference, owners: Mapping[str, bool]
) -> Iterator[PutProvider]:
    """Yield renames that free names: a device takes over the name of the one before in its slot."""
    giving_up = {rename.uuid for rename in changes.rename}
    giving_up |= {d.uuid for d in changes.delete if owners[d.uuid]}
    new_names = [step.name for step in changes.create]
    new_names += [rename.after for rename in changes.rename]
    for name in new_names:
        if not base.exists(name):
            continue
        holder = base.data(name)
        if holder.name == name and holder.uuid in giving_up:
            parent = holder.parent_uuid
            yield PutProvider(holder.uuid, name, _interim_name(holder), parent, parent)


def _interim_name(provider: ProviderData) -> str:
    digest = hashlib.sha256(provider.uuid.encode()).hexdigest()[:8]
    return f"{provider.name[: MAX_NAME - 12]}~was{digest}"


def _puts(
    base: ProviderTree, changes: Difference, freed_names: Iterable[PutProvider]
) -> Iterator[PutProvider]:
    names = {rename.uuid: rename.after for rename in changes.rename}
    parents = {reparent.uuid: reparent.after for reparent in changes.reparent}
    interim = {step.uuid: step.name for step in freed_names}
    # The new tree's order has parents first, so that no provider moves below its own descendant.
    for uuid in dict.fromkeys((*parents, *names)):
        was = base.data(uuid)
        yield PutProvider(
            uuid,
            interim.get(uuid, was.name),
            names.get(uuid, was.name),
            was.parent_uuid,
            parents.get(uuid, was.parent_uuid),
        )


def _restricts(change: SetTraits) -> bool:
    """Return whether this change keeps candidates away and therefore comes before inventories."""
    added_traits, removed_traits = change.after - change.before, change.before - change.after
    return bool(added_traits & RESTRICTING) or (
        not added_traits and not removed_traits & RESTRICTING
    )


def _inventories(
    changes: Sequence[SetInventory], emptied_inventories: Sequence[SetInventory], *, bulk: bool
) -> list[Step]:
    growing = set().union(*(_gains(change) for change in changes))
    # A provider to be deleted is emptied first only where its capacity appears elsewhere.
    all_changes = [*changes, *(e for e in emptied_inventories if growing.intersection(e.before))]
    if bulk and len(all_changes) >= BULK_FROM:
        return [SetInventories(tuple(all_changes))]
    return list(order_inventories(all_changes))


def _involved_consumers(
    changes: Iterable[SetInventory],
    allocations: Mapping[str, Mapping[str, Any]],
    original: Mapping[str, Mapping[str, Any]] | None,
    base: ProviderTree,
    wanted_tree: ProviderTree,
) -> dict[str, Mapping[str, Any]]:
    """Return the consumers that differ: others cannot make it conflict, nor be refused in it.

    :param original: unknown: then those that hold anything whose inventory changes.
    """
    if original is not None:
        return {
            consumer: record
            for consumer, record in allocations.items()
            if of_record(original.get(consumer, {})) != of_record(record)
        }
    classes = {
        rc
        for change in changes
        for rc in {*change.before, *change.after}
        if change.before.get(rc) != change.after.get(rc)
    }
    members = {*base.get_provider_uuids(), *wanted_tree.get_provider_uuids()}

    def is_involved(record: Mapping[str, Any]) -> bool:
        return any(
            provider in members and not classes.isdisjoint(resources)
            for provider, resources in of_record(record).items()
        )

    return {c: record for c, record in allocations.items() if is_involved(record)}


def _may_join(step: Step, stage: Sequence[Step]) -> bool:
    match step, stage[0]:
        case CreateProvider(), CreateProvider():
            return step.parent_uuid not in {o.uuid for o in stage if isinstance(o, CreateProvider)}
        case DeleteProvider(), DeleteProvider():
            return step.uuid not in {o.parent_uuid for o in stage if isinstance(o, DeleteProvider)}
        case SetInventory() as change, SetInventory() as first:
            # those of one provider have different ones
            return _direction(change) == _direction(first)
        case (SetAggregates(), SetAggregates()) | (SetTraits(), SetTraits()):
            return True
        case EnsureResourceClass(), EnsureResourceClass():
            return True
        case _:
            return False


def _direction(change: SetInventory) -> str:
    """Return `shrink`, `grow` or `both`; only changes of one may be written together."""
    if not _gains(change):
        return "shrink"
    return "both" if _loses(change) else "grow"
