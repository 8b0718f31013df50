"""Reports of a search about its own course.

The search decides; a reporter may listen. Every method does nothing here, so that a search without
a listener costs a method call for each decision.
"""

from collections.abc import Sequence

from placement_server.candidates.index.columns import IntArray, SlotArray


class Reporter:
    """The decisions of a search, one method each.

    :cvar wants: whether there is a listener. Arguments that cost something are only made then.
    """

    wants = False

    def providers_left(self, group: str, reason: str, slots: SlotArray) -> None:
        """Report the slots that a filter of a group left, possibly with dead ones among them."""

    def roots_rejected(self, group: str, reason: str, roots: IntArray | Sequence[int]) -> None:
        """Report the roots that lost their last way to serve a group because of ``reason``."""

    def tree_rejected(self, root: int, reason: str) -> None:
        """Report a tree in which no combination works, by its root."""

    def candidate(self) -> None:
        """Report a tree that gave a candidate."""


SILENT = Reporter()
