"""Checker of histories for linearizability: each operation can have happened at one moment.

The moment is between its begin and its end, and the states of the model in the order of these
moments explain every result. All orders are followed at once: a configuration is a state that may
be, with those unended operations that have happened in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

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
