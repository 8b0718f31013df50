"""Moves that were begun before, found again from what their consumers hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add, copy_of
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding
from compute_agent.scheduler.search.targets import root_of


def begun_before(
    placement: PlacementClient,
    kind: MoveKind,
    instance: str,
    migration: str,
    *,
    source_root: str = "",
    mappings: Mapping[str, Sequence[str]] | None = None,
) -> Move | None:
    """Return the move that is under way, `None` when there is none.

    :param migration: the consumer that holds the source; empty for an evacuation.
    :param source_root: the root of the dead host, for an evacuation; without it none is found.
    :raises MoveRefused: a cold move whose source cannot be known from what is held: the instance
        may have grown on a provider that both hosts share.
    """
    holding = placement.holding(instance)
    source_holding = placement.holding(migration) if migration else Holding({}, {})
    sharing = placement.sharing(tuple(holding.allocations))
    if kind is MoveKind.EVACUATE:
        source_amounts, destination_root = _ends_of_evacuation(
            placement, holding, source_root, sharing
        )
        if not destination_root:
            return None
    else:
        source_amounts = copy_of(source_holding.allocations)
        if not source_amounts or not holding.allocations:
            return None
        destination_root = root_of(placement, instance, holding)
        source_root = root_of(placement, migration, source_holding)
    if kind is MoveKind.COLD and _is_ambiguous(source_amounts, holding.allocations, sharing):
        raise MoveRefused(
            f"The move of {instance} was begun before. What it held on a provider that both hosts "
            "share cannot be known from what is held now, since it may have been resized: confirm "
            "or revert it with what begin returned."
        )
    return Move(
        kind=kind,
        instance=instance,
        migration=migration,
        source_root=source_root,
        source=_source(source_amounts, holding.allocations, sharing),
        mappings={suffix: tuple(uuids) for suffix, uuids in (mappings or {}).items()},
        destination_root=destination_root,
        destination=holding.allocations,
        left_amounts=copy_of(source_holding.allocations),
        project_id=str(holding.record.get("project_id", "")),
        user_id=str(holding.record.get("user_id", "")),
    )


def _ends_of_evacuation(
    placement: PlacementClient, holding: Holding, source_root: str, sharing: Collection[str]
) -> tuple[MutableAmounts, str]:
    """Return what an instance holds of the dead host, and the root of its new one.

    The root is empty where the instance does not hold parts of both.
    """
    source_tree = set(placement.tree(source_root)) if source_root else set()
    source_amounts = {
        uuid: dict(n) for uuid, n in holding.allocations.items() if uuid in source_tree
    }
    destination = set(holding.allocations) - source_tree - set(sharing)
    roots = set(placement.provider_roots(sorted(destination)).values()) if source_amounts else set()
    return source_amounts, roots.pop() if len(roots) == 1 else ""


def _source(
    remaining_amounts: Amounts, held_amounts: Amounts, sharing: Collection[str]
) -> MutableAmounts:
    """Return what the instance held, whose sizes have not changed, from what is left of it.

    Instance and migration together hold an amount on a shared provider once.
    """
    local = {name for uuid, n in remaining_amounts.items() if uuid not in sharing for name in n}
    shared = {
        pool: {name: n for name, n in held_amounts[pool].items() if name not in local}
        for pool in sharing
        if not local.issuperset(held_amounts[pool])
    }
    return add(remaining_amounts, shared)


def _is_ambiguous(
    remaining_amounts: Amounts, held_amounts: Amounts, sharing: Collection[str]
) -> bool:
    classes = {name for amounts in remaining_amounts.values() for name in amounts}
    return any(name not in classes for pool in sharing for name in held_amounts[pool])
