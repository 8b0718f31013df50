"""Log of the changes that passes wrote, and their history over restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from compute_agent.programs.decoding import Number
from compute_agent.provider_tree.inventory import Inventory, InventoryRecord, equal_records
from compute_agent.report.steps import SetInventories, SetInventory
from compute_agent.state.files import StateFile, StateUnusable

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.steps import Step
    from compute_agent.report.written_changes import WrittenChange
    from compute_agent.virt.driver import ClassChange

LOG = logging.getLogger(__name__)

LENGTH: Final = 100
FILE: Final = "history.json"
LINES_OF_A_PASS: Final = 20
"""A larger plan, such as that of a new host, is not logged line by line."""


class PastChange(Struct, frozen=True):
    """One change. `at` in seconds since the epoch."""

    at: Number
    node: str
    text: str
    is_loss: bool


class History(Struct, frozen=True):
    """The last changes, the oldest first."""

    changes: tuple[PastChange, ...] = ()


class ChangeHistory:
    """Changes as they were written. Safe for threads.

    :param state_path: the directory with the file that keeps them over restarts; None: nothing
        does. One that is damaged or cannot be written costs the history alone.
    """

    def __init__(self, state_path: Path | None = None) -> None:
        self._mutex = threading.Lock()
        self.file = (
            StateFile(state_path / FILE, History, "the last changes that it wrote")
            if state_path is not None
            else None
        )
        self._changes: deque[PastChange] = deque(self._kept_changes(), maxlen=LENGTH)
        self._losses: dict[tuple[str, str, str | None], PastChange] = {}

    def record(self, node: str, changes: Iterable[WrittenChange]) -> None:
        """Take in what was written just now; what comes back is not lost any more."""
        now = time.time()
        with self._mutex:
            for change in changes:
                past = PastChange(now, node, change.text, change.is_loss)
                self._changes.append(past)
                key = (node, change.provider, change.resource_class)
                self._losses.pop(key, None)
                if change.is_loss:
                    self._losses[key] = past
            if self.file is None:
                return
            try:
                self.file.save(History(tuple(self._changes)))
            except StateUnusable as error:
                LOG.warning("The last changes will not survive a restart: %s", error)

    def _kept_changes(self) -> Sequence[PastChange]:
        try:
            history = self.file and self.file.load()
        except StateUnusable as error:
            LOG.warning("The last changes before this start are not known: %s", error)
            return ()
        return history.changes if history else ()

    def changes(self) -> list[PastChange]:
        """Return the last changes, the oldest first."""
        with self._mutex:
            return list(self._changes)

    def losses(self, node: str) -> list[PastChange]:
        """Return what a node has less of since this process runs."""
        with self._mutex:
            return [past for past in self._losses.values() if past.node == node]


def log_changes(
    node: str,
    steps: Sequence[Step],
    tree_left: ProviderTree | None,
    history: ChangeHistory,
    class_changes: Collection[ClassChange] = (),
) -> None:
    """Log what was written for a node, each change of a few and the losses of many.

    :param history: gets the changes.
    :param class_changes: what classes became by a reshape.
    :param tree_left: the tree as the pass before left it, None when there was none. Where placement
        had something else in the meantime, another client changed it: that is logged as a
        warning, once for each time, because it is undone.
    """
    if not steps:
        return
    from compute_agent.report.written_changes import written_changes

    changes = written_changes(steps, class_changes)
    history.record(node, changes)
    loss_count = sum(written.is_loss for written in changes)
    is_small = len(changes) <= LINES_OF_A_PASS
    LOG.info(
        "Node %s: %d change(s) written to placement%s.",
        node,
        len(steps),
        "" if is_small else "; `compute-agent history` lists them",
    )
    for written in changes:
        level = logging.INFO if is_small else logging.DEBUG
        if written.is_loss and loss_count <= LINES_OF_A_PASS:
            level = logging.WARNING
        LOG.log(level, "Node %s: %s", node, written.text)
    if loss_count > LINES_OF_A_PASS:
        LOG.warning("Node %s: %d provider(s) or amounts were lost.", node, loss_count)
    for change in _inventory_changes(steps):
        if tree_left is None or not tree_left.exists(change.uuid):
            continue
        before = tree_left.data(change.uuid).inventory
        for overwritten_class in _overwritten_classes(before, change.before, change.after):
            LOG.warning(
                "Node %s: another client changed the inventory of %s (%s) in placement: %s. The "
                "agent reports what the host has; use a provider.yaml or the options of the agent "
                "to change that, or a ratio or reserve, which it keeps.",
                node,
                change.name,
                change.uuid,
                overwritten_class,
            )


def _inventory_changes(steps: Sequence[Step]) -> Iterator[SetInventory]:
    for step in steps:
        if isinstance(step, SetInventory):
            yield step
        elif isinstance(step, SetInventories):
            yield from step.changes


def _overwritten_classes(
    written_inventory: Inventory, found_inventory: Inventory, after: Inventory
) -> Iterator[str]:
    """Yield what was found to differ from what was left, and is as it was left again."""
    for resource_class in sorted(written_inventory.keys() & after.keys()):
        ours, theirs = written_inventory[resource_class], found_inventory.get(resource_class)
        if not equal_records(ours, after[resource_class]):
            # the host has changed as well, so nothing is undone
            continue
        if theirs is None:
            yield f"{resource_class} was deleted and is there again"
        elif not equal_records(ours, theirs):
            yield f"{resource_class} {_differences(theirs, ours)}"


def _differences(theirs: InventoryRecord, ours: InventoryRecord) -> str:
    return ", ".join(
        f"{key} {theirs[key]} is {ours[key]} again"
        for key in sorted(ours.keys() & theirs.keys())
        if theirs[key] != ours[key]
    )
