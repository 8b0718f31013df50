"""A placement service made of dictionaries: what microversion 1.39 must answer, and then show.

Each method is one request. It gives the errors that the request may be refused with, any of them
where the order of checks is open, and has changed the model only if there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Errors = frozenset[tuple[int, str]]
Placed = Mapping[str, Mapping[str, int]]
"""Provider -> resource class -> amount."""

OK: Final[Errors] = frozenset()
_UNDEFINED: Final = "placement.undefined_code"
_CONCURRENT: Final = "placement.concurrent_update"


def _error(status: int, code: str = _UNDEFINED) -> Errors:
    return frozenset({(status, code)})


_NOT_FOUND: Final = _error(404)
_BAD: Final = _error(400)
_REFUSED: Final = _error(409)
_STALE: Final = _error(409, _CONCURRENT)
_IN_USE: Final = _error(409, "placement.inventory.inuse")


@dataclass(frozen=True)
class Record:
    """One inventory, all fields."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2147483647
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> float:
        return (self.total - self.reserved) * self.allocation_ratio

    @property
    def is_valid(self) -> bool:
        return int(self.capacity) >= 0

    def suits(self, amount: int) -> bool:
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


@dataclass
class Provider:
    name: str
    parent: str | None
    generation: int = 0
    inventories: dict[str, Record] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Consumer:
    generation: int
    project: str
    user: str
    type: str
    allocations: Placed


@dataclass(frozen=True)
class Entry:
    """What a request wants one consumer to be. `generation` is the one that it expects."""

    allocations: Placed
    generation: int | None
    project: str
    user: str
    type: str


