"""Reports of a search about its own course.

The search decides; a reporter may listen. Every method does nothing here, so that a search without
a listener costs a method call for each decision about groups and trees. The solver makes far more
decisions: it calls no reporter at all unless there is a listener.
"""

from collections.abc import Sequence

from placement_server.candidates.index.arrays import IntArray, SlotArray
from placement_server.candidates.search.problem import Positions


class Reporter:
    """The decisions of a search, one method each.

    :cvar wants: whether there is a listener. Arguments that cost something are only made then.
    """

    wants = False

    def providers_left(self, group: str, reason: str, slots: SlotArray | IntArray) -> None:
        """Report the slots that a filter of a group left, possibly with dead ones among them."""

    def roots_rejected(self, group: str, reason: str, roots: IntArray | Sequence[int]) -> None:
        """Report the roots that lost their last way to serve a group because of `reason`."""

    def tree_rejected(self, root: int, reason: str) -> None:
        """Report a tree in which no combination works, by its root."""

    def candidate(self) -> None:
        """Report a tree that gave a candidate."""

    # -- decisions of the solver, each about all trees of one class

    def item_placed(self, group: int, position: int) -> None:
        """Report that an item of a group takes a position, for now."""

    def item_taken_back(self, group: int, position: int) -> None:
        """Report that an item of a group leaves its position again: the solver backtracks."""

    def dead_end(self, group: int) -> None:
        """Report that no position is left for an item of a group, as the others are placed."""

    def solution(self, positions: Positions) -> None:
        """Report a placement of all items."""

    def solution_refused(self, positions: Positions) -> None:
        """Report a placement of all items that breaks a rule about all of them together."""


SILENT = Reporter()
