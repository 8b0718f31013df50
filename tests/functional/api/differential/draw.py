"""Random parts of requests, most of them right at the moment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from ..wsgi_client import Client
from .vocabulary import CLASSES, CONSUMERS, PROVIDERS

_Choice = TypeVar("_Choice")


class Draw:
    """One stream of random choices. `ours` is asked for what is true at the moment."""

    def __init__(self, seed: int, ours: Client) -> None:
        self.random = random.Random(seed)
        self.ours = ours
        self.consumers = list(CONSUMERS)

    def chance(self) -> float:
        """Evenly between 0 and 1."""
        return self.random.random()

    def pick(self, choices: Sequence[_Choice]) -> _Choice:
        return self.random.choice(choices)

    def some(self, choices: list[_Choice], most: int = 3, least: int = 0) -> list[_Choice]:
        return self.random.sample(choices, self.random.randint(least, min(most, len(choices))))

    def generation(self, provider: str) -> int:
        answer = self.ours.get(f"/resource_providers/{provider}")
        right = answer.json["generation"] if answer.status == 200 else 0
        return int(right if self.chance() < 0.9 else self.random.randint(0, 3))

    def consumer_generation(self, consumer: str) -> int | None:
        right = self.ours.get(f"/allocations/{consumer}").json.get("consumer_generation")
        return right if self.chance() < 0.9 else self.pick([None, 0, 1, 2, 33])

    def provider(self) -> str:
        chance = self.chance()
        if chance < 0.02:
            return self.pick(["nonsense", PROVIDERS[0].upper(), PROVIDERS[0].replace("-", "")])
        return self.pick(PROVIDERS)

    def stock(self, provider: str) -> dict[str, Any]:
        answer = self.ours.get(f"/resource_providers/{provider}/inventories")
        known = answer.status == 200 and self.chance() < 0.7
        return dict(answer.json["inventories"]) if known else {}

    def resources(self) -> dict[str, int]:
        most = self.pick([1, 1, 2, 3])
        classes = self.some(CLASSES, most, 1)
        if self.chance() < 0.03:
            classes.append("CUSTOM_NOPE")
        return {name: self.pick([1, 1, 1, 1, 2, 2, 4, 8, 1000]) for name in classes}
