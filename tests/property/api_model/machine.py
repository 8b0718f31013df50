"""Requests of all kinds, right and wrong ones, each sent to the application and told to the model.

A refused one must leave everything as it was.
"""

from __future__ import annotations

import sqlite3
import uuid
from copy import deepcopy
from typing import Any, ClassVar

import os_resource_classes
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.functional.api.wsgi_client import Answer, Client
from tests.property.api_model import views
from tests.property.api_model.model import OK, Entry, Errors, Model, Record, as_json
from tests.property.api_model.strategies import (
    AGGREGATES,
    AMOUNTS,
    CLASSES,
    CONSUMERS,
    HOW_MANY,
    NAMES,
    NOBODY,
    OFF,
    PLAIN_RECORDS,
    PROJECTS,
    RECORDS,
    STOCK,
    TRAITS,
)

_MOST_PROVIDERS = 4


class Machine(RuleBasedStateMachine):
    """One service for all runs, which each run leaves empty."""

    api: ClassVar[Client]
    beside: ClassVar[sqlite3.Connection]
    """A connection of its own to the database of the service."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model([TRAITS[0]], os_resource_classes.STANDARDS)
        self.created = 0
        self.compared: tuple[int, dict[str, Any]] | None = None

    def teardown(self) -> None:
        for consumer in list(self.model.consumers):
            self.compare(
                self.api.delete(f"/allocations/{consumer}"), self.model.delete_allocations(consumer)
            )
        while self.model.providers:
            for provider in list(self.model.providers):
                self.compare(
                    self.api.delete(f"/resource_providers/{provider}"),
                    self.model.delete_provider(provider),
                )
        for name in [name for name in self.model.traits if name.startswith("CUSTOM_")]:
            self.compare(self.api.delete(f"/traits/{name}"), self.model.delete_trait(name))
        for name in [name for name in self.model.classes if name.startswith("CUSTOM_")]:
            self.compare(
                self.api.delete(f"/resource_classes/{name}"), self.model.delete_class(name)
            )
        self.every_get_equals_the_model()

    @staticmethod
    def compare(answer: Answer, errors: Errors) -> None:
        if errors == OK:
            assert answer.status < 300, answer.body
        else:
            assert answer.status >= 400, f"must be one of {set(errors)}, is {answer.status}"
            assert (answer.status, answer.code) in errors, answer.body

    @invariant()
    def every_get_equals_the_model(self) -> None:
        """Compare, unless neither the model changed since nor was anything committed."""
        expected = views.expected(self.model, CONSUMERS, PROJECTS)
        state = self.commits_of_others(), expected
        if state == self.compared:
            return
        for path, must in expected.items():
            assert views.shown(self.api, path) == must, path
        # the model goes on changing what it shows
        self.compared = deepcopy(state)

    @classmethod
    def commits_of_others(cls) -> int:
        """A number that another connection changes by committing anything that is written."""
        ((version,),) = cls.beside.execute("PRAGMA data_version")
        return int(version)

    @initialize(
        stocks=st.lists(
            st.dictionaries(st.sampled_from(CLASSES[:2]), PLAIN_RECORDS, min_size=1),
            min_size=2,
            max_size=3,
        )
    )
    def begin(self, stocks: list[dict[str, Record]]) -> None:
        """With a few providers, each under the one before it, and a consumer on all of them, or
        nearly all requests would be about nothing."""
        parent = None
        for stock in stocks:
            parent = self.new_provider(f"first-{self.created}", parent)
            self.set_inventories(parent, 0, stock)
        placed = {
            uuid: dict.fromkeys(known.inventories, 1)
            for uuid, known in self.model.providers.items()
        }
        self.write({CONSUMERS[0]: Entry(placed, None, "p1", "u1", "INSTANCE")})

    # What requests are made of.

    def provider(self, data: st.DataObject) -> str:
        """Any provider, hardly ever one that does not exist."""
        known = sorted(self.model.providers)
        if not known or data.draw(st.integers(0, 19), label="nobody") == 7:
            return NOBODY
        return data.draw(st.sampled_from(known), label="provider")

    def resources(self, data: st.DataObject, provider: str) -> dict[str, int]:
        """Amounts of what the provider has, hardly ever of something else."""
        known = self.model.providers.get(provider)
        names = sorted(known.inventories) if known else []
        if not names or data.draw(st.integers(0, 19), label="other class") == 7:
            names = CLASSES[:3]
        return data.draw(
            st.dictionaries(st.sampled_from(names), AMOUNTS, min_size=1, max_size=2),
            label="resources",
        )

    def generation(self, provider: str, off: int) -> int:
        known = self.model.providers.get(provider)
        return (known.generation if known else 0) + off

    def entry(self, data: st.DataObject, consumer: str, off: int) -> Entry:
        present = self.model.consumers.get(consumer)
        generation = present.generation if present else None
        if off:
            generation = data.draw(st.sampled_from([None, 0, 7]), label="wrong generation")
        if present and data.draw(st.booleans(), label="resize"):
            # the same places: the likeliest to be accepted
            placed = {
                place: {name: data.draw(AMOUNTS, label="new amount") for name in resources}
                for place, resources in present.allocations.items()
            }
        else:
            places = {self.provider(data) for _ in range(data.draw(HOW_MANY, label="places"))}
            placed = {place: self.resources(data, place) for place in sorted(places)}
        return Entry(
            placed,
            generation,
            data.draw(st.sampled_from(PROJECTS)),
            data.draw(st.sampled_from(["u1", "u2"])),
            data.draw(st.sampled_from(["INSTANCE", "MIGRATION"])),
        )

    # Providers.

    @rule(data=st.data(), name=st.sampled_from(NAMES), child=st.booleans())
    def create_provider(self, data: st.DataObject, name: str, child: bool) -> None:
        if len(self.model.providers) >= _MOST_PROVIDERS:
            return
        self.new_provider(name, self.provider(data) if child else None)

    def new_provider(self, name: str, parent: str | None) -> str:
        self.created += 1
        new = str(uuid.UUID(int=1000 + self.created))
        body = {"uuid": new, "name": name, "parent_provider_uuid": parent}
        self.compare(
            self.api.post("/resource_providers", body),
            self.model.create_provider(new, name, parent),
        )
        return new

    @rule(data=st.data(), name=st.sampled_from(NAMES), child=st.booleans())
    def update_provider(self, data: st.DataObject, name: str, child: bool) -> None:
        one = self.provider(data)
        parent = self.provider(data) if child else None
        if data.draw(st.booleans(), label="keep name") and one in self.model.providers:
            name = self.model.providers[one].name
        self.compare(
            self.api.put(
                f"/resource_providers/{one}", {"name": name, "parent_provider_uuid": parent}
            ),
            self.model.update_provider(one, name, parent),
        )

    @rule(data=st.data())
    def delete_provider(self, data: st.DataObject) -> None:
        one = self.provider(data)
        self.compare(self.api.delete(f"/resource_providers/{one}"), self.model.delete_provider(one))

    # Inventories.

    @rule(data=st.data(), records=STOCK, off=OFF)
    def replace_inventories(
        self, data: st.DataObject, records: dict[str, Record], off: int
    ) -> None:
        one = self.provider(data)
        self.set_inventories(one, self.generation(one, off), records)

    def set_inventories(self, one: str, generation: int, records: dict[str, Record]) -> None:
        body = {
            "resource_provider_generation": generation,
            "inventories": {name: vars(record) for name, record in records.items()},
        }
        self.compare(
            self.api.put(f"/resource_providers/{one}/inventories", body),
            self.model.replace_inventories(one, generation, records),
        )

    @rule(data=st.data(), name=st.sampled_from(CLASSES), record=RECORDS)
    def add_inventory(self, data: st.DataObject, name: str, record: Record) -> None:
        one = self.provider(data)
        self.compare(
            self.api.post(
                f"/resource_providers/{one}/inventories",
                {"resource_class": name, **vars(record)},
            ),
            self.model.add_inventory(one, name, record),
        )

    @rule(data=st.data(), name=st.sampled_from(CLASSES), record=RECORDS, off=OFF)
    def update_inventory(self, data: st.DataObject, name: str, record: Record, off: int) -> None:
        one = self.provider(data)
        self.set_inventory(one, self.generation(one, off), name, record)

    def set_inventory(self, one: str, generation: int, name: str, record: Record) -> None:
        self.compare(
            self.api.put(
                f"/resource_providers/{one}/inventories/{name}",
                {"resource_provider_generation": generation, **vars(record)},
            ),
            self.model.update_inventory(one, generation, name, record),
        )

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), total=st.integers(1, 3), more=st.integers(-1, 1))
    def shrink_below_use(self, data: st.DataObject, total: int, more: int) -> None:
        """And rewrite a consumer there with a bit less, the same, or a bit more."""
        consumer = data.draw(st.sampled_from(sorted(self.model.consumers)), label="consumer")
        held = self.model.consumers[consumer]
        place = data.draw(st.sampled_from(sorted(held.allocations)), label="place")
        name = data.draw(st.sampled_from(sorted(held.allocations[place])), label="class")
        self.set_inventory(place, self.generation(place, 0), name, Record(total))
        placed = {uuid: dict(resources) for uuid, resources in held.allocations.items()}
        placed[place][name] = max(1, placed[place][name] + more)
        self.write({consumer: Entry(placed, held.generation, "p1", "u1", "INSTANCE")})

    @rule(data=st.data(), name=st.sampled_from(CLASSES))
    def delete_inventory(self, data: st.DataObject, name: str) -> None:
        one = self.provider(data)
        self.compare(
            self.api.delete(f"/resource_providers/{one}/inventories/{name}"),
            self.model.delete_inventory(one, name),
        )

    @rule(data=st.data())
    def delete_inventories(self, data: st.DataObject) -> None:
        one = self.provider(data)
        self.compare(
            self.api.delete(f"/resource_providers/{one}/inventories"),
            self.model.delete_inventories(one),
        )

    # Traits, aggregates, names.

    @rule(data=st.data(), traits=st.frozensets(st.sampled_from(TRAITS)), off=OFF)
    def replace_traits(self, data: st.DataObject, traits: frozenset[str], off: int) -> None:
        one = self.provider(data)
        generation = self.generation(one, off)
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        self.compare(
            self.api.put(f"/resource_providers/{one}/traits", body),
            self.model.replace_traits(one, generation, traits),
        )

    @rule(data=st.data())
    def delete_traits(self, data: st.DataObject) -> None:
        one = self.provider(data)
        self.compare(
            self.api.delete(f"/resource_providers/{one}/traits"), self.model.delete_traits(one)
        )

    @rule(data=st.data(), aggregates=st.frozensets(st.sampled_from(AGGREGATES)), off=OFF)
    def replace_aggregates(self, data: st.DataObject, aggregates: frozenset[str], off: int) -> None:
        one = self.provider(data)
        generation = self.generation(one, off)
        body = {"resource_provider_generation": generation, "aggregates": sorted(aggregates)}
        self.compare(
            self.api.put(f"/resource_providers/{one}/aggregates", body),
            self.model.replace_aggregates(one, generation, aggregates),
        )

    @rule(name=st.sampled_from(TRAITS[1:3]))
    def make_trait(self, name: str) -> None:
        known = name in self.model.traits
        assert self.api.put(f"/traits/{name}").status == (204 if known else 201)
        self.model.traits.add(name)

    @rule(name=st.sampled_from(TRAITS[1:]))
    def delete_trait(self, name: str) -> None:
        self.compare(self.api.delete(f"/traits/{name}"), self.model.delete_trait(name))

    @rule()
    def make_class(self) -> None:
        known = "CUSTOM_GOLD" in self.model.classes
        assert self.api.put("/resource_classes/CUSTOM_GOLD").status == (204 if known else 201)
        self.model.classes.add("CUSTOM_GOLD")

    @rule(name=st.sampled_from(CLASSES[2:]))
    def delete_class(self, name: str) -> None:
        self.compare(self.api.delete(f"/resource_classes/{name}"), self.model.delete_class(name))

    # Allocations.

    @rule(data=st.data(), consumer=st.sampled_from(CONSUMERS), off=OFF)
    def write_one(self, data: st.DataObject, consumer: str, off: int) -> None:
        entry = self.entry(data, consumer, off)
        self.compare(
            self.api.put(f"/allocations/{consumer}", as_json(entry)),
            self.model.write_allocations({consumer: entry}),
        )

    @rule(
        data=st.data(),
        consumers=st.lists(st.sampled_from(CONSUMERS), min_size=2, max_size=3, unique=True),
        off=OFF,
    )
    def write_several(self, data: st.DataObject, consumers: list[str], off: int) -> None:
        self.write({consumer: self.entry(data, consumer, off) for consumer in consumers})

    def write(self, entries: dict[str, Entry]) -> None:
        self.compare(
            self.api.post(
                "/allocations", {consumer: as_json(entry) for consumer, entry in entries.items()}
            ),
            self.model.write_allocations(entries),
        )

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        """One consumer's allocations go to another one, as in a migration."""
        giver = data.draw(st.sampled_from(sorted(self.model.consumers)))
        taker = data.draw(
            st.sampled_from([consumer for consumer in CONSUMERS if consumer != giver])
        )
        held = self.model.consumers[giver]
        present = self.model.consumers.get(taker)
        entries = {
            giver: Entry({}, held.generation, "p1", "u1", "INSTANCE"),
            taker: Entry(
                held.allocations, present.generation if present else None, "p2", "u1", "MIGRATION"
            ),
        }
        self.write(entries)

    @rule(data=st.data())
    def delete_allocations(self, data: st.DataObject) -> None:
        known = sorted(self.model.consumers)
        consumer = data.draw(st.sampled_from(known * 9 + [NOBODY]), label="consumer")
        self.compare(
            self.api.delete(f"/allocations/{consumer}"), self.model.delete_allocations(consumer)
        )

    @rule(data=st.data(), off=OFF)
    def reshape_at_random(self, data: st.DataObject, off: int) -> None:
        listed = {self.provider(data): data.draw(STOCK, label="new stock")}
        consumers = data.draw(st.lists(st.sampled_from(CONSUMERS), max_size=2, unique=True))
        self.reshape(
            listed, {consumer: self.entry(data, consumer, 0) for consumer in consumers}, off
        )

    @rule(data=st.data(), off=OFF)
    def move_inventory(self, data: st.DataObject, off: int) -> None:
        """One class with all its allocations goes to another provider, or all but end do."""
        sources = [uuid for uuid, known in self.model.providers.items() if known.inventories]
        if not sources or len(self.model.providers) < 2:
            return
        source = data.draw(st.sampled_from(sorted(sources)), label="source")
        others = sorted(self.model.providers.keys() - {source})
        target = data.draw(st.sampled_from(others), label="target")
        stock = {end: dict(self.model.providers[end].inventories) for end in (source, target)}
        name = data.draw(st.sampled_from(sorted(stock[source])), label="class")
        stock[target][name] = stock[source].pop(name)
        entries = {}
        for uuid_, consumer in self.model.consumers.items():
            placed = {place: dict(held) for place, held in consumer.allocations.items()}
            amount = placed.get(source, {}).pop(name, 0)
            if not amount or data.draw(st.integers(0, 9), label="forgotten") == 0:
                continue
            there = placed.setdefault(target, {})
            there[name] = there.get(name, 0) + amount
            entries[uuid_] = Entry(
                {place: held for place, held in placed.items() if held},
                consumer.generation,
                consumer.project,
                consumer.user,
                consumer.type,
            )
        self.reshape(stock, entries, off)

    def reshape(
        self, stock: dict[str, dict[str, Record]], entries: dict[str, Entry], off: int
    ) -> None:
        inventories = {
            resource_class: (self.generation(resource_class, off), stock[resource_class])
            for resource_class in stock
        }
        body: dict[str, Any] = {
            "inventories": {
                uuid: {
                    "resource_provider_generation": generation,
                    "inventories": {name: vars(record) for name, record in records.items()},
                }
                for uuid, (generation, records) in inventories.items()
            },
            "allocations": {consumer: as_json(entry) for consumer, entry in entries.items()},
        }
        self.compare(self.api.post("/reshaper", body), self.model.reshape(inventories, entries))
