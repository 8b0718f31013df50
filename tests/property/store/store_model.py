"""A model of the store in dictionaries, obviously right."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from placement_server.store.records import ANY, InventoryRecord
from placement_server.store.records import ConsumerWrite as Write

CLASSES = ("VCPU", "DISK_GB")
PROVIDERS = tuple(str(uuid.UUID(int=i + 1)) for i in range(3))
CONSUMERS = tuple(str(uuid.UUID(int=i + 100)) for i in range(3))


@dataclass
class ModelProvider:
    generation: int = 0
    parent: str | None = None
    records: dict[str, InventoryRecord] = field(default_factory=dict)


@dataclass
class ModelConsumer:
    generation: int
    held: dict[tuple[str, str], int]


class Refusal(Exception):
    """The model refuses; the name of the store's error is the text."""


class Model:
    """Providers and consumers, and the rules in the words of the API's description."""

    def __init__(self) -> None:
        self.providers: dict[str, ModelProvider] = {}
        self.consumers: dict[str, ModelConsumer] = {}

    def used(self, provider: str, name: str) -> int:
        return sum(c.held.get((provider, name), 0) for c in self.consumers.values())

    def root(self, provider: str) -> str:
        while (parent := self.providers[provider].parent) is not None:
            provider = parent
        return provider

    def check_consumers(self, writes: list[Write]) -> None:
        for write in writes:
            known = self.consumers.get(write.uuid)
            if write.expected_generation is not ANY and write.expected_generation != (
                known and known.generation
            ):
                raise Refusal("ConsumerGenerationConflict")

    def check_claim(
        self, writes: list[Write], records: dict[str, dict[str, InventoryRecord]]
    ) -> None:
        """Raises unless every new allocation is possible against `records`."""
        asked = [
            (uuid_, name, amount)
            for write in writes
            for uuid_, amounts in write.allocations.items()
            for name, amount in amounts.items()
        ]
        names = {name for _, name, _ in asked}
        if any(not names & records[uuid_].keys() for uuid_, _, _ in asked):
            raise Refusal("InvalidInventoryForAllocation")
        sums: dict[tuple[str, str], int] = {}
        for uuid_, name, amount in asked:
            record = records[uuid_].get(name)
            if record is None:
                raise Refusal("InvalidInventoryForAllocation")
            if not record.min_unit <= amount <= record.max_unit or amount % record.step_size:
                raise Refusal("ConstraintViolated")
            key = (uuid_, name)
            sums[key] = sums.get(key, 0) + amount
            before = self.used(*key)
            named = {write.uuid for write in writes}
            others = before - sum(
                self.consumers[c].held.get(key, 0) for c in named if c in self.consumers
            )
            capacity = (record.total - record.reserved) * record.allocation_ratio
            if others + sums[key] > capacity and others + sums[key] > before:
                raise Refusal("CapacityExceeded")

    def raised(self, writes: list[Write]) -> set[str]:
        raised = {uuid_ for write in writes for uuid_ in write.allocations}
        for write in writes:
            if not write.allocations and write.uuid in self.consumers:
                raised |= {key[0] for key in self.consumers[write.uuid].held}
        return raised

    def set_allocations(self, writes: list[Write]) -> None:
        for write in writes:
            known = self.consumers.pop(write.uuid, None)
            if write.allocations:
                self.consumers[write.uuid] = ModelConsumer(
                    (known.generation if known else 0) + 1,
                    {
                        (uuid_, name): amount
                        for uuid_, amounts in write.allocations.items()
                        for name, amount in amounts.items()
                    },
                )

    def write(self, writes: list[Write]) -> None:
        self.check_consumers(writes)
        if any(uuid_ not in self.providers for write in writes for uuid_ in write.allocations):
            raise Refusal("ProviderNotFound")
        self.check_claim(writes, {uuid_: p.records for uuid_, p in self.providers.items()})
        for uuid_ in self.raised(writes):
            self.providers[uuid_].generation += 1
        self.set_allocations(writes)

    def reshape(
        self, wanted: dict[str, tuple[int, dict[str, InventoryRecord]]], writes: list[Write]
    ) -> None:
        for uuid_, (generation, _) in wanted.items():
            if uuid_ not in self.providers:
                raise Refusal("ReshapeProviderNotFound")
            if self.providers[uuid_].generation != generation:
                raise Refusal("ReshapeGenerationConflict")
        self.check_consumers(writes)
        if any(uuid_ not in self.providers for write in writes for uuid_ in write.allocations):
            raise Refusal("ProviderNotFound")
        interim = {uuid_: dict(p.records) for uuid_, p in self.providers.items()}
        for uuid_, (_, records) in wanted.items():
            interim[uuid_] |= records
        self.check_claim(writes, interim)
        after = Model()
        after.consumers = dict(self.consumers)
        after.set_allocations(writes)
        for uuid_, (_, records) in wanted.items():
            if any(
                after.used(uuid_, name)
                for name in self.providers[uuid_].records.keys() - records.keys()
            ):
                raise Refusal("InventoryInUse")
        for uuid_ in self.raised(writes):
            self.providers[uuid_].generation += 1
        for uuid_, (_, records) in wanted.items():
            self.providers[uuid_].generation += 1 + bool(records)
            self.providers[uuid_].records = dict(records)
        self.consumers = after.consumers
