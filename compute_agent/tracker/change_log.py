"""Log of the changes that a pass wrote: how many, which, and whose work they undo."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from compute_agent.provider_tree.inventory import Inventory, InventoryRecord, equal_records
from compute_agent.report.steps import SetInventories, SetInventory

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.steps import Step
    from compute_agent.tracker.change_history import ChangeHistory
    from compute_agent.virt.driver import ClassChange

LOG = logging.getLogger(__name__)

LINES_OF_A_PASS: Final = 20
"""A larger plan, such as that of a new host, is not logged line by line."""
_NOTHING: Final[Inventory] = {}


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
        was_known = tree_left is not None and tree_left.exists(change.uuid)
        before = (
            tree_left.data(change.uuid).inventory
            if tree_left is not None and was_known
            else _NOTHING
        )
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
