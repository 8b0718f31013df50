"""Request to the host for what it is to give to an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compute_agent.placement.allocations.amounts import Amounts


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What the host is asked to give to an instance.

    :param amounts: what was allocated for it, on this host and elsewhere; empty: whatever
        placement holds for it here.
    :param providers_of: request group to the providers that serve it.
    :param node: empty: the node that the providers belong to.
    :param migration: consumer under which what the instance has here is kept meanwhile.
    :param apart_from: members of its anti-affinity group, of which a host may have `together`.
    :param needs: what its flavor says, by class, without extra specs; with `project`, `user` and
        the specification as it was sent, for an instance that comes without an allocation.
    """

    instance: str
    amounts: Amounts = field(default_factory=dict)
    providers_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    node: str = ""
    migration: str = ""
    apart_from: frozenset[str] = frozenset()
    together: int = 1
    needs: Mapping[str, int] = field(default_factory=dict)
    project: str = ""
    user: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
