"""Limit of the steps that one plan may cost."""

from __future__ import annotations


class StepsExceeded(Exception):
    """More steps than are allowed would be needed to decide whether a guest fits."""


class StepLimit:
    """Steps of one plan, counted up to a limit.

    :ivar taken: so far.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def take(self) -> None:
        """Count a step.

        :raises StepsExceeded: it is one too many.
        """
        self.taken += 1
        if self.taken > self._limit:
            raise StepsExceeded
