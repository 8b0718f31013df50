"""What a search tells about itself while it runs.

The search decides; a reporter may listen. Every method does nothing here, so that a search nobody
listens to costs a method call for each decision.
"""

from collections.abc import Sequence

from placement_server.candidates.index.columns import IntArray, SlotArray


class Reporter:
    """The decisions of a search, one method each.

    :cvar wants: whether anybody listens. Arguments that cost something are only made then.
    """

    wants = False

    def providers_left(self, group: str, reason: str, slots: SlotArray) -> None:
        """A filter of a group left these slots, dead ones possibly among them."""

    def roots_rejected(self, group: str, reason: str, roots: IntArray | Sequence[int]) -> None:
        """These roots lost their last way to serve a group because of ``reason``."""

    def tree_rejected(self, root: int, reason: str) -> None:
        """No combination works in the tree with this root."""

    def candidate(self) -> None:
        """A tree gave a candidate."""


SILENT = Reporter()
