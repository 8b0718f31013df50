"""The store and a model of dictionaries, driven by the same writes."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import StoreError
from placement_server.store.providers import inventories, inventory_rows, providers
from placement_server.store.records import ANY, InventoryRecord
from placement_server.store.records import ConsumerWrite as Write
from placement_server.store.store import Store
from tests.fixtures.memory_stores import memory_store
from tests.property.store.store_model import (
    CLASSES,
    CONSUMERS,
    PROVIDERS,
    Model,
    ModelProvider,
    Refusal,
)

# Most of what is drawn must be possible, or the sequences stay short of anything interesting.
plain_records = st.builds(InventoryRecord, total=st.integers(4, 12))
odd_records = st.builds(
    InventoryRecord,
    total=st.integers(1, 12),
    reserved=st.integers(0, 3),
    min_unit=st.integers(1, 2),
    max_unit=st.sampled_from([4, 100]),
    step_size=st.sampled_from([1, 2]),
    allocation_ratio=st.sampled_from([1.0, 1.5, 0.4, 2.0]),
)
records = st.one_of(plain_records, plain_records, odd_records)
full_sets = st.fixed_dictionaries(dict.fromkeys(CLASSES, records))
record_sets = st.one_of(
    full_sets, full_sets, full_sets, st.dictionaries(st.sampled_from(CLASSES), records)
)
drifts = st.sampled_from([0] * 15 + [1, -1])
"""How far a writer's idea of a generation is off."""


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = self.open_store()
        self.model = Model()

    def open_store(self) -> Store:
        """A store with nothing but the standard names."""
        return memory_store()

    def teardown(self) -> None:
        self.store.close()

    def both(self, real: Any, modelled: Any) -> None:
        """Do it to the store and to the model; they must agree on whether it is possible."""
        try:
            modelled()
        except Refusal as refusal:
            expected = str(refusal)
        else:
            expected = "done"
        try:
            real()
        except StoreError as error:
            got, text = type(error).__name__, str(error)
        else:
            got, text = "done", ""
        assert got == expected, text

    @initialize(
        stocks=st.tuples(*[full_sets] * len(PROVIDERS)),
        parent=st.sampled_from([None, PROVIDERS[0]]),
    )
    def a_few_providers(
        self, stocks: tuple[dict[str, InventoryRecord], ...], parent: str | None
    ) -> None:
        for provider, stock in zip(PROVIDERS, stocks, strict=True):
            self.create(provider, None if provider == parent else parent)
            self.replace_inventory_with(provider, stock, 0)

    @rule(
        step=st.sampled_from(["create", "move", "delete"]),
        provider=st.sampled_from(PROVIDERS),
        parent=st.none() | st.sampled_from(PROVIDERS),
    )
    def change_structure(self, step: str, provider: str, parent: str | None) -> None:
        if step == "delete":
            self.delete(provider)
        elif step == "move":
            self.move(provider, parent)
        else:
            self.create(provider, parent)

    def create(self, provider: str, parent: str | None) -> None:
        def modelled() -> None:
            if parent == provider:
                raise Refusal("ParentIsSelf")
            if parent is not None and parent not in self.model.providers:
                raise Refusal("ParentNotFound")
            if provider in self.model.providers:
                raise Refusal("ProviderUuidTaken")
            self.model.providers[provider] = ModelProvider(parent=parent)

        self.both(
            lambda: self.store.write(
                providers.create, uuid=provider, name=provider, parent_uuid=parent
            ),
            modelled,
        )

    def move(self, provider: str, parent: str | None) -> None:
        def modelled() -> None:
            if provider not in self.model.providers:
                raise Refusal("ProviderNotFound")
            if parent == self.model.providers[provider].parent:
                return
            if parent is not None:
                if parent not in self.model.providers:
                    raise Refusal("ParentNotFound")
                ancestor: str | None = parent
                while ancestor is not None:
                    if ancestor == provider:
                        raise Refusal("ParentLoop")
                    ancestor = self.model.providers[ancestor].parent
            self.model.providers[provider].parent = parent

        self.both(
            lambda: self.store.write(
                providers.update,
                provider,
                name=provider,
                parent_uuid=parent,
                reparenting_allowed=True,
            ),
            modelled,
        )

    def delete(self, provider: str) -> None:
        def modelled() -> None:
            if provider not in self.model.providers:
                raise Refusal("ProviderNotFound")
            if any(p.parent == provider for p in self.model.providers.values()):
                raise Refusal("ProviderHasChildren")
            if any(key[0] == provider for c in self.model.consumers.values() for key in c.held):
                raise Refusal("ProviderHasAllocations")
            del self.model.providers[provider]

        self.both(lambda: self.store.write(providers.delete, provider), modelled)

    @rule(provider=st.sampled_from(PROVIDERS), wanted=record_sets, drift=drifts)
    def replace_inventory(
        self, provider: str, wanted: dict[str, InventoryRecord], drift: int
    ) -> None:
        self.replace_inventory_with(provider, wanted, drift)

    def replace_inventory_with(
        self, provider: str, wanted: dict[str, InventoryRecord], drift: int
    ) -> None:
        known = self.model.providers.get(provider)
        generation = (known.generation if known else 0) + drift

        def modelled() -> None:
            if known is None:
                raise Refusal("ProviderNotFound")
            if known.generation != generation:
                raise Refusal("ConcurrentUpdate")
            for record in wanted.values():
                if math.trunc((record.total - record.reserved) * record.allocation_ratio) < 0:
                    raise Refusal("ReservedTooLarge")
            if any(
                self.model.used(provider, name) for name in known.records.keys() - wanted.keys()
            ):
                raise Refusal("InventoryInUse")
            known.records = dict(wanted)
            known.generation += 1

        self.both(
            lambda: self.store.write(
                inventories.replace,
                provider,
                generation=generation,
                records=wanted,
                reserved_may_equal_total=True,
            ),
            modelled,
        )

    def draw_sets(self, data: st.DataObject) -> list[Write]:
        """Sets for some consumers, nearly always of what there is an inventory of."""
        chosen = data.draw(st.lists(st.sampled_from(CONSUMERS), min_size=1, unique=True))
        stocked = sorted(
            (uuid_, name) for uuid_, p in self.model.providers.items() for name in p.records
        )
        everything = [(uuid_, name) for uuid_ in PROVIDERS for name in CLASSES]
        writes = []
        for consumer in chosen:
            keys = data.draw(st.sampled_from([stocked or everything] * 9 + [everything]))
            pairs = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
            if data.draw(st.integers(0, 7)) == 7:
                pairs = []
            sets: dict[str, dict[str, int]] = {}
            for uuid_, name in pairs:
                sets.setdefault(uuid_, {})[name] = data.draw(st.integers(1, 4))
            known = self.model.consumers.get(consumer)
            expected: Any = known.generation if known else None
            if data.draw(st.booleans()):
                expected = ANY
            elif drift := data.draw(drifts):
                expected = (expected or 0) + drift
            writes.append(Write(consumer, sets, "p", "u", expected_generation=expected))
        return writes

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        writes = self.draw_sets(data)
        self.both(
            lambda: self.store.write(allocations.write, writes), lambda: self.model.write(writes)
        )

    @rule(provider=st.sampled_from(PROVIDERS), total=st.integers(1, 4))
    def shrink(self, provider: str, total: int) -> None:
        """Often below what is in use."""
        if known := self.model.providers.get(provider):
            wanted = {name: InventoryRecord(total) for name in known.records}
            self.replace_inventory_with(provider, wanted, 0)

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from([*sorted(self.model.consumers) * 3, CONSUMERS[0]]))

        def modelled() -> None:
            if self.model.consumers.pop(consumer, None) is None:
                raise Refusal("NoAllocations")

        self.both(lambda: self.store.write(allocations.delete, consumer), modelled)

    @rule(
        data=st.data(),
        wanted=st.dictionaries(
            st.sampled_from(PROVIDERS), st.tuples(drifts, record_sets), min_size=1
        ),
    )
    def reshape(
        self, data: st.DataObject, wanted: dict[str, tuple[int, dict[str, InventoryRecord]]]
    ) -> None:
        writes = self.draw_sets(data) if data.draw(st.booleans()) else []
        stock = {}
        for provider, (drift, new) in wanted.items():
            known = self.model.providers.get(provider)
            stock[provider] = ((known.generation if known else 0) + drift, new)
        self.both(
            lambda: self.store.write(reshape.apply, stock, writes),
            lambda: self.model.reshape(stock, writes),
        )

    @invariant()
    def the_states_are_equal(self) -> None:
        found = {provider.uuid: provider for provider in self.store.read(providers.find)}
        assert found.keys() == self.model.providers.keys()
        for provider, modelled in self.model.providers.items():
            stored, inventory = self.store.read(inventory_rows.of_provider, provider)
            assert stored.generation == modelled.generation
            assert stored.parent_uuid == modelled.parent
            assert stored.root_uuid == self.model.root(provider)
            assert {name: s.record for name, s in inventory.items()} == modelled.records
        for consumer in CONSUMERS:
            record, rows = self.store.read(allocations.of_consumer, consumer)
            known = self.model.consumers.get(consumer)
            assert (record and record.generation) == (known and known.generation)
            assert {(row.provider_uuid, row.resource_class): row.used for row in rows} == (
                known.held if known else {}
            )
        assert self.store.read(audit.audit) == []
