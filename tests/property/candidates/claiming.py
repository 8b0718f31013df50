"""Claims until nothing fits, by brute force: the fewest that any choices come to, and the most."""

from __future__ import annotations

import random
from collections.abc import Sequence

from placement_server.candidates.query.query import CandidateQuery
from tests.property.oracle import World, answer
from tests.unit.candidates.forest import Provider

# States beyond which the choices are sampled instead of all tried.
_MOST_STATES = 3000

State = tuple[int, ...]
Claim = tuple[tuple[int, int], ...]


class Claims:
    """All claims of one query on a world, and what is free.

    A claim fits as long as each provider has free what it takes: the other rules do not depend on
    what is used.
    """

    def __init__(self, providers: Sequence[Provider], query: CandidateQuery) -> None:
        world = World(providers)
        keys = [(name, rc) for name, stock in world.stock.items() for rc in stock]
        place = {key: at for at, key in enumerate(keys)}
        self.free: State = tuple(
            int((i.total - i.reserved) * i.ratio) - i.used
            for i in (world.stock[name][rc] for name, rc in keys)
        )
        amounts = {total for total, _mappings in answer(providers, query, nested=True)}
        self.claims: list[Claim] = sorted(
            tuple(sorted((place[name, rc], n) for name, rc, n in amount)) for amount in amounts
        )
        self._known: dict[State, tuple[int, int]] = {}

    def fitting(self, free: State) -> list[Claim]:
        return [claim for claim in self.claims if all(free[at] >= n for at, n in claim)]

    @staticmethod
    def after(free: State, claim: Claim) -> State:
        left = list(free)
        for at, n in claim:
            left[at] -= n
        return tuple(left)

    def extremes(self) -> tuple[int, int] | None:
        """The fewest and the most claims; None when there are too many ways to try."""
        try:
            return self._extremes(self.free)
        except RecursionError:
            return None

    def _extremes(self, free: State) -> tuple[int, int]:
        if free not in self._known:
            if len(self._known) > _MOST_STATES:
                raise RecursionError
            after = [
                self._extremes(state)
                for state in {self.after(free, claim) for claim in self.fitting(free)}
            ]
            fewest = 1 + min((low for low, _high in after), default=-1)
            most = 1 + max((high for _low, high in after), default=-1)
            self._known[free] = fewest, most
        return self._known[free]

    def run(self, seed: int) -> int:
        """The number of claims of one run, by chance or greedily the last or the first."""
        free, count = self.free, 0
        choices = random.Random(seed)
        while fitting := self.fitting(free):
            claim = choices.choice(fitting) if seed > 1 else fitting[-seed]
            free, count = self.after(free, claim), count + 1
        return count
