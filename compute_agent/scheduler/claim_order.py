"""In which order the candidates of one host are claimed, and which are not worth trying."""

from __future__ import annotations

from collections.abc import Sequence

from compute_agent.scheduler.answer import Candidate
from compute_agent.scheduler.placement_port import Shortage


class ClaimOrder:
    """The candidates of one host, at most `most` of them tried.

    What is known to be short is not tried again: after provider P had too little of class C for
    an amount n, every candidate that takes n or more of C from P is left out.
    """

    def __init__(self, candidates: Sequence[Candidate], most: int) -> None:
        self._left = list(candidates)
        self._tries_left = most

    def next(self) -> Candidate | None:
        """Return the next candidate to try, None when the host is exhausted."""
        if not self._left or not self._tries_left:
            return None
        self._tries_left -= 1
        return self._left.pop(0)

    def failed(self, candidate: Candidate, shortage: Shortage) -> None:
        """Take note that `candidate` could not be claimed, and of what was short."""
        amount = candidate.amount(shortage.provider, shortage.resource_class)
        if not amount:
            return
        self._left = [
            one
            for one in self._left
            if one.amount(shortage.provider, shortage.resource_class) < amount
        ]
