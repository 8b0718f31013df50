"""Observer of the database, in SQL of its own, of states that must never be."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tests.integration.bank.world import World

_PAUSE = 0.1

_INVENTORIES = sa.text(
    "SELECT i.*, p.uuid AS provider, c.name AS class_name FROM inventories i "
    "JOIN resource_providers p ON p.id = i.resource_provider_id "
    "JOIN resource_classes c ON c.id = i.resource_class_id"
)
_ALLOCATIONS = sa.text(
    "SELECT a.consumer_id, a.used, p.uuid AS provider, c.name AS class_name FROM allocations a "
    "JOIN resource_providers p ON p.id = a.resource_provider_id "
    "JOIN resource_classes c ON c.id = a.resource_class_id"
)

Key = tuple[str, str]
"""Provider uuid and class name."""


@dataclass(frozen=True)
class Stock:
    """An inventory as a look found it. `counted` is the column `used`, if there is one."""

    capacity: int
    stamp: int
    counted: int | None


@dataclass
class Look:
    """One consistent view of the database."""

    stock: dict[Key, Stock] = field(default_factory=dict)
    sums: dict[Key, int] = field(default_factory=dict)
    held: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    providers: dict[str, int] = field(default_factory=dict)


def engine_for(url: str) -> sa.Engine:
    """One whose transactions see one moment."""
    if url.startswith("sqlite"):
        return sa.create_engine(url, poolclass=sa.NullPool)
    return sa.create_engine(url, poolclass=sa.NullPool, isolation_level="REPEATABLE READ")


def look(engine: sa.Engine) -> Look:
    """Raises DBAPIError when the database is away."""
    seen = Look()
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        for row in connection.execute(_INVENTORIES).mappings():
            key = row["provider"], row["class_name"]
            seen.stock[key] = Stock(_capacity(row), row["max_unit"], row.get("used"))
        for row in connection.execute(_ALLOCATIONS).mappings():
            key = row["provider"], row["class_name"]
            seen.sums[key] = seen.sums.get(key, 0) + row["used"]
            held = seen.held.setdefault(row["consumer_id"], {}).setdefault(row["provider"], {})
            held[row["class_name"]] = held.get(row["class_name"], 0) + row["used"]
        seen.consumers = _generations(connection, "consumers")
        seen.providers = _generations(connection, "resource_providers")
    return seen


def _generations(connection: sa.Connection, table: str) -> dict[str, int]:
    rows = connection.exec_driver_sql(f"SELECT uuid, generation FROM {table}")
    return {row.uuid: row.generation for row in rows}


def _capacity(row: Mapping[Any, Any]) -> int:
    usable: float = (row["total"] - row["reserved"]) * row["allocation_ratio"]
    return math.floor(usable)


def wrong_in(world: World, seen: Look) -> list[str]:
    """What is wrong in one look taken by itself."""
    problems = []
    for key in seen.stock.keys() | seen.sums.keys():
        provider, name = key
        used = seen.sums.get(key, 0)
        stock = seen.stock.get(key)
        if stock is None:
            problems.append(f"{used} {name} allocated of {provider}, which has no such inventory")
            continue
        if stock.counted is not None and stock.counted != used:
            problems.append(f"{name} of {provider}: {stock.counted} counted, {used} allocated")
        if used > stock.capacity and world.keeps_its_capacity(provider):
            problems.append(
                f"{name} of {provider}: {used} allocated of {stock.capacity}, "
                f"{used - stock.capacity} too many"
            )
    holders, recorded = seen.held.keys(), seen.consumers.keys()
    problems += [f"{holder} has allocations but no record" for holder in holders - recorded]
    problems += [f"{consumer} has a record but no allocations" for consumer in recorded - holders]
    return problems


def wrong_between(earlier: Look, later: Look) -> list[str]:
    """What must not change the way it did from one look to a later one."""
    problems = []
    for kind in ("consumers", "providers"):
        before, after = getattr(earlier, kind), getattr(later, kind)
        problems += [
            f"generation of {kind[:-1]} {uuid} went from {before[uuid]} to {after[uuid]}"
            for uuid in before.keys() & after.keys()
            if after[uuid] < before[uuid]
        ]
    for key in earlier.stock.keys() & later.stock.keys():
        if earlier.stock[key].stamp != later.stock[key].stamp:
            continue
        # the inventory is the very same record: only releases may have changed what is over
        limit = max(later.stock[key].capacity, earlier.sums.get(key, 0))
        if later.sums.get(key, 0) > limit:
            problems.append(
                f"{key[1]} of {key[0]} rose from {earlier.sums.get(key, 0)} to "
                f"{later.sums.get(key, 0)} with a capacity of {later.stock[key].capacity}"
            )
    return problems


class Observer:
    """Looks until it is told to stop, in a thread."""

    def __init__(self, url: str, world: World) -> None:
        self._engine = engine_for(url)
        self._world = world
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._observe, name="observer", daemon=True)
        self.looks = 0
        self.violations: list[str] = []
        self.stamps: set[int] = set()
        self.last = Look()
        self._thread.start()

    def stop(self) -> Look:
        """The last look of all, taken now."""
        self._stopping.set()
        self._thread.join()
        self._take()
        self._engine.dispose()
        return self.last

    def _observe(self) -> None:
        while not self._stopping.wait(_PAUSE):
            try:
                self._take()
            except sa.exc.DBAPIError:
                # the nemesis has the database
                continue

    def _take(self) -> None:
        seen = look(self._engine)
        self.looks += 1
        wrong = wrong_in(self._world, seen) + wrong_between(self.last, seen)
        self.violations += [problem for problem in wrong if problem not in self.violations]
        self.stamps |= {stock.stamp for stock in seen.stock.values()}
        self.last = seen
