"""Checker of histories for linearizability: operations of one consumer, and of one inventory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Step(Generic[State]):
    """One operation, as it concerns one object.

    :ivar apply: returns the state after it; None where its result contradicts the state.
    :ivar certain: whether it happened; one without an answer may have happened or not.
    """

    begin: float
    end: float
    text: str
    apply: Callable[[State], State | None]
    certain: bool = True


def contradiction(steps: Iterable[Step[State]], first: State) -> str | None:
    """Return the first operation that no order explains, with the states before it, or None."""
    steps = list(steps)
    begins = [(step.begin, 0, number) for number, step in enumerate(steps)]
    ends = [(step.end, 1, number) for number, step in enumerate(steps)]
    open_steps: set[int] = set()
    configurations: set[tuple[State, frozenset[int]]] = {(first, frozenset())}
    for _, is_end, number in sorted(begins + ends):
        if not is_end:
            open_steps.add(number)
            continue
        reached = _reached(configurations, open_steps, steps)
        left = {
            (state, done - {number})
            for state, done in reached
            if number in done or not steps[number].certain
        }
        if not left:
            states = {state for state, _ in configurations}
            others = [steps[other].text for other in sorted(open_steps - {number})]
            return f"{steps[number].text}\n  before: {states}\n  at the same time: {others}"
        configurations = left
        open_steps.discard(number)
    return None


def _reached(
    configurations: set[tuple[State, frozenset[int]]],
    open_steps: set[int],
    steps: list[Step[State]],
) -> set[tuple[State, frozenset[int]]]:
    """Return what open operations can make of the configurations, in whatever order."""
    reached = set(configurations)
    waiting = list(configurations)
    while waiting:
        state, done = waiting.pop()
        for number in open_steps - done:
            after = steps[number].apply(state)
            if after is None:
                continue
            configuration = (after, done | {number})
            if configuration not in reached:
                reached.add(configuration)
                waiting.append(configuration)
    return reached


OK: Final = "ok"
CONFLICT: Final = "generation conflict"
SHORT: Final = "short"
ABSENT: Final = "absent"
UNANSWERED: Final = "unanswered"

FORGOTTEN: Final = 2.0
"""Seconds after which a request without an answer has happened, or never does."""


@dataclass(frozen=True)
class Operation:
    """One request with what came of it.

    :ivar amounts: what is asked for, by provider.
    :ivar generation: the consumer's that a claim expects, or that a reading returned.
    :ivar short: the provider that a refusal names.
    :ivar number: the total of an inventory, the use that was read, or the amount searched for.
    """

    kind: str
    begin: float
    end: float
    result: str
    consumer: str = ""
    provider: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)
    generation: int | None = None
    short: str = ""
    number: int = 0
    hosts: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        shown = {key: value for key, value in vars(self).items() if value not in ("", None, {}, 0)}
        return ", ".join(f"{key} {value}" for key, value in shown.items())


class Consumer(NamedTuple):
    """What a consumer holds.

    :ivar generation: None where there is no such consumer.
    """

    generation: int | None = None
    amounts: frozenset[tuple[str, int]] = frozenset()


class Inventory(NamedTuple):
    """What is there and who holds how much."""

    total: int
    held: frozenset[tuple[str, int]] = frozenset()

    @property
    def used(self) -> int:
        return sum(amount for _, amount in self.held)

    def holding(self, consumer: str) -> int:
        return dict(self.held).get(consumer, 0)

    def with_holding(self, consumer: str, amount: int) -> Inventory:
        others = {pair for pair in self.held if pair[0] != consumer}
        return Inventory(
            self.total, frozenset(others | ({(consumer, amount)} if amount else set()))
        )


def of_consumer(operation: Operation, state: Consumer) -> Consumer | None:
    """Return what a consumer holds after an operation on it; None where that cannot be."""
    amounts = frozenset(operation.amounts.items())
    match operation.kind, operation.result:
        case "claim", ("ok" | "unanswered"):
            written = Consumer((operation.generation or 0) + 1, amounts)
            return written if state.generation == operation.generation else None
        case "claim", "generation conflict":
            return state if state.generation != operation.generation else None
        case "release", ("ok" | "unanswered"):
            return Consumer() if state.generation is not None else None
        case "release", "absent":
            return state if state.generation is None else None
        case "read", _:
            return state if state == Consumer(operation.generation, amounts) else None
    return state


def of_inventory(operation: Operation, provider: str, state: Inventory) -> Inventory | None:
    """Return an inventory after an operation; None where that cannot be."""
    amount = operation.amounts.get(provider, 0)
    before = state.holding(operation.consumer)
    others = state.used - before
    match operation.kind, operation.result:
        case "claim", ("ok" | "unanswered"):
            fits = others + amount <= state.total or amount <= before
            return state.with_holding(operation.consumer, amount) if fits else None
        case "claim", "short" if operation.short == provider:
            return state if others + amount > state.total else None
        case "release", ("ok" | "unanswered"):
            return state.with_holding(operation.consumer, 0)
        case "resize", ("ok" | "unanswered"):
            return Inventory(operation.number, state.held)
        case "use", _:
            return state if state.used == operation.number else None
        case "search", _:
            has_room = state.total - state.used >= operation.number
            return state if has_room == (provider in operation.hosts) else None
    return state


def contradictions(operations: Sequence[Operation], totals: Mapping[str, int]) -> Iterator[str]:
    """Iterate over what no order of the operations explains: per consumer, per inventory.

    :param totals: of the inventories, at the beginning.
    """
    for consumer in sorted({operation.consumer for operation in operations} - {""}):
        steps = [
            _step(operation, partial(of_consumer, operation))
            for operation in operations
            if operation.consumer == consumer
        ]
        if wrong := contradiction(steps, Consumer()):
            yield f"consumer {consumer}: {wrong}"
    for provider, total in totals.items():
        steps = [
            _step(operation, partial(of_inventory, operation, provider))
            for operation in operations
            if operation.provider in ("", provider) and operation.kind != "read"
        ]
        if wrong := contradiction(steps, Inventory(total)):
            yield f"inventory of {provider}: {wrong}"


def _step(operation: Operation, apply: Callable[[Any], Any]) -> Step[Any]:
    certain = operation.result != UNANSWERED
    end = operation.end if certain else operation.end + FORGOTTEN
    return Step(operation.begin, end, operation.text, apply, certain)
