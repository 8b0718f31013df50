"""One client of the bank, a process of its own: it claims, resizes, moves, releases, reshapes,
shrinks and grows until it is told to stop, and then writes down what must be so.

    python -m tests.integration.bank.teller PORT SEED NUMBER WORLD LEDGER

Its choices come from the seed. Each acknowledged write is one dot on standard output.
"""

from __future__ import annotations

import random
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.bank.accounts import Account, Accounts, Placed, Write
from tests.integration.bank.connection import Answer, Connection, NoService, UnansweredRequest
from tests.integration.bank.ledger import GuardedWrite, Ledger
from tests.integration.bank.world import StampSource, World

_MOST_ACCOUNTS = 8
_TOO_MUCH = 100_000
_OUT_OF_REACH = 1_000_000
"""Added to a generation: the reshapes of others raise it too, by five at times."""


TreeRead = tuple[dict[str, int], dict[str, Any], dict[str, tuple[Placed, int | None]]]
"""Generations and inventories by provider, holdings and generations by consumer."""


class Teller:
    """Deals with the world until `stopping` is set."""

    def __init__(self, port: int, seed: str, number: int, world: World) -> None:
        self.random = random.Random(f"{seed}/{number}")
        self.world = world
        self.ledger = Ledger()
        self.connection = Connection(port)
        self.accounts = Accounts(self.connection, world, self.ledger)
        self.stamps = StampSource(number + 1)
        self.stopping = self.has_extensions = False

    def work(self) -> None:
        deals: dict[Callable[[], None], int] = {
            self.claim: 32,
            self.resize: 15,
            self.move: 12,
            self.release: 16,
            self.end: 6,
            self.ask_too_much: 4,
            self.ask_with_wrong_generation: 4,
            self.ask_of_nobody: 2,
            self.share: 10,
            self.grow_or_shrink: 8,
            self.reshape: 12,
        }
        self.has_extensions = "extensions" in self.connection.insist("GET", "/").json
        for provider in self.world.rushes:
            self.rush(provider)
        while not self.stopping:
            done = self.ledger.counts["acknowledged"]
            (deal,) = self.random.choices(list(deals), list(deals.values()))
            deal()
            self.report(done)
        for account in list(self.accounts.open.values()):
            self.accounts.check(account, after="everything")
            self.accounts.close(account)

    def rush(self, provider: str) -> None:
        """Take units one by one until there are no more, as all the others do."""
        answer: Answer | None = None
        while not (self.stopping or (answer is not None and answer.status == 409)):
            done = self.ledger.counts["acknowledged"]
            uuid_ = self.new_uuid()
            answer = self.accounts.carry_out(Write({uuid_: {provider: {"VCPU": 1}}}, {uuid_: None}))
            if uuid_ in self.accounts.open:
                self.accounts.close(self.accounts.open[uuid_])
            self.report(done)

    def report(self, done: int) -> None:
        """One dot for each write acknowledged since there were `done`."""
        sys.stdout.write("." * (self.ledger.counts["acknowledged"] - done))
        sys.stdout.flush()

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def some_account(self) -> Account | None:
        accounts = list(self.accounts.open.values())
        return self.random.choice(accounts) if accounts else None

    def hosts(self) -> list[str]:
        return [*self.world.fixed, *self.world.elastic, *(root for root, _ in self.world.trees)]

    def placement(self, host: str | None = None) -> Placed:
        """Where a new claim goes: a host, and often the pool."""
        host = host or self.random.choice(self.hosts())
        placed = self.on_host(host, self.random.randint(1, 4), 128 * self.random.randint(1, 6))
        if self.random.random() < 0.6:
            placed[self.world.pool] = {"DISK_GB": self.random.randint(1, 10)}
        return placed

    def on_host(self, host: str, vcpus: int, memory: int) -> Placed:
        """The amounts at the providers of the host that have them."""
        for root, child in self.world.trees:
            if host == root and "VCPU" in self.inventories(child)[1]:
                return {root: {"MEMORY_MB": memory}, child: {"VCPU": vcpus}}
        return {host: {"VCPU": vcpus, "MEMORY_MB": memory}}

    def inventories(self, provider: str) -> tuple[int, dict[str, Any]]:
        path = f"/resource_providers/{provider}/inventories"
        shown = self.connection.insist("GET", path).json
        self.accounts.note_generation(provider, shown["resource_provider_generation"])
        return shown["resource_provider_generation"], shown["inventories"]

    def put(self, account: Account | None, placed: Placed, **more: Any) -> Answer | None:
        uuid_ = account.uuid if account else self.new_uuid()
        generation = account.generation if account else None
        answer = self.accounts.carry_out(Write({uuid_: placed}, {uuid_: generation}), **more)
        if answer and answer.status == 204 and self.random.random() < 0.3:
            self.accounts.check(self.accounts.open[uuid_], after="204")
        return answer

    def claim(self) -> None:
        if len(self.accounts.open) < _MOST_ACCOUNTS:
            self.put(None, self.placement())
        else:
            self.release()

    def resize(self) -> None:
        account = self.some_account()
        if account is None:
            return
        placed = self.accounts.check(account, after="a while")
        for resources in placed.values():
            for name in resources:
                factor = self.random.choice((0.5, 1, 1, 2))
                resources[name] = max(1, int(resources[name] * factor))
        self.put(account, placed)

    def move(self) -> None:
        """As a live migration does: another consumer keeps the old place for a while."""
        account = self.some_account()
        if account is None:
            return
        old = self.accounts.check(account, after="a while")
        keeper = self.new_uuid()
        self.accounts.carry_out(
            Write(
                {keeper: old, account.uuid: self.placement()},
                {keeper: None, account.uuid: account.generation},
            )
        )

    def release(self) -> None:
        account = self.some_account()
        if account is None:
            return
        old = self.accounts.check(account, after="a while")
        self.accounts.carry_out(
            Write({account.uuid: {}}, {account.uuid: account.generation}, frozenset(old))
        )

    def end(self) -> None:
        account = self.some_account()
        if account is not None:
            self.accounts.end(account)

    def ask_too_much(self) -> None:
        """The first of two consumers fits; neither may get anything."""
        modest, greedy = self.new_uuid(), self.new_uuid()
        host = self.random.choice(self.world.fixed)
        self.accounts.carry_out(
            Write(
                {modest: {self.world.pool: {"DISK_GB": 1}}, greedy: {host: {"VCPU": _TOO_MUCH}}},
                {modest: None, greedy: None},
            ),
            must_fail=True,
        )

    def ask_with_wrong_generation(self) -> None:
        account = self.some_account()
        if account is None:
            return
        wrong = self.random.choice((None, (account.generation or 0) + _OUT_OF_REACH))
        self.accounts.carry_out(
            Write({account.uuid: self.placement()}, {account.uuid: wrong}), must_fail=True
        )

    def ask_of_nobody(self) -> None:
        placed = self.placement() | {self.new_uuid(): {"VCPU": 1}}
        self.put(None, placed, must_fail=True)

    def share(self) -> None:
        """Write a consumer that all tellers write; its generation decides who wins."""
        consumer = self.random.choice(self.world.shared_consumers)
        _, generation = self.accounts.read(consumer)
        vcpus = self.random.randint(1, 3)
        provider = self.world.fixed[0]
        write = Write({consumer: {provider: {"VCPU": vcpus}}}, {consumer: generation})
        outcome = self.guarded(*write.request(), 204, {provider: 1})
        self.ledger.shared.append(GuardedWrite(consumer, generation or 0, outcome, vcpus))

    def grow_or_shrink(self) -> None:
        provider = self.random.choice(self.world.elastic)
        generation, _ = self.inventories(provider)
        record = self.stamps.record(self.random.randint(1, 40))
        outcome = self.guarded(
            "PUT",
            f"/resource_providers/{provider}/inventories/VCPU",
            {"resource_provider_generation": generation, **record},
            200,
            {provider: 1},
        )
        self.ledger.inventories.append(
            GuardedWrite(provider, generation, outcome, record["max_unit"])
        )

    def guarded(
        self,
        method: str,
        path: str,
        body: Any,
        success: int,
        raises: dict[str, int],
    ) -> str:
        """Send a write of something that others write too; the reckoning puts it together."""
        try:
            answer = self.connection.send(method, path, body)
        except UnansweredRequest as error:
            self.accounts.note_unanswered(error, f"{method} {path}")
            self.ledger.perhaps.update(raises)
            return "unknown"
        if answer.status == success:
            self.ledger.counts["acknowledged"] += 1
            self.ledger.raised.update(raises)
            return "acknowledged"
        kind = path.split("/")[1]
        self.ledger.counts[f"refused {answer.status} ({kind})"] += 1
        if answer.status != 409:
            self.accounts.violated(f"{method} {path}: {answer.status} {answer.error}")
        return "refused"

    def reshape(self) -> None:
        """Move the VCPUs of a tree, with all that is held of them, to its other provider.

        The others go on meanwhile, and often it is too late when all is read.
        """
        for _ in range(4):
            if self.reshape_once() != "refused":
                break

    def parts(self, *providers: str) -> TreeRead:
        """Read what a reshape needs, one after the other."""
        generations, stock = {}, {}
        for provider in providers:
            generations[provider], stock[provider] = self.inventories(provider)
        holders = {
            consumer: self.accounts.read(consumer)
            for provider in providers
            if "VCPU" in stock[provider]
            for consumer in self.connection.insist(
                "GET", f"/resource_providers/{provider}/allocations"
            ).json["allocations"]
        }
        return generations, stock, holders

    def whole_tree(self, root: str, _child: str) -> TreeRead:
        """Read the same with one request."""
        path = f"/provider_trees/{root}?include=allocations"
        shown = self.connection.insist("GET", path).json
        generations = {entry["uuid"]: entry["generation"] for entry in shown["providers"]}
        stock = {entry["uuid"]: entry["inventories"] for entry in shown["providers"]}
        holders = {
            consumer: (
                {uuid_: held["resources"] for uuid_, held in entry["allocations"].items()},
                entry["consumer_generation"],
            )
            for consumer, entry in shown["allocations"].items()
        }
        return generations, stock, holders

    def reshape_once(self) -> str:
        root, child = self.random.choice(self.world.trees)
        is_whole = self.has_extensions and self.random.random() < 0.5
        generations, stock, holders = (self.whole_tree if is_whole else self.parts)(root, child)
        source, target = (root, child) if "VCPU" in stock[root] else (child, root)
        entries: dict[str, Any] = {}
        for consumer, (placed, generation) in holders.items():
            if "VCPU" in placed.get(source, {}):
                placed.setdefault(target, {})["VCPU"] = placed[source].pop("VCPU")
                kept = {provider: held for provider, held in placed.items() if held}
                entries[consumer] = Write({consumer: kept}, {consumer: generation}).entry(consumer)
        vcpus = stock[source].pop("VCPU", None)
        if vcpus is None:
            # another reshape was faster than the reads
            return "refused"
        stock[target]["VCPU"] = self.stamps.record(vcpus["total"])
        body = {
            "inventories": {
                provider: {
                    "resource_provider_generation": generations[provider],
                    "inventories": stock[provider],
                }
                for provider in (source, target)
            },
            "allocations": entries,
        }
        raises = {provider: 1 for entry in entries.values() for provider in entry["allocations"]}
        for provider in (source, target):
            raises[provider] = raises.get(provider, 0) + 1 + bool(stock[provider])
        outcome = self.guarded("POST", "/reshaper", body, 204, raises)
        self.ledger.counts[f"reshape {outcome}"] += 1
        self.ledger.counts["reshapes read as whole trees"] += is_whole
        for provider in (source, target):
            self.ledger.inventories.append(
                GuardedWrite(
                    provider,
                    generations[provider],
                    outcome,
                    stock[provider].get("VCPU", {}).get("max_unit", 0),
                )
            )
        return outcome


def main() -> None:
    port, seed, number, world, ledger = sys.argv[1:]
    teller = Teller(int(port), seed, int(number), World.load(Path(world)))

    def stop(*_: object) -> None:
        teller.stopping = True

    signal.signal(signal.SIGTERM, stop)
    try:
        teller.work()
    except NoService as error:
        teller.ledger.violations.append(f"no service: {error}")
    teller.ledger.save(Path(ledger))


if __name__ == "__main__":
    main()
