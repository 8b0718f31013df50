"""Suppositions about a fleet, each a change of it, and the errors of those that it cannot have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from placement_server.candidates.errors import CandidatesError
from placement_server.store.records import InventoryRecord

MOST_ADDED: Final = 10_000
"""Providers that the suppositions of one request may add."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SupposedInventory:
    """A provider has this inventory of a class; what is used of it stays."""

    provider: str
    resource_class: str
    record: InventoryRecord


@dataclass(frozen=True, slots=True)
class SupposedTraits:
    """A provider has these traits and no others."""

    provider: str
    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """The tree of a root is gone, with all that is allocated in it."""

    root: str


@dataclass(frozen=True, slots=True)
class AddTree:
    """There are so many more trees like that of a root, of which nothing is used."""

    like: str
    copies: int


@dataclass(frozen=True, slots=True)
class Release:
    """A consumer holds nothing any longer."""

    consumer: str


@dataclass(frozen=True, slots=True)
class SupposedAllocation:
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
