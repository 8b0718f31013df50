"""Past changes: what a write changes of which consumer and provider, and who writes.

A transaction collects them and writes them with its other rows. A row is of one host and consumer,
and has a list of entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from placement_server.store.dialects.batches import Insertion, chunks

TOTAL: Final = "total"
RESERVED: Final = "reserved"
USED: Final = "used"
TRAIT: Final = "trait"
AGGREGATE: Final = "aggregate"
PROVIDER: Final = "provider"
NAME: Final = "name"
PARENT: Final = "parent"
KINDS: Final = [USED, TOTAL, RESERVED, TRAIT, AGGREGATE, PROVIDER, NAME, PARENT]

ENTRIES: Final = 200
"""Entries of one row at most: MySQL takes 64 KiB in a text."""

_COLUMNS: Final = (
    ("root_provider_id", "int"),
    ("root_provider_uuid", "text"),
    ("consumer_id", "text"),
    ("request_id", "text"),
    ("user_id", "text"),
    ("document", "text"),
)

Holdings = Mapping[tuple[int, int], int]
"""Amounts by provider id and class id."""
Value = int | str | None


USER_LENGTH: Final = 255


class Author(NamedTuple):
    """The request that writes, and its user."""

    request_id: str
    user_id: str


NOBODY: Final = Author("", "")
AUTHOR: Final[ContextVar[Author]] = ContextVar("author", default=NOBODY)
"""Who makes the request that this thread works on."""


_Entry = tuple[int, str | None, int | str, str, Value, Value]
"""Provider id, consumer, name, what it is, and its value before and after: a reshape makes tens of
thousands, and a named tuple takes three times as long."""


class PastChanges:
    """The changes of one transaction that are not written yet."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._providers: dict[int, tuple[str, int]] = {}

    def know(self, provider_id: int, uuid: str, root_id: int) -> None:
        """Take in what a provider is called and to which tree it belongs."""
        self._providers[provider_id] = uuid, root_id

    def add(
        self, provider_id: int, what: str, name: int | str, before: Value, after: Value
    ) -> None:
        """Add a change of a provider; one that leaves all as it was is none.

        :param name: of the trait or the like; the id of a class.
        """
        if before != after:
            self._entries.append((provider_id, None, name, what, before, after))

    def add_holdings(self, consumer: str, before: Holdings, after: Holdings) -> None:
        """Add what a consumer gets and gives back."""
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key, 0), after.get(key, 0)
            if old != new:
                provider_id, class_id = key
                self._entries.append((provider_id, consumer, class_id, USED, old, new))

    def unknown_providers(self) -> list[int]:
        """Return the ids of providers of which `know` has to be told before `take`."""
        return sorted({entry[0] for entry in self._entries} - self._providers.keys())

    def take(self, ended_trees: Mapping[int, str] = MappingProxyType({})) -> Insertion:
        """Return the rows to insert, and forget them. Providers that are not known are left out.

        :param ended_trees: the uuids of roots that end, by their ids: the databases may use an id
            again, and readers name the rows before by the next one with the uuid.
        """
        by_row: defaultdict[tuple[int, str | None], list[object]] = defaultdict(list)
        for provider_id, consumer, name, what, before, after in self._entries:
            if provider_id in self._providers:
                uuid, root_id = self._providers[provider_id]
                by_row[root_id, consumer].append((uuid, name, what, before, after))
        self._entries = []
        author = AUTHOR.get()
        return Insertion(
            "past_changes",
            _COLUMNS,
            [
                (
                    root_id,
                    ended_trees.get(root_id),
                    consumer,
                    *author,
                    orjson.dumps(part).decode(),
                )
                for (root_id, consumer), entries in by_row.items()
                for part in chunks(entries, ENTRIES)
            ],
        )
