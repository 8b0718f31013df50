"""Clients that bring guests through their life as a cloud does, and record what they are answered.

Some forget a guest half way, as a service does whose machine is lost; the audit is to find it.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from compute_agent.errors import ComputeAgentError
from compute_agent.scheduler import errors
from compute_agent.scheduler.bus.rpc import SchedulerClient
from tests.integration.burst.claims import ask_until_answered
from tests.integration.burst.shapes import Shape
from tests.integration.holders.cloud import Cloud
from tests.integration.holders.contents import content_of, seen_content
from tests.integration.holders.machines import Machine
from tests.integration.holders.model import Content, Record

_Answer = TypeVar("_Answer")
_MOST: Final = 4
"""Guests of one client at a time."""


class ClaimRefused(Exception):
    """The host does not give a guest what was allocated for it."""


@dataclass(eq=False)
class Guest:
    """A guest, and what it has."""

    instance: str
    shape: Shape
    host: Machine
    allocated: Record
    claimed: Record | None = None
    defined: Record | None = None


@dataclass
class Client:
    """One client, with guests of its own."""

    cloud: Cloud
    scheduler: SchedulerClient
    shapes: Sequence[Shape]
    dice: random.Random
    guests: list[Guest] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def act(self) -> None:
        """Do one thing to a guest."""
        if self.dice.random() > len(self.guests) / _MOST:
            self.create(self.dice.choice(self.shapes))
            return
        actions = (self._repeat, self._move, self._move, self._end, self._end)
        self.dice.choice(actions)(self.dice.choice(self.guests))

    def end_all(self) -> None:
        """End every guest that is left."""
        while self.guests:
            self._end(self.guests[0], may_forget=False)

    # -- the life of a guest ------------------------------------------------------------------

    def create(self, shape: Shape) -> bool:
        """Make a guest; return whether a host was found."""
        instance = str(uuid.uuid4())
        allocated = self._record(instance, *self.cloud.placements)
        try:
            answer = self._ask("claim", spec_obj=shape.spec("project"), instance_uuid=instance)
        except errors.NoValidHost:
            allocated.end()
            self.done["no host"] += 1
            return False
        allocated.answer(_amounts(answer["allocations"]))
        guest = Guest(instance, shape, self.cloud.hosts[answer["host"]], allocated)
        if self.dice.random() < 0.05:
            self._forget(allocated)
            return True
        self.guests.append(guest)
        self.done[shape.name] += 1
        try:
            claim = self._claim_on_host(guest, answer["mappings"])
        except ClaimRefused:
            self.done["refused"] += 1
            self._end(guest)
        else:
            self._define(guest, claim)
        return True

    def _repeat(self, guest: Guest) -> None:
        answer = self._ask_host(guest.host, "instance_claim", spec=_spec(guest))
        assert guest.claimed is not None
        if content_of(answer) != guest.claimed.content:
            self.cloud.wrong.append(f"{guest.instance} was answered {answer} when it asked again")
        self.done["repeated"] += 1

    def _end(self, guest: Guest, *, may_forget: bool = True) -> None:
        self.guests.remove(guest)
        if guest.defined is not None:
            self._undefine(guest)
        if guest.claimed is not None:
            if may_forget and self.dice.random() < 0.1:
                self._forget(guest.claimed)
            else:
                self._drop(guest.host, guest.instance, guest.claimed)
        guest.allocated.begin_end()
        self._ask("delete_instance", instance_uuid=guest.instance)
        guest.allocated.end()
        self.done["ended"] += 1

    def _move(self, guest: Guest) -> None:
        """Resize a guest, on its host or to another, and confirm or revert that."""
        assert guest.claimed is not None
        migration, shape = str(uuid.uuid4()), self.dice.choice(self.shapes)
        moved = Guest(guest.instance, shape, guest.host, guest.allocated)
        moved.allocated = self._record(guest.instance, *self.cloud.placements)
        left = self._record(migration, *self.cloud.placements)
        guest.allocated.begin_end()
        try:
            answer = self._ask(
                "begin_move",
                kind="cold",
                spec_obj=shape.spec("project"),
                instance_uuid=guest.instance,
                migration_uuid=migration,
            )
        except errors.NoValidHost:
            left.end()
            moved.allocated.end()
            guest.allocated = guest.allocated.go_on()
            self.done["no host to move to"] += 1
            return
        move = answer["move"]
        left.answer(_amounts(move["left"]))
        moved.allocated.answer(_amounts(move["destination"]))
        moved.host = self.cloud.host_of_root(move["destination_root"])
        source = guest.claimed
        is_resized = moved.host is guest.host
        if is_resized:
            source.begin_end()
        mappings = next((chosen["mappings"] for chosen in _requests(answer["selections"])), {})
        try:
            claim = self._claim_on_host(moved, mappings, migration)
        except ClaimRefused:
            if is_resized:
                guest.claimed = source.go_on()
            self.done["move refused"] += 1
            self._revert(guest, moved, left, move)
            return
        assert moved.claimed is not None
        if is_resized:
            guest.claimed = source.go_on(migration)
        if self.dice.random() < 0.3:
            guest.claimed.begin_end()
            self._drop(moved.host, guest.instance, moved.claimed)
            guest.claimed = guest.claimed.go_on(guest.instance)
            self._revert(guest, moved, left, move)
            return
        if is_resized and guest.defined is not None:
            guest.defined.begin_end()
        self._define(moved, claim)
        if is_resized and guest.defined is not None:
            guest.defined.end()
        else:
            self._undefine(guest)
        left.begin_end()
        self._ask("finish_move", move=move)
        left.end()
        guest.allocated.end()
        self._drop(guest.host, migration if is_resized else guest.instance, guest.claimed)
        self.guests[self.guests.index(guest)] = moved
        self.done["resized" if is_resized else "moved"] += 1

    def _revert(self, guest: Guest, moved: Guest, left: Record, move: Mapping[str, Any]) -> None:
        for record in (left, moved.allocated):
            record.begin_end()
        self._ask("revert_move", move=move)
        for record in (left, moved.allocated):
            record.end()
        guest.allocated = guest.allocated.go_on()
        self.done["reverted"] += 1

    # -- single requests ----------------------------------------------------------------------

    def _claim_on_host(
        self, guest: Guest, mappings: Mapping[str, Any], migration: str = ""
    ) -> dict[str, Any]:
        claimed = self._record(guest.instance, guest.host.claim_book)
        spec = {**_spec(guest), "migration_uuid": migration}
        try:
            claim: dict[str, Any] = self._ask_host(
                guest.host, "instance_claim", spec=spec, mappings=mappings
            )
        except ClaimRefused:
            claimed.end()
            raise
        claimed.answer(content_of(claim))
        guest.claimed = claimed
        return claim

    def _define(self, guest: Guest, claim: Mapping[str, Any]) -> None:
        guest.defined = self._record(guest.instance, guest.host.libvirt)
        self._until_answered(lambda: guest.host.define(guest.instance, claim), "define")
        guest.defined.answer(seen_content(content_of(claim)))

    def _undefine(self, guest: Guest) -> None:
        assert guest.defined is not None
        guest.defined.begin_end()
        self._until_answered(lambda: guest.host.undefine(guest.instance), "undefine")
        guest.defined.end()

    def _drop(self, host: Machine, consumer: str, claimed: Record) -> None:
        claimed.begin_end()
        self._ask_host(host, "drop_claim", instance=consumer)
        claimed.end()

    def _forget(self, record: Record) -> None:
        """Leave something to the audit."""
        record.begin_end()
        self.cloud.forgotten.append(record)
        self.done["forgotten"] += 1

    def _ask(self, method: str, **arguments: Any) -> Any:
        return self._until_answered(
            lambda: self.scheduler.call(method, **arguments), method, errors.NoValidHost
        )

    def _ask_host(self, host: Machine, command: str, **arguments: Any) -> Any:
        def ask() -> Any:
            try:
                return host.agent.ask(command, **arguments)
            except ComputeAgentError as error:
                if "cannot give" in str(error):
                    raise ClaimRefused(str(error)) from error
                raise

        return self._until_answered(ask, f"{command} on {host.name}: {arguments}", ClaimRefused)

    def _until_answered(
        self, ask: Callable[[], _Answer], what: str, *final: type[Exception]
    ) -> _Answer:
        def note_again(name: str) -> None:
            self.done[f"again: {name}"] += 1

        return ask_until_answered(ask, what, note_again, final=final)

    def _record(self, consumer: str, *places: str) -> Record:
        return Record(self.cloud.history, consumer, *places)


def _amounts(allocations: Mapping[str, Any]) -> Content:
    """Return amounts by class and provider."""
    return {
        f"{name} of {provider}": amount
        for provider, amounts in allocations.items()
        for name, amount in amounts.items()
    }


def _requests(selections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(selection["allocation_request"]) for selection in selections]


def _spec(guest: Guest) -> dict[str, Any]:
    return {**guest.shape.spec("project"), "instance_uuid": guest.instance}
