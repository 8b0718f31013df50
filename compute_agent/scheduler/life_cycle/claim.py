"""Claims as values: what an instance holds, on which host, and for which groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compute_agent.placement.allocations.amounts import Amounts, copy_of, of_record
from compute_agent.scheduler.manager import Selection


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance holds.

    :param host: name of the host's root provider.
    :param root: uuid of the host's root provider.
    :param mappings: group to the providers that serve it.
    :param alternates: hosts to try later; not claimed.
    :param is_claimed: False while the agents of the fleet claim themselves: then `allocations` is
        what the agent of the host is to claim.
    """

    instance: str
    host: str
    root: str
    allocations: Amounts
    mappings: Mapping[str, tuple[str, ...]]
    alternates: tuple[Selection, ...] = ()
    is_claimed: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "instance": self.instance,
            "claimed": self.is_claimed,
            "host": self.host,
            "root": self.root,
            "allocations": copy_of(self.allocations),
            "mappings": {suffix: list(uuids) for suffix, uuids in self.mappings.items()},
            "alternates": [selection.as_dict() for selection in self.alternates],
        }


def claim_of(instance: str, selections: Sequence[Selection]) -> Claim:
    """Return the claim that the first of `selections` stands for, the others as alternates."""
    first, *others = selections
    request = json.loads(first.allocation_request)
    return Claim(
        instance=instance,
        host=first.nodename,
        root=first.compute_node_uuid,
        allocations=of_record(request),
        mappings={suffix: tuple(uuids) for suffix, uuids in request["mappings"].items()},
        alternates=tuple(others),
    )
