"""Values that the store hands out and takes in.

Times are aware and in UTC. Amounts are whole units of the resource class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Literal

MAX_INT: Final = 2147483647


class Keep(Enum):
    """Leave the stored value as it is."""

    KEEP = "keep"

    def __repr__(self) -> str:
        return "KEEP"


class AnyGeneration(Enum):
    """The writer does not say which consumer generation it has seen (microversions before 1.28)."""

    ANY = "any"

    def __repr__(self) -> str:
        return "ANY"


KEEP: Final = Keep.KEEP
ANY: Final = AnyGeneration.ANY


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider. ``id`` and ``root_id`` never leave the server."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    created_at: datetime
    updated_at: datetime | None
    root_id: int

    @property
    def last_modified(self) -> datetime:
        return self.updated_at or self.created_at


@dataclass(frozen=True, slots=True)
class InventoryRecord:
    """How much of a resource class a provider has, and in which portions it is given away."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class StoredInventory:
    """An inventory as it stands in the database."""

    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    last_modified: datetime

    @property
    def record(self) -> InventoryRecord:
        return InventoryRecord(
            self.total,
            self.reserved,
            self.min_unit,
            self.max_unit,
            self.step_size,
            self.allocation_ratio,
        )


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """What one consumer holds of one class at one provider."""

    provider_uuid: str
    provider_generation: int
    resource_class: str
    used: int
    consumer_uuid: str
    last_modified: datetime


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """Who holds allocations. ``consumer_type`` is None for a consumer without a type."""

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None


@dataclass(frozen=True, slots=True)
class ConsumerWrite:
    """The whole new set of allocations of one consumer; an empty set ends the consumer.

    ``expected_generation``: an int for a consumer that the writer knows, None for one that must
    not exist yet, ANY when the writer does not care.
    """

    uuid: str
    allocations: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    consumer_type: str | Literal[Keep.KEEP] | None = KEEP
    expected_generation: int | Literal[AnyGeneration.ANY] | None = ANY


@dataclass(frozen=True, slots=True)
class NameRow:
    """A trait or resource class by name."""

    id: int
    name: str
    last_modified: datetime


TraitRow = NameRow
ResourceClassRow = NameRow


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """What the consumers of one type use: how many they are, and the sums by resource class."""

    consumer_count: int
    resources: Mapping[str, int]