class Model:
    """`traits` and `classes`: the names that there are, of which custom ones come and go."""

    def __init__(self, traits: Iterable[str], classes: Iterable[str]) -> None:
        self.providers: dict[str, Provider] = {}
        self.consumers: dict[str, Consumer] = {}
        self.traits = set(traits)
        self.classes = set(classes)

    # What there is to see.

    def root(self, uuid: str) -> str:
        parent = self.providers[uuid].parent
        return uuid if parent is None else self.root(parent)

    def subtree(self, uuid: str) -> set[str]:
        children = [child for child, provider in self.providers.items() if provider.parent == uuid]
        return {uuid}.union(*(self.subtree(child) for child in children))

    def used(self, provider: str, name: str, without: Iterable[str] = ()) -> int:
        return sum(
            consumer.allocations.get(provider, {}).get(name, 0)
            for uuid, consumer in self.consumers.items()
            if uuid not in without
        )

    def with_room(self, name: str, amount: int) -> set[str]:
        """The providers that could give so much more of a class."""
        return {
            uuid
            for uuid, provider in self.providers.items()
            if (record := provider.inventories.get(name)) is not None
            and record.suits(amount)
            and self.used(uuid, name) + amount <= record.capacity
        }

    def usages_of_project(self, project: str) -> dict[str, dict[str, int]]:
        shown: dict[str, dict[str, int]] = {}
        for consumer in self.consumers.values():
            if consumer.project != project:
                continue
            usages = shown.setdefault(consumer.type, {"consumer_count": 0})
            usages["consumer_count"] += 1
            for resources in consumer.allocations.values():
                for name, amount in resources.items():
                    usages[name] = usages.get(name, 0) + amount
        return shown

    # Providers.

    def create_provider(self, uuid: str, name: str, parent: str | None) -> Errors:
        errors = self._name_taken(uuid, name)
        if parent is not None and parent not in self.providers:
            errors |= _BAD
        if not errors:
            self.providers[uuid] = Provider(name, parent)
        return errors

    def update_provider(self, uuid: str, name: str, parent: str | None) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        errors = self._name_taken(uuid, name)
        if parent is not None and (parent not in self.providers or parent in self.subtree(uuid)):
            errors |= _BAD
        if not errors:
            self.providers[uuid].name = name
            self.providers[uuid].parent = parent
        return errors

    def _name_taken(self, uuid: str, name: str) -> Errors:
        others = (provider for key, provider in self.providers.items() if key != uuid)
        taken = any(other.name == name for other in others)
        return _error(409, "placement.duplicate_name") if taken else OK

    def delete_provider(self, uuid: str) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        if len(self.subtree(uuid)) > 1:
            return _error(409, "placement.resource_provider.cannot_delete_parent")
        if any(uuid in consumer.allocations for consumer in self.consumers.values()):
            return _error(409, "placement.resource_provider.inuse")
        del self.providers[uuid]
        return OK

    # Inventories.

    def _changing(self, uuid: str, generation: int) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        return OK if generation == self.providers[uuid].generation else _STALE

    def _in_use(self, uuid: str, gone: Iterable[str]) -> bool:
        return any(self.used(uuid, name) for name in gone)

    def replace_inventories(
        self, uuid: str, generation: int, records: Mapping[str, Record]
    ) -> Errors:
        if errors := self._changing(uuid, generation):
            return errors
        provider = self.providers[uuid]
        if not all(record.is_valid for record in records.values()):
            return _BAD
        if not records.keys() <= self.classes:
            return _BAD
        if self._in_use(uuid, provider.inventories.keys() - records.keys()):
            return _IN_USE
        provider.inventories = dict(records)
        provider.generation += 1
        return OK

    def add_inventory(self, uuid: str, name: str, record: Record) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        if name not in self.classes or not record.is_valid:
            return _BAD
        provider = self.providers[uuid]
        if name in provider.inventories:
            return _STALE
        provider.inventories[name] = record
        provider.generation += 1
        return OK

    def update_inventory(self, uuid: str, generation: int, name: str, record: Record) -> Errors:
        if errors := self._changing(uuid, generation):
            return errors
        provider = self.providers[uuid]
        if not record.is_valid:
            return _BAD
        if name not in self.classes:
            return _NOT_FOUND
        if name not in provider.inventories:
            return _BAD
        provider.inventories[name] = record
        provider.generation += 1
        return OK

    def delete_inventory(self, uuid: str, name: str) -> Errors:
        if uuid not in self.providers or name not in self.providers[uuid].inventories:
            return _NOT_FOUND
        if self._in_use(uuid, [name]):
            return _STALE
        del self.providers[uuid].inventories[name]
        self.providers[uuid].generation += 1
        return OK

    def delete_inventories(self, uuid: str) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        provider = self.providers[uuid]
        if self._in_use(uuid, provider.inventories):
            return _IN_USE
        provider.inventories = {}
        provider.generation += 1
        return OK

    # Traits, aggregates, and names.

    def replace_traits(self, uuid: str, generation: int, traits: frozenset[str]) -> Errors:
        if errors := self._changing(uuid, generation):
            return errors
        if not traits <= self.traits:
            return _BAD
        provider = self.providers[uuid]
        provider.generation += traits != provider.traits
        provider.traits = traits
        return OK

    def delete_traits(self, uuid: str) -> Errors:
        if uuid not in self.providers:
            return _NOT_FOUND
        provider = self.providers[uuid]
        provider.generation += bool(provider.traits)
        provider.traits = frozenset()
        return OK

    def replace_aggregates(self, uuid: str, generation: int, aggregates: frozenset[str]) -> Errors:
        if errors := self._changing(uuid, generation):
            return errors
        self.providers[uuid].aggregates = aggregates
        self.providers[uuid].generation += 1
        return OK

    def delete_trait(self, name: str) -> Errors:
        if name not in self.traits:
            return _NOT_FOUND
        if any(name in provider.traits for provider in self.providers.values()):
            return _REFUSED
        self.traits.remove(name)
        return OK

    def delete_class(self, name: str) -> Errors:
        if name not in self.classes:
            return _NOT_FOUND
        if any(name in provider.inventories for provider in self.providers.values()):
            return _REFUSED
        self.classes.remove(name)
        return OK

    # Allocations.

    def write_allocations(self, entries: Mapping[str, Entry]) -> Errors:
        stock = {uuid: provider.inventories for uuid, provider in self.providers.items()}
        errors = self._check(entries, stock)
        if not errors:
            for uuid in self._raised(entries):
                self.providers[uuid].generation += 1
            self._apply(entries)
        return errors

    def delete_allocations(self, consumer: str) -> Errors:
        if consumer not in self.consumers:
            return _NOT_FOUND
        del self.consumers[consumer]
        return OK

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Record]]],
        entries: Mapping[str, Entry],
    ) -> Errors:
        for uuid, (generation, _) in inventories.items():
            if uuid not in self.providers:
                return _error(400, "placement.resource_provider.not_found")
            if self.providers[uuid].generation != generation:
                return _STALE
        wanted = {uuid: records for uuid, (_, records) in inventories.items()}
        interim = {
            uuid: {**provider.inventories, **wanted.get(uuid, {})}
            for uuid, provider in self.providers.items()
        }
        named = {name for records in wanted.values() for name in records}
        errors = self._check(entries, interim, named)
        if errors:
            return errors
        before = dict(self.consumers)
        raised = self._raised(entries)
        self._apply(entries)
        for uuid, records in wanted.items():
            if self._in_use(uuid, self.providers[uuid].inventories.keys() - records.keys()):
                self.consumers = before
                return _IN_USE
        for uuid in raised:
            self.providers[uuid].generation += 1
        for uuid, records in wanted.items():
            self.providers[uuid].inventories = dict(records)
            self.providers[uuid].generation += 1 + bool(records)
        return OK

    def _check(
        self,
        entries: Mapping[str, Entry],
        stock: Mapping[str, Mapping[str, Record]],
        names: Iterable[str] = (),
    ) -> Errors:
        for uuid, entry in entries.items():
            present = self.consumers.get(uuid)
            if entry.generation != (present.generation if present else None):
                return _STALE
        asked = [
            (provider, name, amount)
            for entry in entries.values()
            for provider, resources in entry.allocations.items()
            for name, amount in resources.items()
        ]
        if any(provider not in self.providers for provider, _, _ in asked):
            return _BAD
        if not {name for _, name, _ in asked}.union(names) <= self.classes:
            return _BAD
        sums: dict[tuple[str, str], int] = {}
        for provider, name, amount in asked:
            record = stock[provider].get(name)
            if record is None or not record.suits(amount):
                return _REFUSED
            others = self.used(provider, name, without=entries)
            sums[provider, name] = sums.get((provider, name), others) + amount
            total = sums[provider, name]
            if total > record.capacity and total > self.used(provider, name):
                return _REFUSED
        return OK

    def _raised(self, entries: Mapping[str, Entry]) -> set[str]:
        """Providers named, and those that consumers with an empty set leave."""
        raised: set[str] = set()
        for uuid, entry in entries.items():
            if entry.allocations:
                raised |= entry.allocations.keys()
            elif uuid in self.consumers:
                raised |= self.consumers[uuid].allocations.keys()
        return raised

    def _apply(self, entries: Mapping[str, Entry]) -> None:
        for uuid, entry in entries.items():
            present = self.consumers.pop(uuid, None)
            if entry.allocations:
                self.consumers[uuid] = Consumer(
                    present.generation + 1 if present else 1,
                    entry.project,
                    entry.user,
                    entry.type,
                    entry.allocations,
                )


def as_json(entry: Entry) -> dict[str, Any]:
    return {
        "allocations": {
            provider: {"resources": dict(resources)}
            for provider, resources in entry.allocations.items()
        },
        "consumer_generation": entry.generation,
        "project_id": entry.project,
        "user_id": entry.user,
        "consumer_type": entry.type,
    }
