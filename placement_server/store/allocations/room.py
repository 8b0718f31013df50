"""Room on a few providers: what they have of some classes, what is used, and by how many."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import and_, bindparam, distinct, func, select

from placement_server.store.tables import allocations, inventories, resource_providers
from placement_server.store.transaction import ReadTransaction

_P: Final = resource_providers.c
_I: Final = inventories.c
_CONSUMERS: Final = (
    select(func.count(distinct(allocations.c.consumer_id)))
    .where(
        allocations.c.resource_provider_id == _I.resource_provider_id,
        allocations.c.resource_class_id == _I.resource_class_id,
    )
    .scalar_subquery()
)
_ROOM: Final = (
    select(
        _P.uuid,
        _P.name,
        _I.resource_class_id,
        _I.capacity,
        _I.used,
        _I.min_unit,
        _I.max_unit,
        _I.step_size,
        _CONSUMERS,
    )
    .select_from(
        resource_providers.outerjoin(
            inventories,
            and_(
                _I.resource_provider_id == _P.id,
                _I.resource_class_id.in_(bindparam("class_ids", expanding=True)),
            ),
        )
    )
    .where(_P.id.in_(bindparam("provider_ids", expanding=True)))
)


class Room(Struct, frozen=True):
    """What a provider has of one class.

    :param consumers: how many consumers hold some of it.
    """

    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int
    consumers: int

    @property
    def free(self) -> int:
        """The amount that nobody holds; 0 also where more is held than there is."""
        return max(0, self.capacity - self.used)

    def fits(self, amount: int) -> bool:
        """Check whether a claim may take an amount."""
        return self.used + amount <= self.capacity and self.unit_against(amount) is None

    def unit_against(self, amount: int) -> str | None:
        """Return the field of the inventory that forbids to claim an amount, were all free."""
        if amount < self.min_unit:
            return "min_unit"
        if amount > self.max_unit:
            return "max_unit"
        return "step_size" if amount % self.step_size else None


class RoomOfProvider(Struct, frozen=True):
    """The name of a provider, and its room by the id of the class."""

    name: str
    by_class: dict[int, Room]


def on_providers(
    tx: ReadTransaction, provider_ids: Collection[int], class_ids: Collection[int]
) -> dict[str, RoomOfProvider]:
    """Return the room of some classes on a few providers, by uuid; without those that are gone.

    It is one statement, so all of it belongs to one moment.
    """
    of_ids = {"provider_ids": sorted(provider_ids), "class_ids": sorted(class_ids)}
    room_of: dict[str, RoomOfProvider] = {}
    for uuid, name, class_id, *numbers in tx.execute(_ROOM, of_ids):
        provider = room_of.setdefault(uuid, RoomOfProvider(name, {}))
        if class_id is not None:
            provider.by_class[class_id] = Room(*map(int, numbers))
    return room_of
