"""Check that a reshape proposed by a driver loses nothing and fits, before anything is sent.

Placement checks the same, but answers with one conflict for the whole request; here the operator
is told which consumer and which class. Pure functions on trees and allocations.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from compute_agent import errors
from compute_agent.placement.allocations.amounts import Amounts, of_record
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import capacity, equal_inventories
from compute_agent.provider_tree.provider import SHARING_TRAIT
from compute_agent.tracker.passes.reshape_sums import CPUS, Exchanges, Holding, Units
from compute_agent.virt.driver import Allocations, ClassChange
from compute_agent.virt.layout.devices.pci import MANAGED


def editable(allocations: Mapping[str, Mapping[str, Any]]) -> Allocations:
    """Return a copy that a driver may edit in place."""
    return copy.deepcopy({consumer: dict(record) for consumer, record in allocations.items()})


def check(
    base: ProviderTree,
    wanted_tree: ProviderTree,
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    root_uuid: str,
    declared: Collection[ClassChange] = (),
) -> tuple[ClassChange, ...]:
    """Check what a driver made of a tree and of the allocations on it.

    :param before: allocations as they were fetched.
    :param after: as the driver left them; consumers it dropped are taken as unchanged.
    :param declared: what the driver says that classes become.
    :returns: what classes became, declared or shown by the amounts of all consumers.
    :raises ReshapeFailed: everything that is wrong, naming consumers, providers and classes.
    """
    own = {*base.get_provider_uuids(root_uuid), *wanted_tree.get_provider_uuids(root_uuid)}
    complete = {**before, **after}
    exchanges = Exchanges.of(base, wanted_tree, root_uuid, _newly_counted(base, wanted_tree))
    reached = own.union(
        root.uuid
        for root in wanted_tree.roots
        if SHARING_TRAIT in root.traits and root.uuid in {change.provider for change in declared}
    )
    holdings = {
        consumer: Holding(
            _on(of_record(before[consumer]), reached), _on(of_record(record), reached)
        )
        for consumer, record in after.items()
        if consumer in before
    }
    sum_faults, changes = _sum_faults(holdings, exchanges, declared)
    faults = [
        *_sharing_faults(base, wanted_tree),
        *_consumer_faults(before, after, reached),
        *sum_faults,
        *_capacity_faults(wanted_tree, before, complete, own),
    ]
    if faults:
        raise errors.ReshapeFailed("; ".join(faults))
    return changes


def _sum_faults(
    holdings: Mapping[str, Holding], exchanges: Exchanges, declared: Collection[ClassChange]
) -> tuple[list[str], tuple[ClassChange, ...]]:
    """Return what consumers lose or gain without a counterpart, and what classes became."""
    made: dict[ClassChange, None] = {}
    adjusted = dict(holdings)
    for consumer, holding in holdings.items():
        for change in declared:
            if change.old == change.new and change.factor == 1:
                if holding.gains_on(change.provider, change.new):
                    made[change] = None
                continue
            converted = adjusted[consumer].after(change)
            if converted is not adjusted[consumer]:
                made[change] = None
            adjusted[consumer] = converted
    faults = [
        (consumer, fault)
        for consumer, holding in adjusted.items()
        for fault in exchanges.faults(holding.was, holding.now)
    ]
    faulty_classes = {fault[0] for _consumer, fault in faults}
    changed_classes = {rc for holding in adjusted.values() for rc in holding.sum_changes()}
    others = changed_classes - faulty_classes - CPUS
    inferred = exchanges.inferred(adjusted.values(), faulty_classes)
    if inferred is None:
        # sums that agree by chance hide what a class became
        inferred, others = exchanges.inferred(adjusted.values(), faulty_classes | others), set()
    if inferred is None:
        return [
            f"consumer {consumer} held {had} of {rc} and would hold {has}"
            for consumer, (rc, had, has) in faults
        ], ()
    return [], (*made, *inferred, *(exchanges.inferred(adjusted.values(), others) or ()))


def _sharing_faults(base: ProviderTree, wanted_tree: ProviderTree) -> list[str]:
    faults = []
    for root in base.roots:
        if SHARING_TRAIT not in root.traits:
            continue
        if not wanted_tree.exists(root.uuid) or not equal_inventories(
            root.inventory, wanted_tree.data(root.uuid).inventory
        ):
            faults.append(
                f"inventory of the sharing provider {root.name} ({root.uuid}) would move; its "
                "consumers belong to many hosts and cannot be collected from one"
            )
    return faults


def _consumer_faults(
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    own: Collection[str],
) -> list[str]:
    faults = []
    for consumer, record in after.items():
        if consumer not in before:
            faults.append(f"consumer {consumer} appeared, which had no allocations here")
            continue
        was, now = of_record(before[consumer]), of_record(record)
        if any(not resources for resources in now.values()):
            faults.append(f"consumer {consumer} has a provider without any amount left on it")
        elsewhere_was = {uuid: r for uuid, r in was.items() if uuid not in own}
        elsewhere_now = {uuid: r for uuid, r in now.items() if uuid not in own}
        if elsewhere_was != elsewhere_now:
            faults.append(f"allocations of consumer {consumer} on other trees were changed")
    return faults


def _newly_counted(base: ProviderTree, wanted_tree: ProviderTree) -> Units:
    """Return the PCI devices, as provider and class, that placement did not count until now.

    Guests may hold some already; they get allocations, where nothing else about them changes.
    """
    return frozenset(
        (uuid, resource_class)
        for uuid in wanted_tree.get_provider_uuids()
        if MANAGED in wanted_tree.data(uuid).traits
        for resource_class in wanted_tree.data(uuid).inventory
        if not base.exists(uuid) or resource_class not in base.data(uuid).inventory
    )


def _capacity_faults(
    wanted_tree: ProviderTree,
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    tree_uuids: Collection[str],
) -> list[str]:
    used: Counter[tuple[str, str]] = Counter()
    touched_inventories: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for consumer, record in after.items():
        was = of_record(before.get(consumer, {}))
        for uuid, resources in of_record(record).items():
            if uuid not in tree_uuids:
                continue
            for resource_class, amount in resources.items():
                used[uuid, resource_class] += amount
                if was.get(uuid, {}).get(resource_class) != amount:
                    touched_inventories[uuid, resource_class].append((consumer, amount))
    faults = []
    for (uuid, resource_class), amount in used.items():
        provider = wanted_tree.data(uuid) if wanted_tree.exists(uuid) else None
        name = provider.name if provider else uuid
        found_record = provider.inventory.get(resource_class) if provider else None
        if found_record is None:
            faults.append(
                f"{amount} of {resource_class} are allocated on provider {name}, which would have "
                "none of it"
            )
            continue
        holders = touched_inventories[uuid, resource_class]
        if holders and amount > capacity(found_record):
            faults.append(
                f"provider {name} would have {amount} of {resource_class} allocated and has "
                f"{capacity(found_record):g}"
            )
        smallest, largest = found_record["min_unit"], found_record["max_unit"]
        step = found_record["step_size"]
        faults += [
            f"consumer {consumer} would hold {own} of {resource_class} on {name}, which gives "
            f"{smallest} to {largest} in steps of {step}"
            for consumer, own in holders
            if not smallest <= own <= largest or own % step
        ]
    return faults


def _on(amounts: Amounts, own: Collection[str]) -> Amounts:
    return {uuid: resources for uuid, resources in amounts.items() if uuid in own}
