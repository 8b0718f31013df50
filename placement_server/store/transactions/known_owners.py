"""Projects, users and consumer types that this process has met, and their ids."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    pass


class OwnerIds(NamedTuple):
    """Ids by name."""

    projects: dict[str, int]
    users: dict[str, int]
    types: dict[str, int]


class KnownOwners:
    """Ids that committed transactions have made, as far as this process has met them."""

    def __init__(self, *, limit: int = 20_000) -> None:
        self._limit = limit
        self._turn = threading.Lock()
        self._ids = OwnerIds({}, {}, {})

    def among(self, wanted: tuple[list[str], list[str], list[str]]) -> OwnerIds | None:
        """The ids of all these names, or None when one of them is not known."""
        ids = self._ids
        try:
            return OwnerIds(
                *(
                    {name: known[name] for name in names}
                    for known, names in zip(ids, wanted, strict=True)
                )
            )
        except KeyError:
            return None

    def learn(self, found: OwnerIds) -> None:
        """Remember what is in the database. Forgets everything when that becomes too much."""
        with self._turn:
            merged = OwnerIds(*(old | new for old, new in zip(self._ids, found, strict=True)))
            full = sum(map(len, merged)) > self._limit
            self._ids = found if full else merged

    def forget(self) -> None:
        """The database may have been replaced by another."""
        self._ids = OwnerIds({}, {}, {})
