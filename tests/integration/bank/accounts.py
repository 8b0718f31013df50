"""A teller's consumers: writing them, and finding out what became of a write that got no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.integration.bank.connection import Answer, Connection, UnansweredRequest
from tests.integration.bank.ledger import Holding, Ledger
from tests.integration.bank.world import PROJECT, World

Placed = dict[str, dict[str, int]]
"""Provider -> resource class -> amount."""

_TRIES: Final = 50


@dataclass
class Account:
    """A consumer that only this teller writes (reshapes of others move it within its tree).

    `ghosts`: what lost first writes could still make of it after it is gone.
    """

    uuid: str
    holding: Holding = field(default_factory=dict)
    generation: int | None = None
    ghosts: list[Holding] = field(default_factory=list)


@dataclass(frozen=True)
class Write:
    """A request that gives consumers exactly these allocations, whole or not at all.

    `generations` are those it expects; `leaves` the providers that consumers with an empty set
    have allocations of, which raises their generations.
    """

    placed: Mapping[str, Placed]
    generations: Mapping[str, int | None]
    leaves: frozenset[str] = frozenset()

    @property
    def raises(self) -> set[str]:
        named = {provider for placed in self.placed.values() for provider in placed}
        return named | self.leaves

    def entry(self, consumer: str) -> dict[str, Any]:
        return {
            "allocations": {
                provider: {"resources": resources}
                for provider, resources in self.placed[consumer].items()
            },
            "consumer_generation": self.generations[consumer],
            **PROJECT,
        }

    def request(self) -> tuple[str, str, dict[str, Any]]:
        if len(self.placed) == 1:
            (consumer,) = self.placed
            return "PUT", f"/allocations/{consumer}", self.entry(consumer)
        return "POST", "/allocations", {consumer: self.entry(consumer) for consumer in self.placed}


class Accounts:
    """All consumers of one teller. Whatever is not as it must be goes to the ledger."""

    def __init__(self, connection: Connection, world: World, ledger: Ledger) -> None:
        self.connection = connection
        self.world = world
        self.ledger = ledger
        self.open: dict[str, Account] = {}
        self._provider_generations: dict[str, int] = {}

    def read(self, consumer: str) -> tuple[Placed, int | None]:
        """What the service says that a consumer holds, and its generation."""
        shown = self.connection.insist("GET", f"/allocations/{consumer}").json
        placed: Placed = {}
        for provider, entry in shown["allocations"].items():
            placed[provider] = entry["resources"]
            self.note_generation(provider, entry["generation"])
        return placed, shown.get("consumer_generation")

    def note_generation(self, provider: str, generation: int) -> None:
        """Generations seen by one client one after the other never go back."""
        last = self._provider_generations.get(provider, 0)
        if generation < last:
            self.violated(f"generation of provider {provider} went from {last} to {generation}")
        self._provider_generations[provider] = generation

    def note_unanswered(self, error: UnansweredRequest, request: str) -> None:
        self.ledger.counts[f"unanswered ({error.kind})"] += 1
        if error.kind == "500":
            self.violated(f"{request}: {error}")

    def violated(self, what: str) -> None:
        self.ledger.violations.append(what)

    def check(self, account: Account, after: str) -> Placed:
        """The account as the service shows it must be as the teller knows it."""
        placed, generation = self.read(account.uuid)
        seen = self.world.grouped(placed)
        is_ghost = not account.holding and seen in account.ghosts
        if seen != account.holding and not is_ghost:
            self.violated(f"{account.uuid} has {seen} after {after}, must have {account.holding}")
            account.holding = seen
        elif generation is not None and generation < (account.generation or 0):
            self.violated(
                f"generation of consumer {account.uuid} went from {account.generation} to "
                f"{generation} after {after}"
            )
        account.generation = generation
        return placed

    def carry_out(self, write: Write, *, must_fail: bool = False) -> Answer | None:
        """Send the write, and learn what became of it.

        The answer, or None when there was none. In every case the accounts concerned are known
        afterwards (an account that cannot be known is closed).
        """
        concerned = [self.open.setdefault(uuid, Account(uuid)) for uuid in write.placed]
        try:
            answer = self.connection.send(*write.request())
        except UnansweredRequest as error:
            self.note_unanswered(error, str(write.request()[:2]))
            self._find_out(write, concerned)
            self.forget_empty()
            return None
        if answer.status == 204:
            self._happened(write, concerned)
            self.ledger.counts["acknowledged"] += 1
            if must_fail:
                self.violated(f"{write.request()} was acknowledged")
        else:
            self._count_refusal(answer)
            for account in concerned:
                self.check(account, after=f"{answer.status} {answer.error}")
        self.forget_empty()
        return answer

    def forget_empty(self) -> None:
        for empty in [account for account in self.open.values() if not account.holding]:
            self.close(empty)

    def close(self, account: Account) -> None:
        """The consumer is gone, or given up: its uuid is never used again."""
        del self.open[account.uuid]
        self.ledger.possible[account.uuid] = [account.holding, *account.ghosts]

    def end(self, account: Account) -> None:
        """DELETE, which no generation guards: repeated until it is certain."""
        answer = self._delete_once(account)
        while answer is None:
            answer = self._delete_once(account)
            if answer is not None and answer.status == 404:
                break
        else:
            if answer.status != 204:
                self.violated(f"DELETE of {account.uuid}: {answer.status} {answer.error}")
        account.holding = {}
        self.ledger.counts["acknowledged"] += 1
        self.check(account, after="DELETE")
        self.forget_empty()

    def _delete_once(self, account: Account) -> Answer | None:
        try:
            return self.connection.send("DELETE", f"/allocations/{account.uuid}")
        except UnansweredRequest as error:
            self.note_unanswered(error, "DELETE")
            # the next try comes when the service answers again
            self.read(account.uuid)
            return None

    def _count_refusal(self, answer: Answer) -> None:
        kinds = {"exceed the capacity": "no capacity", "invalid": "no inventory"}
        kind = next((kind for words, kind in kinds.items() if words in answer.error), "other")
        if answer.is_lost_race:
            kind = "generation conflict" if "generation" in answer.error else "lost race"
        self.ledger.counts[f"refused {answer.status} ({kind})"] += 1

    def _happened(self, write: Write, concerned: list[Account]) -> None:
        for account in concerned:
            account.holding = self.world.grouped(write.placed[account.uuid])
            account.generation = (
                (write.generations[account.uuid] or 0) + 1 if account.holding else None
            )
        self.ledger.raised.update(write.raises)

    def _find_out(self, write: Write, concerned: list[Account]) -> None:
        """A write got no answer: it was carried out, or not, or will be at any time.

        When it was not so far, another write with the generations that it expects (a *fence*)
        makes sure that it never will be.
        """
        after = {
            account.uuid: self.world.grouped(write.placed[account.uuid]) for account in concerned
        }
        before = {account.uuid: account.holding for account in concerned}
        mixed = 0
        for _ in range(_TRIES):
            seen = {account.uuid: self.read(account.uuid) for account in concerned}
            now = {uuid: self.world.grouped(placed) for uuid, (placed, _) in seen.items()}
            if now == after and before != after:
                self._happened(write, concerned)
                for account in concerned:
                    account.generation = seen[account.uuid][1]
                self.ledger.counts["found done"] += 1
                return
            if now != before:
                # it may have been carried out between two of the reads, but only once
                mixed += 1
                if mixed > 1:
                    self.violated(f"{write.request()} left {now}, not {before} and not {after}")
                    self._give_up(concerned, [before, after, now], write)
                    return
                continue
            if all(not holding for holding in before.values()):
                if self._claim_again(write, concerned):
                    return
            elif self._fence(concerned, seen):
                self.ledger.counts["found not done"] += 1
                if before == after:
                    # it may have come before the fence as well
                    self.ledger.perhaps.update(write.raises)
                return
        self._give_up(concerned, [before, after], write)

    def _fence(
        self, concerned: list[Account], seen: Mapping[str, tuple[Placed, int | None]]
    ) -> bool:
        account = next(account for account in concerned if account.holding)
        placed, generation = seen[account.uuid]
        fence = Write({account.uuid: placed}, {account.uuid: generation})
        try:
            answer = self.connection.send(*fence.request())
        except UnansweredRequest:
            self.ledger.perhaps.update(fence.raises)
            return False
        if answer.status != 204:
            self._count_refusal(answer)
            return False
        self.ledger.raised.update(fence.raises)
        account.generation = (generation or 0) + 1
        return True

    def _claim_again(self, write: Write, concerned: list[Account]) -> bool:
        """A lost first write: the same again either succeeds, or tells that the first one did."""
        for account in concerned:
            account.ghosts.append(self.world.grouped(write.placed[account.uuid]))
        try:
            answer = self.connection.send(*write.request())
        except UnansweredRequest:
            self.ledger.perhaps.update(write.raises)
            return False
        if answer.status == 204:
            self._happened(write, concerned)
            self.ledger.perhaps.update(write.raises)
            self.ledger.counts["claimed again"] += 1
            return True
        self._count_refusal(answer)
        if answer.is_lost_race:
            return False
        # refused for good; but the lost one could still come when there is room again
        self.ledger.perhaps.update(write.raises)
        for account in concerned:
            self.close(account)
        return True

    def _give_up(
        self, concerned: list[Account], states: list[dict[str, Holding]], write: Write
    ) -> None:
        self.ledger.perhaps.update(write.raises)
        self.ledger.counts["given up"] += 1
        for account in concerned:
            account.ghosts.extend(state[account.uuid] for state in states)
            self.close(account)
