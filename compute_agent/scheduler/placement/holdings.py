"""Holdings of consumers: as they were read, and as they shall be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from compute_agent.placement.allocations.amounts import Amounts


class Holding(Struct, frozen=True):
    """What a consumer holds: provider to class to amount; and the record as placement wrote it."""

    allocations: Amounts
    record: Mapping[str, Any]

    @property
    def generation(self) -> int:
        """How often it was written, 0 for a consumer that holds nothing."""
        return int(self.record.get("consumer_generation") or 0)


class WantedHolding(Struct, frozen=True):
    """What a consumer shall hold, instead of what it was read to hold.

    `project_id` and `user_id` are for a consumer that holds nothing yet.
    """

    holding: Holding
    allocations: Amounts
    consumer_type: str
    project_id: str = ""
    user_id: str = ""
    mappings: Mapping[str, Sequence[str]] | None = None
