"""Demands on a fleet that is left alone: one request per agent and period, and no less.

requests          at most one per pass, and besides
                    1 %  repeats, where the server has closed a kept-alive connection
                    one  for each pass at work at the end: its request is counted, it is not
passes            one per agent and period: the next is due a period after the last has ended,
                  which is `LATE` seconds later at most. Where they are later on average, the
                  machine is too busy for the process that simulates all agents, which is no fault
                  of theirs: only the most is demanded then
  of all agents   on average between that and one; where the phase is no whole number of
                  periods, within four standard deviations of what the drawn starts make of it
  of each agent   as many as fit in with `LATE`; at most one more than there are whole periods
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LATE = 1.0
"""Seconds that a pass takes and is started late, at most."""
REPEATED = 0.01
ROUNDING = 0.001
"""Of the average: agents for which the end of the phase comes a moment late."""


@dataclass(frozen=True)
class QuietPhase:
    """What was counted.

    :param passes: passes that ended in the phase, by agent; one without any may be left out.
    :param at_work: passes that had begun and not ended when the phase did.
    :param late: seconds from when a pass was due until it ended, on average.
    """

    agents: int
    seconds: float
    period: float
    requests: int
    passes: Mapping[str, int]
    at_work: int
    late: float = 0.0

    @property
    def most_requests(self) -> int:
        """How many requests may have been answered."""
        return math.floor(self.passes_of_all * (1.0 + REPEATED)) + self.at_work

    @property
    def passes_of_all(self) -> int:
        return sum(self.passes.values())

    @property
    def is_held_up(self) -> bool:
        """Whether the machine is too busy to begin passes when they are due."""
        return self.late > LATE

    @property
    def average(self) -> float:
        """Passes per agent and period."""
        return self.passes_of_all / (self.agents * self.seconds / self.period)

    @property
    def averages_allowed(self) -> tuple[float, float]:
        """The least and the most passes per agent and period."""
        periods = self.seconds / self.period
        rest = periods % 1.0
        deviation = 4.0 * math.sqrt(rest * (1.0 - rest) / self.agents) / periods
        most = 1.0 + deviation + ROUNDING
        least = 0.0 if self.is_held_up else self.period / (self.period + LATE) - deviation
        return least, most

    @property
    def each_allowed(self) -> tuple[int, int]:
        """The least and the most passes of one agent."""
        least = 0 if self.is_held_up else math.floor(self.seconds / (self.period + LATE))
        return least, math.floor(self.seconds / self.period) + 1

    @property
    def extremes(self) -> tuple[int, int]:
        """The passes of the agents that had fewest and most."""
        pass_counts = list(self.passes.values())
        return min(pass_counts, default=0) if len(pass_counts) >= self.agents else 0, max(
            pass_counts, default=0
        )

    @property
    def holds(self) -> bool:
        """Whether all that is demanded does."""
        least, most = self.averages_allowed
        fewest_allowed, most_allowed = self.each_allowed
        fewest, highest = self.extremes
        return (
            self.requests <= self.most_requests
            and least <= self.average <= most
            and fewest_allowed <= fewest
            and highest <= most_allowed
        )

    def note(self) -> str:
        """Say what was counted and what is allowed."""
        least, most = self.averages_allowed
        fewest, highest = self.extremes
        return (
            f"{self.requests} requests in {self.passes_of_all} passes, at most "
            f"{self.most_requests} (one each, {REPEATED:.0%} repeats on connections the server "
            f"closed, {self.at_work} of passes at work at the end); {self.average:.3f} passes per "
            f"agent and period, {least:.3f} to {most:.3f} (next one due after the last ended, "
            f"{self.late:.1f} s late on average, starts drawn); {fewest} to {highest} of each "
            f"agent, {self.each_allowed[0]} to {self.each_allowed[1]}"
        )
