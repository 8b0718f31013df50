"""Requests about providers: their trees, inventories, traits and aggregates."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.property.api_model.model import Entry, Record
from tests.property.api_model.service import Service
from tests.property.api_model.strategies import (
    AGGREGATES,
    CLASSES,
    NAMES,
    OFF,
    RECORDS,
    STOCK,
    TRAITS,
)

_MOST_PROVIDERS = 4


class ProviderRules(Service):
    # Providers.

    @rule(data=st.data(), name=st.sampled_from(NAMES), child=st.booleans())
    def create_provider(self, data: st.DataObject, name: str, child: bool) -> None:
        if len(self.model.providers) >= _MOST_PROVIDERS:
            return
        self.new_provider(name, self.provider(data) if child else None)

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
