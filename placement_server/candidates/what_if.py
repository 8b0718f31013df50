"""Suppositions about a fleet, and the trees that they touch, as they are after them.

Changes are made one after the other on the rows of these trees; all together then become one new
state of a copy of the index.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatchmethod
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates import sizes
from placement_server.candidates.errors import CandidatesError
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.writer import IndexWriter
from placement_server.candidates.limits import Account
from placement_server.store.allocations import claim_check
from placement_server.store.allocations.claim_check import (
    KnownInventory,
    ProviderRequest,
    RequestedAllocations,
)
from placement_server.store.changes.snapshot import InventoryRow, ProviderRow, TreeRows
from placement_server.store.errors import AllocationRefused, CapacityExceeded, ConstraintViolated
from placement_server.store.providers.capacity import reserved_is_valid, usable
from placement_server.store.records import InventoryRecord

MOST_ADDED: Final = 10_000
"""Providers that the suppositions of one request may add."""

Path = tuple[str | int, ...]


class SupposedInventory(Struct, frozen=True):
    """A provider has this inventory of a class; what is used of it stays."""

    provider: str
    resource_class: str
    record: InventoryRecord


class SupposedTraits(Struct, frozen=True):
    """A provider has these traits and no others."""

    provider: str
    traits: tuple[str, ...]


class RemoveTree(Struct, frozen=True):
    """The tree of a root is gone, with all that is allocated in it."""

    root: str


class AddTree(Struct, frozen=True):
    """There are so many more trees like that of a root, of which nothing is used."""

    like: str
    copies: int


class Release(Struct, frozen=True):
    """A consumer holds nothing any longer."""

    consumer: str


class SupposedAllocation(Struct, frozen=True):
    """Another consumer holds this: amounts by provider and class."""

    allocations: Mapping[str, Mapping[str, int]]


Supposition = (
    SupposedInventory | SupposedTraits | RemoveTree | AddTree | Release | SupposedAllocation
)


class SuppositionError(CandidatesError):
    """Something that cannot be supposed.

    :param path: where in the supposition what is wrong is.
    :ivar position: the number of the supposition in the request.
    """

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.position = 0


class InvalidSupposition(SuppositionError):
    """A supposition is malformed, or names a class or trait that does not exist."""


class UnknownInSupposition(SuppositionError):
    """A supposition names a provider or consumer that does not exist."""


class ImpossibleSupposition(SuppositionError):
    """The fleet does not have what a supposition claims."""


Holding = tuple[int, int, int]
"""What a consumer holds of one inventory: provider id, class id, amount."""

_Rows = dict[int, ProviderRow]
"""The providers of one tree by id, ascending."""
# Changes between two looks at the clock.
_BETWEEN_TICKS: Final = 64


class SupposedTrees:
    """Trees of one state of the index with suppositions made true in them.

    :param held_allocations: what the consumers to be released hold, as of the same moment as
        the index.
    :param account: counts the rows that are kept.
    :ivar origin: that state.
    :param stored_ratio: an allocation ratio as the database returns it.
    :param reserved_may_equal_total: whether an inventory may reserve all that it has.
    """

    def __init__(
        self,
        index: Index,
        held_allocations: Mapping[str, Sequence[Holding]],
        account: Account,
        *,
        stored_ratio: Callable[[float], float] = float,
        reserved_may_equal_total: bool = True,
    ) -> None:
        self.origin = index
        self._ids = index.columns.provider_id.view()[: index.size]
        self._held_allocations = dict(held_allocations)
        self._account = account
        self._stored_ratio = stored_ratio
        self._reserved_may_equal_total = reserved_may_equal_total
        self._trees: dict[int, _Rows | None] = {}
        self._counted_sizes: dict[int, int] = {}
        self._places = self._places_held()
        self._added_providers: dict[str, tuple[int, int]] = {}
        self._next_id = int(self._ids.max(initial=0)) + 1
        self._copies: Counter[str] = Counter()

    def make_all(self, suppositions: Sequence[Supposition], tick: Callable[[], None]) -> None:
        """Make suppositions true, in order.

        :param tick: called now and then; may raise.
        :raises SuppositionError: one cannot be made; it has its position.
        """
        for position, supposition in enumerate(suppositions):
            if position % _BETWEEN_TICKS == 0:
                tick()
            try:
                self._make(supposition)
            except SuppositionError as error:
                error.position = position
                raise

    def index(self) -> Index:
        """Return a copy of the index with the trees as they are now."""
        if not self._trees:
            return self.origin
        if any(rows is not None for rows in self._trees.values()):
            # Only what something is appended to is copied.
            inventories = sum(len(view.slot) for view in self.origin.classes.values())
            self._account.take(sizes.index_copy(self.origin.size, inventories))
        changed_trees = {
            root_id: None if rows is None else TreeRows(root_id, tuple(rows.values()))
            for root_id, rows in self._trees.items()
        }
        return IndexWriter.on_copy(self.origin).apply(changed_trees)

    @singledispatchmethod
    def _make(self, supposition: Supposition) -> None:
        raise TypeError(f"{supposition!r} is not a supposition")

    @_make.register
    def _set_inventory(self, supposition: SupposedInventory) -> None:
        row = self._provider(supposition.provider, "provider")
        class_id = self.origin.names.class_ids.get(supposition.resource_class)
        if class_id is None:
            raise InvalidSupposition(
                f"There is no resource class {supposition.resource_class}.", ("resource_class",)
            )
        record = supposition.record
        ratio = self._stored_ratio(record.allocation_ratio)
        if not reserved_is_valid(
            record.total, record.reserved, ratio, may_equal_total=self._reserved_may_equal_total
        ):
            raise InvalidSupposition(
                f"{record.reserved} reserved of {record.total} {supposition.resource_class} with "
                f"an allocation ratio of {record.allocation_ratio:g} leave no capacity.",
                ("reserved",),
            )
        others = [entry for entry in row.inventories if entry.resource_class_id != class_id]
        used = sum(entry.used for entry in row.inventories if entry.resource_class_id == class_id)
        others.append(
            InventoryRow(
                resource_class_id=class_id,
                total=record.total,
                reserved=record.reserved,
                min_unit=record.min_unit,
                max_unit=record.max_unit,
                step_size=record.step_size,
                allocation_ratio=ratio,
                capacity=usable(record.total, record.reserved, ratio),
                used=used,
            )
        )
        others.sort(key=attrgetter("resource_class_id"))
        self._put(replace(row, inventories=tuple(others)))

    @_make.register
    def _set_traits(self, supposition: SupposedTraits) -> None:
        row = self._provider(supposition.provider, "provider")
        trait_ids = self.origin.names.trait_ids
        for position, trait in enumerate(supposition.traits):
            if trait not in trait_ids:
                raise InvalidSupposition(f"There is no trait {trait}.", ("traits", position))
        ids = {trait_ids[name] for name in supposition.traits}
        self._put(replace(row, trait_ids=tuple(sorted(ids))))

    @_make.register
    def _remove_tree(self, supposition: RemoveTree) -> None:
        root_id = self._root(supposition.root)
        self._trees[root_id] = None
        self._account.give(self._counted_sizes.pop(root_id, 0))

    @_make.register
    def _add_tree(self, supposition: AddTree) -> None:
        rows = self._rows(self._root(supposition.like, "like"))
        added_count = len(self._added_providers) + len(rows) * supposition.copies
        if added_count > MOST_ADDED:
            raise InvalidSupposition(
                f"{supposition.copies} copies of {len(rows)} providers make {added_count} added "
                f"providers, the limit is {MOST_ADDED}.",
                ("copies",),
            )
        self._account.take(sizes.provider_rows(len(rows) * supposition.copies, 0))
        empty = [
            replace(row, inventories=tuple(replace(entry, used=0) for entry in row.inventories))
            for row in rows.values()
        ]
        for _ in range(supposition.copies):
            self._copies[supposition.like] += 1
            name = f"copy {self._copies[supposition.like]}"
            ids = {row.id: new_id for new_id, row in enumerate(empty, self._next_id)}
            self._next_id += len(empty)
            copies = [
                replace(
                    row,
                    id=ids[row.id],
                    uuid=str(uuid.uuid5(uuid.UUID(row.uuid), name)),
                    parent_id=None if row.parent_id is None else ids[row.parent_id],
                    root_id=ids[row.root_id],
                )
                for row in empty
            ]
            self._trees[copies[0].root_id] = {copy.id: copy for copy in copies}
            self._added_providers |= {copy.uuid: (copy.root_id, copy.id) for copy in copies}

    @_make.register
    def _release(self, supposition: Release) -> None:
        holdings = [
            holding
            for holding in self._held_allocations.pop(supposition.consumer, ())
            # Those of trees that were removed are gone.
            if self._trees.get(self._places.get(holding[0], -1), {}) is not None
        ]
        if not holdings:
            raise UnknownInSupposition(f"Consumer {supposition.consumer} holds nothing.")
        for provider_id, class_id, amount in holdings:
            # Providers of trees that were left out of the index have no place.
            if provider_id in self._places:
                row = self._rows(self._places[provider_id])[provider_id]
                self._use(row, {class_id: -amount})

    @_make.register
    def _claim(self, supposition: SupposedAllocation) -> None:
        class_ids = self.origin.names.class_ids
        rows: dict[str, ProviderRow] = {}
        parts: list[ProviderRequest] = []
        for provider, resources in supposition.allocations.items():
            path = ("allocations", provider)
            rows[provider] = self._provider(provider, *path)
            for name in resources:
                if name not in class_ids:
                    raise InvalidSupposition(
                        f"There is no resource class {name}.", (*path, "resources", name)
                    )
            parts.append(ProviderRequest("", provider, rows[provider].id, resources))
        stock = {
            (row.id, entry.resource_class_id): KnownInventory(
                0, entry.min_unit, entry.max_unit, entry.step_size, entry.capacity, entry.used
            )
            for row in rows.values()
            for entry in row.inventories
        }
        try:
            claim_check.check(RequestedAllocations(parts, class_ids), stock, {})
        except (ConstraintViolated, CapacityExceeded) as error:
            at = ("allocations", error.uuid, "resources", error.resource_class)
            raise ImpossibleSupposition(str(error), at) from error
        except AllocationRefused as error:
            raise ImpossibleSupposition(str(error), ("allocations",)) from error
        for provider, resources in supposition.allocations.items():
            self._use(rows[provider], {class_ids[name]: n for name, n in resources.items()})

    # The rows that suppositions change.

    def _use(self, row: ProviderRow, more: Mapping[int, int]) -> None:
        inventories = tuple(
            replace(entry, used=entry.used + more.get(entry.resource_class_id, 0))
            for entry in row.inventories
        )
        self._put(replace(row, inventories=inventories))

    def _put(self, row: ProviderRow) -> None:
        self._rows(row.root_id)[row.id] = row

    def _provider(self, provider: str, *path: str) -> ProviderRow:
        place = self._place(provider)
        if place is None:
            raise UnknownInSupposition(f"There is no resource provider {provider}.", path)
        root_id, provider_id = place
        return self._rows(root_id)[provider_id]

    def _root(self, root: str, *path: str) -> int:
        """Return the id of a root."""
        row = self._provider(root, *path)
        if row.parent_id is not None:
            top = self._rows(row.root_id)[row.root_id]
            raise InvalidSupposition(
                f"Resource provider {root} is not the root of its tree, which is {top.uuid}.", path
            )
        return row.id

    def _places_held(self) -> dict[int, int]:
        """Return the ids of the roots of the providers that consumers to be released hold of."""
        ids = {
            provider_id
            for holdings in self._held_allocations.values()
            for provider_id, *_ in holdings
        }
        if not ids:
            return {}
        slots = np.flatnonzero(np.isin(self._ids, list(ids)))
        living_slots = self.origin.living_slots(slots)
        roots = self._ids[self.origin.root[living_slots]]
        return dict(zip(self._ids[living_slots].tolist(), roots.tolist(), strict=True))

    def _place(self, provider: str) -> tuple[int, int] | None:
        """Return the ids of the root and of a provider itself, None when it does not exist."""
        place = self._added_providers.get(provider)
        if place is None:
            slot = self.origin.slot_of(provider)
            if slot is None:
                return None
            place = int(self._ids[self.origin.root[slot]]), int(self._ids[slot])
        return None if self._trees.get(place[0], {}) is None else place

    def _rows(self, root_id: int) -> _Rows:
        """Return the rows of a tree that exists, to be changed."""
        rows = self._trees.get(root_id)
        if rows is None:
            slot = self.origin.root_slot(root_id)
            assert slot is not None
            tree = self.origin.tree(slot)
            inventories = sum(len(row.inventories) for row in tree.providers)
            size = sizes.provider_rows(len(tree.providers), inventories)
            self._account.take(size)
            self._counted_sizes[root_id] = size
            rows = self._trees[root_id] = {row.id: row for row in tree.providers}
        return rows
