"""Preorder, in which the providers of a tree occupy slots."""

import logging
from collections.abc import Sequence

from placement_server.candidates.errors import InconsistentRows
from placement_server.store.changes.snapshot import ProviderRow

LOG = logging.getLogger(__name__)


def in_preorder(root_id: int, rows: Sequence[ProviderRow]) -> list[tuple[ProviderRow, int]]:
    """Put the providers of a tree in preorder with the positions of their parents.

    A tree whose providers are not all below its root is logged and left out: a search can still
    answer from all others.
    """
    if len(rows) == 1 and rows[0].parent_id is None:
        return [(rows[0], -1)]
    children: dict[int | None, list[ProviderRow]] = {}
    for row in sorted(rows, key=lambda provider: provider.id):
        children.setdefault(row.parent_id, []).append(row)
    in_order: list[tuple[ProviderRow, int]] = []
    stack = [(row, -1) for row in children.get(None, ()) if row.id == root_id]
    while stack:
        row, parent = stack.pop()
        position = len(in_order)
        in_order.append((row, parent))
        stack.extend((child, position) for child in reversed(children.get(row.id, ())))
    if len(in_order) != len(rows):
        LOG.error(
            "%s",
            InconsistentRows(
                f"The providers {[row.uuid for row in rows]} have the root with id {root_id}, "
                f"but only {len(in_order)} of {len(rows)} are below it. They are left out of all "
                "allocation candidates until their parents and roots are corrected in the database."
            ),
        )
        return []
    return in_order
