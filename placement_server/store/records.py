"""Values that the store takes and returns.

Times are aware and in UTC. Amounts are whole units of the resource class.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Final, Literal, NamedTuple

from msgspec import Struct

MAX_INT: Final = 2147483647

Key = tuple[int, int]
"""Provider id and class id: the order in which all transactions lock inventories."""


class Keep(Enum):
    """A marker for a stored value that stays as it is."""

    KEEP = "keep"


class AnyGeneration(Enum):
    """A marker of writers that name no consumer generation (microversions before 1.28)."""

    ANY = "any"


KEEP: Final = Keep.KEEP
ANY: Final = AnyGeneration.ANY


class Provider(Struct, frozen=True):
    """A resource provider. `id` and `root_id` never leave the server."""

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


class InventoryRecord(Struct, frozen=True):
    """The amount of a resource class that a provider has, and the portions of claims on it."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0


class StoredInventory(Struct, frozen=True):
    """An inventory as stored in the database."""

    record: InventoryRecord
    last_modified: datetime


class AllocationRow(NamedTuple):
    """One allocation: an amount of one class of one provider, held by one consumer."""

    provider_uuid: str
    provider_generation: int
    resource_class: str
    used: int
    consumer_uuid: str
    last_modified: datetime


class ConsumerRecord(Struct, frozen=True):
    """The holder of allocations; `consumer_type` is `None` for one without a type."""

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None


class ConsumerWrite(Struct, frozen=True):
    """The whole new set of allocations of one consumer; an empty set deletes the consumer.

    :ivar expected_generation: an int for a consumer that the writer knows, `None` for one that must
        not exist yet, ANY when the writer names none.
    """

    uuid: str
    allocations: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    consumer_type: str | Literal[Keep.KEEP] | None = KEEP
    expected_generation: int | Literal[AnyGeneration.ANY] | None = ANY


class NameRow(Struct, frozen=True):
    """A trait or resource class by name."""

    id: int
    name: str
    last_modified: datetime


class TypeUsage(Struct, frozen=True):
    """The usage of the consumers of one type: their number, and the sums by resource class."""

    consumer_count: int
    resources: Mapping[str, int]
