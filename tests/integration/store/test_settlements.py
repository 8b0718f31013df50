"""The one statement that settles a write, against what it means, on every database."""

from __future__ import annotations

from datetime import datetime
from itertools import cycle, islice
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from placement_server.store.dialects.batches import InventoryUpdate, Rise
from placement_server.store.store import Store
from placement_server.store.tables import changes, inventories, resource_providers
from placement_server.store.transaction import USAGE, WriteTransaction
from tests.integration.store.conftest import new_provider

EARLIER = datetime(2020, 1, 1)
_I, _P = inventories.c, resource_providers.c


class Part(NamedTuple):
    """An inventory with its provider, and what a write wants of both.

    :ivar step: the step size that the amounts were checked against; 0: nothing is claimed.
    """

    capacity: int
    used: int
    min_unit: int = 2
    max_unit: int = 4
    step_size: int = 1
    delta: int = 0
    smallest: int = 2
    largest: int = 4
    step: int = 1
    is_raised: bool = True
    is_moved: bool = False

    def update(self, inventory_id: int, provider_id: int) -> InventoryUpdate:
        if not self.step:
            return InventoryUpdate(inventory_id, provider_id, 0, self.delta)
        bounds = (self.smallest, self.largest, self.step)
        return InventoryUpdate(inventory_id, provider_id, 0, self.delta, *bounds)

    @property
    def fits(self) -> bool:
        has_room = self.delta <= 0 or self.used + self.delta <= self.capacity
        is_allowed = self.min_unit <= self.smallest and self.largest <= self.max_unit
        return has_room and (not self.step or (is_allowed and self.step == self.step_size))


LAST_UNITS = Part(7, 3, delta=4)
FITTING = (
    LAST_UNITS,
    Part(2, 9, delta=0),
    Part(2, 9, delta=-3, is_raised=False),
    Part(2, 9, delta=-9, step=0),
    Part(7, 3, step_size=2, step=2, delta=2, is_raised=False),
)
OTHERS = {
    "all": LAST_UNITS,
    "not raised": LAST_UNITS._replace(is_raised=False),
    "too little": LAST_UNITS._replace(capacity=6),
    "larger unit": LAST_UNITS._replace(min_unit=3),
    "smaller unit": LAST_UNITS._replace(max_unit=3),
    "other step": LAST_UNITS._replace(step_size=2),
    "moved": LAST_UNITS._replace(is_moved=True),
    "over capacity": Part(2, 9),
    "given back": Part(2, 9, min_unit=9, max_unit=1, step_size=5, delta=-9, step=0),
}


@pytest.fixture(scope="module")
def providers(store: Store) -> list[tuple[int, int]]:
    """The ids of inventories of VCPU, each with that of its provider, in their order."""
    uuids = [new_provider(store, {"VCPU": 9}) for _ in range(11)]
    rows = (
        sa.select(_I.id, _P.id)
        .join(resource_providers, _P.id == _I.resource_provider_id)
        .where(_P.uuid.in_(uuids))
        .order_by(_P.id)
    )
    return store.read(lambda tx: [(row[0], row[1]) for row in tx.execute(rows)])


class Enough(Exception):
    """Undoes a transaction."""


@pytest.mark.parametrize("more", [0, 2, 10])
@pytest.mark.parametrize("last", OTHERS)
def test_what_fits_is_used_and_what_follows_is_done_once_all_fits(
    store: Store, providers: list[tuple[int, int]], last: str, more: int
) -> None:
    """In the words for one, for a few and for many."""
    parts = [*islice(cycle(FITTING), more), OTHERS[last]]
    ids = providers[: len(parts)]

    def settle(tx: WriteTransaction) -> None:
        for (inventory_id, provider_id), part in zip(ids, parts, strict=True):
            values = dict(list(part._asdict().items())[:5])
            tx.execute(sa.update(inventories).where(_I.id == inventory_id).values(values))
            tx.execute(
                sa.update(resource_providers)
                .where(_P.id == provider_id)
                .values(generation=5, updated_at=EARLIER)
            )
        updates = [part.update(*pair) for pair, part in zip(ids, parts, strict=True)]
        rises = [
            Rise(provider_id, 0 if part.is_moved else provider_id, part.is_raised)
            for (_, provider_id), part in zip(ids, parts, strict=True)
        ]
        settlement = tx.settle(updates, rises)

        fitting_count = sum(part.fits for part in parts)
        do_all_fit = fitting_count == len(parts)
        found_count = sum(not part.is_moved for part in parts) * do_all_fit
        assert settlement.changed_inventories == fitting_count
        assert settlement.found_providers == found_count
        is_recorded = found_count == len(parts)
        assert (settlement.change_id is not None) == is_recorded
        rows = sa.select(_I.used, _P.generation, _P.updated_at).join(
            resource_providers, _P.id == _I.resource_provider_id
        )
        for (inventory_id, _), part in zip(ids, parts, strict=True):
            used = part.used + part.delta * part.fits
            row = tx.execute(rows.where(_I.id == inventory_id)).one()
            is_raised = do_all_fit and part.is_raised and not part.is_moved
            assert tuple(row) == (used, 5 + is_raised, tx.now if is_raised else EARLIER)
        written = tx.execute(
            sa.select(changes.c.root_provider_id, changes.c.kind, changes.c.created_at)
            .where(changes.c.write_id == tx.write_id)
            .order_by(changes.c.root_provider_id)
        ).all()
        expected = [(rise.root_id, USAGE, tx.now) for rise in rises]
        assert [tuple(row) for row in written] == expected * is_recorded
        raise Enough

    with pytest.raises(Enough):
        store.write(settle)
