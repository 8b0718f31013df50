"""The follower of the feed on real databases, with several processes that follow and that write."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from placement_server.candidates.index.follower import IndexFollower
from placement_server.store import resource_classes
from placement_server.store.allocations import allocations, reshape
from placement_server.store.changes.snapshot import ProviderRow
from placement_server.store.providers import aggregates, providers, traits
from placement_server.store.providers.tree import SHARING_TRAIT
from placement_server.store.records import ANY, ConsumerWrite, InventoryRecord, Provider
from placement_server.store.store import Store
from tests.fixtures import programs
from tests.integration.candidates import follower_worker
from tests.integration.candidates.writes import claim, create

AGGREGATE = str(uuid.uuid4())


@contextmanager
def workers(url: str, count: int) -> Iterator[list[Connection]]:
    context = programs.forks()
    pipes = [context.Pipe() for _ in range(count)]
    processes = [
        context.Process(target=follower_worker.run, args=(url, theirs), daemon=True)
        for _ours, theirs in pipes
    ]
    for process in processes:
        process.start()
    yield [ours for ours, _theirs in pipes]
    for ours, _theirs in pipes:
        ours.send(None)
    for process in processes:
        process.join(30)
        assert process.exitcode == 0


class Client:
    """Writes, and after each write asks any worker what it sees."""

    def __init__(
        self, store: Store, pipes: list[tuple[Connection, threading.Lock]], seed: int
    ) -> None:
        self.store = store
        self.pipes = pipes
        self.seed = seed
        self.random = random.Random(seed)

    def ask(self, request: str) -> Any:
        pipe, lock = self.random.choice(self.pipes)
        with lock:
            pipe.send(request)
            return pipe.recv()

    def seen(self, name: str) -> ProviderRow | None:
        row: ProviderRow | None = self.ask(name)
        return row

    def generation(self, name: str) -> int:
        return self.store.read(providers.get, name).generation

    def rename(self, child: str, parent: str | None) -> Provider:
        return self.store.write(
            providers.update, child, name=child, parent_uuid=parent, reparenting_allowed=True
        )


class Neighbour(Client):
    """Has a branch of a tree on which others work too, and names of its own."""

    def run(self, top: str, rounds: int) -> None:
        for number in range(1, rounds + 1):
            trait, name = f"CUSTOM_T_{self.seed}_{number}", f"CUSTOM_C_{self.seed}_{number}"
            self.store.write(traits.ensure, trait)
            self.store.write(resource_classes.ensure, name)
            names = self.ask("").names
            trait_id, class_id = names.trait_ids[trait], names.class_ids[name]
            branch, leaf = create(self.store, {name: 4}, top), create(self.store)
            self.store.write(
                traits.replace_of_provider, branch, [trait], generation=self.generation(branch)
            )
            assert self.row(branch).trait_ids == (trait_id,)
            assert [stock.capacity for stock in self.row(branch).inventories] == [4]
            self.share(leaf)
            consumer = str(uuid.uuid4())
            claim(self.store, consumer, {top: {"VCPU": 1}, branch: {name: 3}})
            assert self.use(branch) == {class_id: 3}
            self.hang(leaf, branch)
            self.reshape(consumer, top, {branch: {}, leaf: {name: InventoryRecord(4)}}, name)
            assert (self.use(branch), self.use(leaf)) == ({}, {class_id: 3})
            self.hang(branch, None)
            assert self.row(leaf).root_id == self.row(branch).id
            self.hang(branch, top)
            self.store.write(allocations.delete, consumer)
            assert self.use(leaf) == {class_id: 0}
            if number == rounds:
                return
            for provider in (leaf, branch):
                self.store.write(providers.delete, provider)
                assert self.seen(provider) is None
            self.store.write(traits.delete, trait)
            self.store.write(resource_classes.delete, name)
            names = self.ask("").names
            assert trait not in names.trait_ids
            assert name not in names.class_ids

    def share(self, name: str) -> None:
        """Let a provider share what it has, with an aggregate of all."""
        generation = self.generation(name)
        self.store.write(aggregates.replace, name, [AGGREGATE], generation=generation)
        assert self.row(name).aggregates == (AGGREGATE,)
        generation = self.generation(name)
        self.store.write(traits.replace_of_provider, name, [SHARING_TRAIT], generation=generation)
        assert len(self.row(name).trait_ids) == 1

    def row(self, name: str) -> ProviderRow:
        row = self.seen(name)
        assert row is not None
        return row

    def use(self, name: str) -> dict[int, int]:
        return {
            inventory.resource_class_id: inventory.used for inventory in self.row(name).inventories
        }

    def hang(self, name: str, parent: str | None) -> None:
        self.rename(name, parent)
        parent_id = None if parent is None else self.store.read(providers.get, parent).id
        assert self.row(name).parent_id == parent_id

    def reshape(
        self, consumer: str, top: str, wanted: dict[str, dict[str, InventoryRecord]], name: str
    ) -> None:
        """Move what the consumer has of a class to where that class is wanted."""
        place = next(uuid for uuid, records in wanted.items() if records)
        held = {top: {"VCPU": 1}, place: {name: 3}}
        self.store.write(
            reshape.apply,
            {name: (self.generation(name), records) for name, records in wanted.items()},
            [ConsumerWrite(consumer, held, "p", "u", None, ANY)],
        )


class Mover(Client):
    """Hangs a whole tree under another one, and out again."""

    def run(self, top: str, above: str, rounds: int) -> None:
        for number in range(rounds):
            self.rename(top, None if number % 2 else above)
            row, over = self.seen(top), self.seen(above)
            assert row is not None
            assert over is not None
            assert row.root_id == (row.id if number % 2 else over.id)


def test_writers_on_one_tree_see_their_own_writes_on_every_worker(store: Store) -> None:
    with workers(store.url, 4) as pipes:
        guarded = [(pipe, threading.Lock()) for pipe in pipes]
        above, top = create(store), create(store, {"VCPU": 8})
        store.write(aggregates.replace, above, [AGGREGATE], generation=0)
        mover = Mover(store, guarded, 9)
        with ThreadPoolExecutor(4) as pool:
            begun = [pool.submit(Neighbour(store, guarded, n).run, top, 4) for n in range(3)]
            begun.append(pool.submit(mover.run, top, above, 12))
            for writer in begun:
                writer.result()
        fresh = follower_worker.content(IndexFollower(store).index())
        assert {len(tree.providers) for tree in fresh.trees} == {1, 7}
        assert fresh.links
        for pipe in pipes:
            pipe.send("")
            assert pipe.recv() == fresh
