"""A node of this agent: the state of its passes, its locks, and its tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compute_agent.tracker.decisions import NodeState
from compute_agent.tracker.node_lock import FairLock

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree


@dataclass(slots=True)
class Node:
    """One node that this agent manages, as its passes and claims share it."""

    name: str
    uuid: str
    state: NodeState
    lock: FairLock = field(default_factory=FairLock)
    at_work: FairLock = field(default_factory=FairLock)
    """Keeps passes apart, also while one of them waits and has lent the lock to claims."""
    reported_tree: ProviderTree | None = None
    """The tree as the last flush left it, with the named units of the driver."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The driver's facts about the node when that tree was made."""
    sums_of_tree: tuple[ProviderTree, Mapping[str, object]] | None = None
    """A tree, and what the status shows of it."""
