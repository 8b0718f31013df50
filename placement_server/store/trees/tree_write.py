"""Requests to replace a tree, and the reasons for which they are refused."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from placement_server.store.errors import Refused, Stale, StoreError
from placement_server.store.records import KEEP, InventoryRecord, Keep

# The most conflicts or providers that a sentence names; the lists have all.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ProviderWrite:
    """What a provider is to be like; `None` leaves inventories, traits or aggregates alone.

    :ivar generation: the one that it must have; `None` when any will do.
    """

    uuid: str
    name: str
    parent_uuid: str | None
    generation: int | None = None
    inventories: Mapping[str, InventoryRecord] | None = None
    traits: frozenset[str] | None = None
    aggregates: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class HoldingsWrite:
    """All that a consumer is to hold in the tree: amounts by provider and class.

    :ivar expected_generation: `None` for a consumer that must not exist yet.
    :ivar project_id: and ``user_id``: `None` leaves the stored ones.
    """

    uuid: str
    amounts: Mapping[str, Mapping[str, int]]
    expected_generation: int | None
    project_id: str | None = None
    user_id: str | None = None
    consumer_type: str | Literal[Keep.KEEP] | None = KEEP


@dataclass(frozen=True, slots=True)
class TreeWrite:
    """The request to replace a tree.

    :ivar providers: by uuid, in the order of the request.
    :ivar tags: the tags of which the tree must have one; `None` when it must not exist yet.
    """

    root_uuid: str
    providers: Mapping[str, ProviderWrite]
    absent: Sequence[str]
    holdings: Mapping[str, HoldingsWrite]
    tags: Container[str] | None


class Reason(Enum):
    """Why a part of a request contradicts what is stored."""

    INVENTORY_IN_USE = "inventory_in_use"
    PROVIDER_IN_USE = "provider_in_use"
    PROVIDER_HAS_CHILDREN = "provider_has_children"
    PROVIDER_ELSEWHERE = "provider_in_another_tree"
    NAME_TAKEN = "name_taken"
    CONSUMER_GENERATION = "consumer_generation"
    NO_INVENTORY = "no_inventory"
    CONSTRAINT = "inventory_constraint"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class TreeContradiction:
    """One contradiction.

    :ivar requested_amount: the amount that a consumer has or is to have.
    :ivar free: the amount that it could have.
    """

    reason: Reason
    detail: str
    provider: str | None = None
    resource_class: str | None = None
    consumer: str | None = None
    requested_amount: int | None = None
    free: int | None = None


class TreeMalformed(StoreError):
    """A request that no state of the database allows.

    :ivar path: the keys and positions that lead to the fault in the body of the request.
    """

    def __init__(self, detail: str, *path: str | int) -> None:
        super().__init__(detail)
        self.path = path


class TreeConflicts(Refused):
    """A request that contradicts what is stored, in each of these ways."""

    def __init__(self, conflicts: Sequence[TreeContradiction]) -> None:
        super().__init__(" ".join(conflict.detail for conflict in conflicts[:_SHOWN]))
        self.conflicts = tuple(conflicts)


class TreeChanged(Stale):
    """A request for another state of a tree, or of a provider of another tree, than the stored one.

    :ivar generations: generations by uuid: of the tree's providers, or of the others.
    :ivar tag: the present tag of the tree; `None` when it does not exist.
    """

    def __init__(self, detail: str, moved_generations: Mapping[str, int], tag: str | None) -> None:
        super().__init__(detail)
        self.generations = moved_generations
        self.tag = tag


class GenerationRequired(Stale):
    """A request that takes providers from other trees without naming their generations."""

    def __init__(self, moved_generations: Mapping[str, int]) -> None:
        uuids = ", ".join(list(moved_generations)[:_SHOWN])
        super().__init__(
            f"The resource providers {uuids} are in other trees: name the generation of each, "
            "with which it is to be taken from there."
        )
        self.generations = moved_generations
