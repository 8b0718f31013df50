"""All trees at once, from the rows of whole tables to columns.

Array operations do it: an object for each row, as for the few trees that change, would cost several
times what the driver takes to read the rows.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from placement_server.candidates.index.arrays import CAPACITY_BOUND, BoolArray, IntArray
from placement_server.candidates.index.class_columns import ClassColumns
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.set_table import SetTable, occurring
from placement_server.candidates.index.tree_shape import in_preorder
from placement_server.store.changes import snapshot
from placement_server.store.changes.snapshot import ProviderRow
from placement_server.store.transaction import ReadTransaction


class WholeTables(Struct, frozen=True):
    """All trees of a store.

    :param roots: the slots of the roots, by ascending provider id.
    :param left_out: the ids of the roots whose trees are left out as inconsistent.
    """

    columns: Columns
    roots: IntArray
    left_out: frozenset[int]


def read(tx: ReadTransaction) -> WholeTables:
    """Read every tree."""
    columns = Columns()
    with _collection_paused():
        roots, left_out = _append_providers(columns, snapshot.provider_rows(tx))
        slots = _Slots(columns.provider_id.view())
        _append_inventories(columns, slots, _inventories(tx))
        if tx.batches.comma_list:
            _append_joined_traits(columns, slots, snapshot.joined_trait_rows(tx))
        else:
            pairs = _integers(chain.from_iterable(snapshot.trait_rows(tx)))
            numbers = _numbers(columns.trait_sets, slots, pairs[::2], pairs[1::2])
            columns.trait_set.extend(numbers)
        _append_aggregates(columns, slots, snapshot.aggregate_rows(tx))
    return WholeTables(columns, roots, left_out)


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Let the garbage collector not look at the rows again and again while they become more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Slots:
    """The slots of providers, by id."""

    def __init__(self, provider_ids: IntArray) -> None:
        self.count = len(provider_ids)
        self._order = np.argsort(provider_ids, kind="stable")
        self._ids = provider_ids.take(self._order)

    def of(self, provider_ids: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the slots of providers, and which of the ids have one."""
        if not self.count:
            return np.zeros(len(provider_ids), np.int64), np.zeros(len(provider_ids), bool)
        places = np.minimum(np.searchsorted(self._ids, provider_ids), self.count - 1)
        return self._order.take(places), self._ids.take(places) == provider_ids


def _append_providers(columns: Columns, rows: Sequence[Any]) -> tuple[IntArray, frozenset[int]]:
    if not rows:
        return np.empty(0, dtype=np.int64), frozenset()
    ids, uuids, parents, roots = zip(*rows, strict=True)
    # Old databases may have roots that do not name themselves.
    root_ids = _integers(
        own if root is None and parent is None else root or 0
        for own, parent, root in zip(ids, parents, roots, strict=True)
    )
    provider_ids = _integers(ids)
    is_root = _integers(parent or 0 for parent in parents) == 0
    order = np.lexsort((provider_ids, root_ids))
    starts = np.flatnonzero(np.diff(root_ids.take(order), prepend=-1))
    sizes = np.diff(starts, append=len(order))
    firsts = order.take(starts)
    alone = (
        (sizes == 1) & is_root.take(firsts) & (provider_ids.take(firsts) == root_ids.take(firsts))
    )
    shapes = np.full(len(starts), columns.number_of_shape((-1,)), dtype=np.int32)
    above = np.full(len(order), -1, dtype=np.int64)
    is_kept = np.ones(len(starts), dtype=bool)
    for number in np.flatnonzero(~alone).tolist():
        start, stop = int(starts[number]), int(starts[number] + sizes[number])
        places = order[start:stop].tolist()
        root_id = int(root_ids[places[0]])
        tree = [ProviderRow(ids[at], uuids[at], parents[at], root_id) for at in places]
        in_order = in_preorder(root_id, tree)
        if not in_order:
            is_kept[number] = False
            continue
        by_id = {ids[at]: at for at in places}
        order[start:stop] = [by_id[row.id] for row, _parent in in_order]
        above[start:stop] = [parent for _row, parent in in_order]
        shapes[number] = columns.number_of_shape(tuple(above[start:stop].tolist()))
    of_kept = np.repeat(is_kept, sizes)
    left_out = frozenset(root_ids.take(firsts)[~is_kept].tolist())
    order, above, sizes, shapes = order[of_kept], above[of_kept], sizes[is_kept], shapes[is_kept]
    bases = np.cumsum(sizes) - sizes
    base = np.repeat(bases, sizes)
    columns.name_slots([uuids[at] for at in order.tolist()])
    columns.provider_id.extend(provider_ids.take(order))
    columns.parent.extend(np.where(above >= 0, base + above, -1))
    columns.root.extend(base)
    columns.shape.extend(np.repeat(shapes, sizes))
    ends = chain.from_iterable(columns.shapes[number].ends for number in shapes.tolist())
    columns.end.extend(base + (1 if (sizes == 1).all() else _integers(ends)))
    return bases, left_out


