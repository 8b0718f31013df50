"""Proposals of passes: the tree that a node should have, beside the one that placement has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from compute_agent.provider_tree import ProviderTree

if TYPE_CHECKING:
    from compute_agent.provider_config.additions import MergeResult
    from compute_agent.virt.driver import ClassChange


class PassTarget(NamedTuple):
    """The node a pass is about, and what the pass may do."""

    name: str
    uuid: str
    rename_allowed: bool = True


class Grounds(NamedTuple):
    """All that a proposal follows from: while they are equal, nothing has changed.

    `reading`: what the driver read of the node or, where it does not say, its tree. `ledger`,
    `config_files`: how often the one was changed and the others were read.
    """

    target: PassTarget
    base: ProviderTree
    reading: object
    capabilities: Mapping[str, bool]
    ledger: int
    config_files: int


@dataclass(slots=True)
class Proposal:
    """A wanted tree beside the one placement has, ready to be flushed or printed."""

    base: ProviderTree
    wanted_tree: ProviderTree
    allocations: Mapping[str, Mapping[str, Any]] | None
    original_allocations: Mapping[str, Mapping[str, Any]] | None
    merge_result: MergeResult
    root_uuid: str
    problems: list[Exception] = field(default_factory=list)
    faults_over: frozenset[str] = frozenset()
    """Providers of devices whose mark as broken was taken off."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The driver's facts about the node."""
    caveats: tuple[str, ...] = ()
    """What of the wanted tree is not what it should be, by the driver."""
    grounds: Grounds | None = None
    class_changes: tuple[ClassChange, ...] = ()
    """What classes become by the reshape."""
    guesses: tuple[ClassChange, ...] = ()
    """Those of another size that the driver does not declare."""
    is_settled: bool = False
    """Its flush has shown that there is nothing to do, and would again by the same grounds."""
