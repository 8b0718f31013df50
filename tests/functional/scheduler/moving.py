"""Hosts in a placement of the test's own, in process, and a mover whose placement can fail."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compute_agent.errors import PlacementAPIConnectFailure
from compute_agent.placement.connection import Retries
from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.scheduler.claiming.claims import GiveBack
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.moves.mover import Mover
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.testing.transports import RecordingTransport
from tests.fixtures.allocations import amounts_of, claim_body, new_uuid
from tests.fixtures.clocks import WaitingClock
from tests.fixtures.plain_trees import make_provider

Held = dict[str, dict[str, int]]
SHARING = "MISC_SHARES_VIA_AGGREGATE"


@dataclass
class FailingTransport:
    """Lets so many requests through and then fails, before or after the work was done."""

    after: int
    answered: bool = False
    seen: int = 0

    def before(self, method: str, path: str, _body: Any) -> Response | None:
        self.seen += 1
        if self.seen > self.after + self.answered:
            raise PlacementAPIConnectFailure(f"{method} {path} got no answer")
        return None

    def lose(self, method: str, path: str, _body: Any, answer: Response) -> Response:
        if self.answered and self.seen == self.after + 1:
            raise PlacementAPIConnectFailure(f"the answer to {method} {path} was lost")
        return answer


@dataclass
class World:
    """Hosts, each named by a letter, and what consumers hold on them."""

    transport: Transport
    journal: Path
    names: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.transport.send(Request(method, path, (1, 39), body))
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.text}"
        return json.loads(answer.content or b"null")

    def provider(
        self,
        name: str,
        inventory: dict[str, int] | None = None,
        *traits: str,
        parent: str | None = None,
        aggregates: tuple[str, ...] = (),
        new: str = "",
    ) -> str:
        new = new or new_uuid()
        above = next((u for u, n in self.names.items() if n == parent), None)
        self.names[new] = name
        more: Any = {"uuid": new, "parent": above, "aggregates": aggregates}
        return make_provider(self.call, f"{name}-{new}", inventory, traits, **more)

    def claim(self, consumer: str, held: Held) -> None:
        """Let a consumer hold something, by uuid of the provider, past every scheduler."""
        self.call("PUT", f"/allocations/{consumer}", claim_body(held))

    def held(self, consumer: str) -> Held:
        """What a consumer holds, by the providers' short names."""
        found = amounts_of(self.call("GET", f"/allocations/{consumer}"))
        return {self.names[uuid]: amounts for uuid, amounts in found.items()}

    def used(self) -> Held:
        """What placement counts as used, by the providers' short names, without zeros."""
        used = {}
        for provider, name in self.names.items():
            usages = self.call("GET", f"/resource_providers/{provider}/usages")["usages"]
            used[name] = {c: n for c, n in usages.items() if n}
        return {name: amounts for name, amounts in used.items() if amounts}

    def type_of(self, consumer: str) -> str:
        return str(self.call("GET", f"/allocations/{consumer}").get("consumer_type"))

    def mover(
        self,
        failing: FailingTransport | None = None,
        *,
        filters: tuple[HostFilter, ...] = (),
        announcements: Announcements | None = None,
    ) -> tuple[Mover, RecordingTransport]:
        """A mover as a process of its own would have it, with the journal of all of them."""
        before: Callable[..., Any] | None = failing.before if failing else None
        after: Callable[..., Any] | None = failing.lose if failing else None
        recorded = RecordingTransport(self.transport, before, after)
        client = PlacementClient(
            recorded, retries=Retries(WaitingClock(), random.Random(1)), use_extensions=True
        )
        journal = Journal(self.journal)
        scheduler = Scheduler(
            client,
            HostSearch(client, HostSearchOptions(filters=filters), announcements),
            SelectionOptions(),
            GiveBack(client, journal),
            random.Random(1),
        )
        return Mover(client, scheduler, journal), recorded

    def scheduler(self, announcements: Announcements | None = None) -> Scheduler:
        return self.mover(announcements=announcements)[0]._scheduler


def together(*held: Held) -> Held:
    """The sum of what several consumers hold."""
    total: Held = {}
    for holding in held:
        for provider, amounts in holding.items():
            there = total.setdefault(provider, {})
            for name, amount in amounts.items():
                there[name] = there.get(name, 0) + amount
    return total
