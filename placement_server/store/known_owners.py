"""A cache of the ids of projects, users and consumer types."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

MOST_IDS: Final = 20_000
LIFETIME: Final = 600.0
"""Seconds after which all ids are forgotten: far less than unused rows are kept before deletion."""


class OwnerIds(NamedTuple):
    """Ids by name."""

    projects: dict[str, int]
    users: dict[str, int]
    types: dict[str, int]


class KnownOwners:
    """Ids that committed transactions have made, as far as this process has read them.

    Without them a claim takes 29 % more CPU, on SQLite 0.40 ms in place of 0.31.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._turn = threading.Lock()
        self._ids = OwnerIds({}, {}, {})

    @property
    def ids(self) -> OwnerIds:
        """The ids of all names that are known, not to be changed."""
        if time.monotonic() - self._since > LIFETIME:
            self.forget()
        return self._ids

    def learn(self, ids: OwnerIds) -> None:
        """Remember ids that are in the database, and no others when there are too many."""
        with self._turn:
            merged_ids = OwnerIds(*(old | new for old, new in zip(self._ids, ids, strict=True)))
            full = sum(map(len, merged_ids)) > MOST_IDS
            self._ids = ids if full else merged_ids

    def forget(self) -> None:
        """Forget all ids: they are old, or the database may have been replaced by another."""
        with self._turn:
            self._ids = OwnerIds({}, {}, {})
            self._since = time.monotonic()
