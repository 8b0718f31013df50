"""Samples of what the fleet has and uses: one a minute of the last day, one in ten before.

The table has about 2,300 rows at most, of a few hundred bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from placement_server.store.providers.inventory_sums import InventorySum
from placement_server.store.tables import use_samples
from placement_server.store.transaction import ReadTransaction, WriteTransaction

Sample = tuple[int, Mapping[str, tuple[int, int]]]
"""A minute since 1970, and used amount and capacity by resource class."""

DAY: Final = 24 * 60
"""Minutes of which all samples are kept."""
KEPT: Final = 7 * DAY
THINNED: Final = 10

_C: Final = use_samples.c
_EXISTS: Final = sa.select(_C.minute).where(_C.minute == sa.bindparam("minute"))
_DELETE: Final = sa.delete(use_samples).where(
    sa.or_(
        _C.minute < sa.bindparam("oldest"),
        # of a clock that was ahead, which would end each chart for as long
        _C.minute > sa.bindparam("newest"),
        sa.and_(_C.minute < sa.bindparam("thinned"), _C.minute % THINNED != 0),
    )
)
_READ: Final = sa.select(_C.minute, _C.document).order_by(_C.minute)


def exists(tx: ReadTransaction, minute: int) -> bool:
    """Check whether another worker has taken the sample of a minute."""
    return tx.execute(_EXISTS, {"minute": minute}).first() is not None


def write(tx: WriteTransaction, minute: int, sums: Sequence[InventorySum]) -> None:
    """Write the sample of a minute unless there is one; delete what is too old, or too new."""
    if exists(tx, minute):
        return
    document = json.dumps({entry.resource_class: (entry.used, entry.capacity) for entry in sums})
    tx.execute(sa.insert(use_samples), {"minute": minute, "document": document})
    ages = {"oldest": minute - KEPT, "newest": minute + DAY, "thinned": minute - DAY}
    tx.execute(_DELETE, ages)


def read(tx: ReadTransaction) -> list[Sample]:
    """Return all samples, the oldest first."""
    return [(minute, json.loads(document)) for minute, document in tx.execute(_READ)]
