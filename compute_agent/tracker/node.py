"""A node of this agent: the state of its passes, its locks, and its tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compute_agent.tracker.decisions import NodeState
from compute_agent.tracker.node_lock import FairLock

if TYPE_CHECKING:
    from compute_agent.tracker.passes.proposal import Proposal


@dataclass(slots=True)
class Node:
    """One node that this agent manages, as its passes and claims share it."""

    name: str
    uuid: str
    state: NodeState
    lock: FairLock = field(default_factory=FairLock)
    at_work: FairLock = field(default_factory=FairLock)
    """Keeps passes apart, also while one of them waits and has lent the lock to claims."""
    last: Proposal | None = None
    """What was flushed last: the tree, with the named units of the driver, and its facts."""