_INVENTORY = np.dtype(
    [
        *((name, np.int64) for name in ("provider", "class", "total", "reserved")),
        *((name, np.int64) for name in ("min", "max", "step")),
        ("ratio", np.float64),
        *((name, np.int64) for name in ("capacity", "used")),
    ]
)


def _inventories(tx: ReadTransaction) -> npt.NDArray[Any]:
    packed = snapshot.packed_inventories(tx)
    if packed is not None:
        return np.frombuffer(packed, dtype=_INVENTORY.newbyteorder(">")).astype(_INVENTORY)
    rows = snapshot.inventory_rows(tx)
    return np.fromiter(rows, dtype=_INVENTORY, count=len(rows))


def _append_inventories(columns: Columns, slots: _Slots, table: npt.NDArray[Any]) -> None:
    shown_capacity = (table["total"] - table["reserved"]) * table["ratio"]
    capacity = table["capacity"].clip(-CAPACITY_BOUND, CAPACITY_BOUND)
    stored = table["min"], table["max"], table["step"], capacity, shown_capacity, table["used"]
    slot, is_known = slots.of(table["provider"])
    order = np.lexsort((table["class"], slot))
    order = order[is_known.take(order)]
    slot, classes = slot.take(order), table["class"].take(order)
    columns.inventory_start.extend(np.cumsum(np.bincount(slot, minlength=slots.count)))
    columns.inventory_class.extend(classes)
    places = np.empty(len(order), dtype=np.int32)
    for class_id in occurring(classes).tolist():
        of_class = np.flatnonzero(classes == class_id)
        places[of_class] = np.arange(len(of_class))
        at = order.take(of_class)
        columns.classes[class_id] = of_one = ClassColumns()
        of_one.append(slot.take(of_class), *(values.take(at) for values in stored))
    columns.inventory_row.extend(places)


def _append_joined_traits(columns: Columns, slots: _Slots, rows: Sequence[Any]) -> None:
    """Append the sets of traits, each given as a text."""
    providers, texts = zip(*rows, strict=True) if rows else ((), ())
    intern = columns.trait_sets.intern
    numbers = {
        text: intern(tuple(sorted(map(int, text.split(","))))) for text in dict.fromkeys(texts)
    }
    slot, is_known = slots.of(np.array(providers, dtype=np.int64))
    sets = np.full(slots.count, intern(()), dtype=np.int64)
    sets[slot[is_known]] = _integers(map(numbers.__getitem__, texts))[is_known]
    columns.trait_set.extend(sets)


def _append_aggregates(columns: Columns, slots: _Slots, rows: Sequence[Any]) -> None:
    providers, members = zip(*rows, strict=True) if rows else ((), ())
    uuids = sorted(set(members))
    rank = {uuid: number for number, uuid in enumerate(uuids)}
    ids, ranks = np.array(providers, dtype=np.int64), _integers(map(rank.__getitem__, members))
    columns.aggregate_set.extend(_numbers(columns.aggregate_sets, slots, ids, ranks, uuids))


def _numbers(
    table: SetTable,
    slots: _Slots,
    provider_ids: IntArray,
    members: IntArray,
    names: Sequence[Any] | None = None,
) -> IntArray:
    """Return for each slot the number of its set.

    :param members: of the set of the provider in the same place.
    :param names: what stands for a member in the table; the member itself when None.
    """
    slot, is_known = slots.of(provider_ids)
    slot, members = slot[is_known], members[is_known]
    order = np.lexsort((members, slot))
    in_order = members.take(order).tolist()
    if names is not None:
        in_order = [names[member] for member in in_order]
    stops = np.cumsum(np.bincount(slot, minlength=slots.count)).tolist()
    sets = [tuple(in_order[start:stop]) for start, stop in pairwise((0, *stops))]
    # hosts of one kind have equal sets
    numbers = {members: table.intern(members) for members in dict.fromkeys(sets)}
    return _integers(map(numbers.__getitem__, sets))


def _integers(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
