"""The ids of the resource classes, traits and aggregates that a write of a tree names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement_server.store import resource_classes
from placement_server.store.errors import ResourceClassNotFound, TraitNotFound
from placement_server.store.providers import aggregates, traits
from placement_server.store.schema.names import class_ids, hold_classes, is_standard
from placement_server.store.transactions.transaction import WriteTransaction
from placement_server.store.trees.tree_write import TreeMalformed, TreeWrite


@dataclass(frozen=True, slots=True)
class NameIds:
    """The ids of names that the request uses; those that are new have been created."""

    classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]


def ensure(tx: WriteTransaction, write: TreeWrite) -> NameIds:
    """Return the ids of all names; create those that are new.

    The classes of inventories are locked.

    :raises TreeMalformed: a standard name, or the class of an allocation, does not exist.
    """
    stock_classes = {
        name for target in write.providers.values() for name in target.inventories or ()
    }
    classes: dict[str, int] = hold_classes(tx, stock_classes)
    new_classes = stock_classes - classes.keys()
    for name in sorted(filter(is_standard, new_classes)):
        raise _unknown_name(write, "inventories", name, "resource class")
    if new_classes:
        classes.update(resource_classes.insert(tx, new_classes))
    others = {
        name
        for item in write.holdings.values()
        for amounts in item.amounts.values()
        for name in amounts
    } - classes.keys()
    try:
        classes.update(class_ids(tx, sorted(others)))
    except ResourceClassNotFound as error:
        raise TreeMalformed(str(error), *_claim_path(write, error.names[0])) from error
    try:
        trait_ids = traits.ensure_all(
            tx, {name for target in write.providers.values() for name in target.traits or ()}
        )
    except TraitNotFound as error:
        raise _unknown_name(write, "traits", error.names[0], "trait") from error
    aggregate_ids = aggregates.ensure(
        tx, {uuid for target in write.providers.values() for uuid in target.aggregates or ()}
    )
    return NameIds(classes, trait_ids, aggregate_ids)


def _unknown_name(write: TreeWrite, key: str, name: str, what: str) -> TreeMalformed:
    position = next(
        number
        for number, target in enumerate(write.providers.values())
        if name in (getattr(target, key) or ())
    )
    path = ("providers", position, key) if key == "traits" else ("providers", position, key, name)
    return TreeMalformed(
        f"There is no standard {what} {name}; names of others begin with CUSTOM_.", *path
    )


def _claim_path(write: TreeWrite, name: str) -> tuple[str, ...]:
    return next(
        ("allocations", item.uuid, "allocations", provider, "resources", name)
        for item in write.holdings.values()
        for provider, amounts in item.amounts.items()
        if name in amounts
    )
