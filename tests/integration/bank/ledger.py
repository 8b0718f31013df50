"""The knowledge of one teller, for the final reckoning."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Holding = dict[str, dict[str, int]]
"""Group (provider, or root of its tree) -> resource class -> amount."""


@dataclass
class GuardedWrite:
    """A write that a generation guards. `outcome`: acknowledged, refused or unknown."""

    subject: str
    generation: int
    outcome: str
    content: int


@dataclass
class Ledger:
    """`possible`: what each consumer may hold in the end, {} for nothing.

    `raised` counts by provider how often acknowledged writes raised its generation, `perhaps`
    how often writes did whose outcome is unknown.
    """

    possible: dict[str, list[Holding]] = field(default_factory=dict)
    shared: list[GuardedWrite] = field(default_factory=list)
    inventories: list[GuardedWrite] = field(default_factory=list)
    raised: Counter[str] = field(default_factory=Counter)
    perhaps: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(vars(self), default=asdict))

    @classmethod
    def load(cls, path: Path) -> Ledger:
        raw: dict[str, Any] = json.loads(path.read_text())
        ledger = cls(**raw)
        ledger.shared = [GuardedWrite(**guarded) for guarded in raw["shared"]]
        ledger.inventories = [GuardedWrite(**inventory) for inventory in raw["inventories"]]
        for name in ("raised", "perhaps", "counts"):
            setattr(ledger, name, Counter(raw[name]))
        return ledger
