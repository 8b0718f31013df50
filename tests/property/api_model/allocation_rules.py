"""Requests about consumers and their allocations, and reshapes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.property.api_model.model import Entry, Record, as_json
from tests.property.api_model.service import Service
from tests.property.api_model.strategies import CONSUMERS, NOBODY, OFF, STOCK


class AllocationRules(Service):
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
