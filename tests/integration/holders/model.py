"""Holdings of consumers at places, as requests were answered and as looks show them. Pure.

A place is the libvirt or the claim book of a host, or placement. A unit is a thing of which there
is one, and has one holder.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

Content = Mapping[str, int]
"""Amounts by thing; of a unit 1."""


@dataclass(eq=False)
class Holding:
    """What a consumer has at a place.

    :ivar content: None where no request for it was answered.
    :ivar asked: when the first request for it began.
    :ivar answered: from then on it is there for sure.
    :ivar ending: when the first request that ends it began.
    :ivar gone: when that was answered.
    """

    place: str
    consumer: str
    content: Content | None
    asked: float
    answered: float = inf
    ending: float = inf
    gone: float = inf


@dataclass(frozen=True)
class Look:
    """What a place shows between two moments, by consumer."""

    place: str
    begin: float
    end: float
    content: Mapping[str, Content]


@dataclass
class History:
    """All that was done and seen; lists are appended to by several threads.

    :ivar totals: what there is, by place.
    """

    totals: Mapping[str, Content]
    holdings: list[Holding] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)


class Record:
    """A request by which a consumer has something, at one place or divided among several."""

    def __init__(self, history: History, consumer: str, *places: str) -> None:
        now = time.monotonic()
        self._history = history
        self.holdings = [Holding(place, consumer, None, now) for place in places]
        self.content: Content = {}
        history.holdings += self.holdings

    def answer(self, content: Content) -> None:
        """Note the answer."""
        self.content = content
        for holding in self.holdings:
            there = self._history.totals[holding.place]
            several = len(self.holdings) > 1
            holding.content = {t: n for t, n in content.items() if not several or t in there}
            holding.answered = time.monotonic()

    def begin_end(self) -> None:
        """Note that a request is made that ends it."""
        for holding in self.holdings:
            holding.ending = time.monotonic()

    def end(self) -> None:
        """Note that it ended, or never was."""
        for holding in self.holdings:
            holding.gone = time.monotonic()
            holding.ending = min(holding.ending, holding.gone)

    def go_on(self, consumer: str = "") -> Record:
        """Note that after a request it is there still, or another consumer's."""
        holdings = self.holdings
        after = Record(
            self._history, consumer or holdings[0].consumer, *(h.place for h in holdings)
        )
        for before, holding in zip(holdings, after.holdings, strict=True):
            holding.asked = min(before.ending, holding.asked)
        after.answer(self.content)
        self.end()
        return after


def contradictions(history: History) -> Iterator[str]:
    """Iterate over what cannot be."""
    totals = history.totals
    by_place: dict[str, list[Holding]] = {place: [] for place in totals}
    for holding in history.holdings:
        by_place[holding.place].append(holding)
    for place, holdings in by_place.items():
        yield from _given_twice(place, holdings, totals[place])
    for look in history.looks:
        yield from _unlike(look, by_place[look.place], totals[look.place])


def _given_twice(place: str, holdings: Sequence[Holding], total: Content) -> Iterator[str]:
    """Iterate over what answers gave out beyond what there is."""
    sure = [
        holding for holding in holdings if holding.content and holding.answered < holding.ending
    ]
    moments = sorted(
        [(holding.answered, 1, number) for number, holding in enumerate(sure)]
        + [(holding.ending, 0, number) for number, holding in enumerate(sure)]
    )
    held: Counter[str] = Counter()
    for moment, is_begin, number in moments:
        content = sure[number].content or {}
        if not is_begin:
            held.subtract(content)
            continue
        held.update(content)
        for thing in _beyond({thing: held[thing] for thing in content}, total):
            yield (
                f"{place}: {thing} was given to {sure[number].consumer} at {moment:.2f}, "
                f"{held[thing]} of {total.get(thing, 1)} then"
            )


def _beyond(content: Content, total: Content) -> Iterable[str]:
    """Return things of which there is less; of what `total` does not name there is one."""
    return [thing for thing, amount in content.items() if amount > total.get(thing, 1)]


def _unlike(look: Look, holdings: Sequence[Holding], total: Content) -> Iterator[str]:
    """Iterate over what a look shows twice, or answers do not, and what it does not show."""
    possible: dict[str, list[Holding]] = {}
    together: Counter[str] = Counter()
    for holding in holdings:
        if holding.asked <= look.end and holding.gone >= look.begin:
            possible.setdefault(holding.consumer, []).append(holding)
        if holding.answered <= look.begin and holding.ending >= look.end:
            seen = look.content.get(holding.consumer, {})
            if seen != holding.content:
                yield (
                    f"{look.place} at {look.begin:.2f}: {holding.consumer} has {seen}, and "
                    f"{holding.content} was answered at {holding.answered:.2f}"
                )
    for consumer, content in look.content.items():
        # what waits for the audit since before takes no floating CPU and no memory from others
        if any(holding.ending >= look.begin for holding in possible.get(consumer, ())):
            together.update(content)
        if not any(h.content in (None, content) for h in possible.get(consumer, ())):
            yield f"{look.place} at {look.begin:.2f}: {consumer} has {content}, given by nobody"
    for thing in _beyond(together, total):
        holders = sorted(name for name, content in look.content.items() if thing in content)
        yield f"{look.place} at {look.begin:.2f}: {thing} is held by {', '.join(holders)}"
