"""Covers: consumers that hold what is lacked, and without any one of them do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from placement_server.candidates.limits import sizes
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.make_room.holdings import Holdings, Key

# Consumers that are tried between two looks at the clock.
_BETWEEN_LOOKS: Final = 64


@dataclass(slots=True)
class Covers:
    """The covers by consumers that may move and have not left.

    :ivar look: called now and then, as there may be too many covers to find them all; may raise.
    :ivar out: the consumers that have left.
    """

    holdings: Holdings
    look: Callable[[], None]
    account: Account
    out: set[int] = field(default_factory=set)
    _out_at_first: frozenset[int] = frozenset()
    _tried_count: int = 0

    def let_out(self, consumers: Iterable[int]) -> None:
        """Let consumers leave for good."""
        self.out.update(consumers)
        self._out_at_first = frozenset(self.out)

    @contextmanager
    def all_at_first(self) -> Iterator[None]:
        """Count those who left later as being there within a block."""
        out, self.out = self.out, set(self._out_at_first)
        try:
            yield
        finally:
            self.out = out

    def of(self, short: dict[Key, int], size: int) -> Iterator[tuple[int, ...]]:
        """Yield the covers of so many consumers; of those that are alike the first."""
        seen = set[tuple[int, ...]]()
        entry = sizes.ENTRY + sizes.key(size)
        try:
            for consumers in self._extended((), short, size):
                cover = tuple(sorted(consumers))
                if len(cover) == size and cover not in seen:
                    self.account.take(entry)
                    seen.add(cover)
                    if size == 1 or self._is_minimal(cover, short):
                        yield cover
        finally:
            self.account.give(len(seen) * entry)

    def _is_minimal(self, cover: tuple[int, ...], short: dict[Key, int]) -> bool:
        amounts = [[self.holdings.holders(key).get(c, 0) for c in cover] for key in short]
        lacks = list(zip(amounts, map(sum, amounts), short.values(), strict=True))
        return all(
            any(of[at] and total - of[at] < lack for of, total, lack in lacks)
            for at in range(len(cover))
        )

    def _extended(
        self, chosen: tuple[int, ...], short: dict[Key, int], most: int
    ) -> Iterator[tuple[int, ...]]:
        if not short:
            yield chosen
            return
        left = most - len(chosen)
        if not left:
            return
        holders = self.holdings.holders
        key, lack = next(iter(short.items()))
        tried = set[int]()
        for consumer, amount in holders(key).items():
            if amount * left < lack:
                return
            self._tried_count += 1
            if self._tried_count % _BETWEEN_LOOKS == 0:
                self.look()
            if consumer in chosen or consumer in self.out:
                continue
            identity = int(self.holdings.identities[consumer])
            if identity in tried:
                continue
            tried.add(identity)
            rest = {
                k: n for k, lack in short.items() if (n := lack - holders(k).get(consumer, 0)) > 0
            }
            yield from self._extended((*chosen, consumer), rest, most)
