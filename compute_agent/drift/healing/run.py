"""Healing the allocations of many instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from compute_agent import errors
from compute_agent.drift.healing.healer import Healer, Outcome, State
from compute_agent.drift.instances.instance import InstanceCatalogue


class NoSuchInstance(errors.ComputeAgentError):
    """The source of instances does not know the one that was asked for."""


@dataclass(slots=True)
class HealResult:
    """What was, or would be, done.

    :ivar looked_at: instances that the source listed.
    :ivar outcomes: of the instances that were healed, could not be, hold too much, or are left
        alone.
    :ivar more: the bound was reached, and another instance is to be healed.
    :ivar failure: what ended it before its time.
    """

    looked_at: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    more: bool = False
    failure: errors.ComputeAgentError | None = None

    @property
    def counts(self) -> Counter[State]:
        """How many of the reported instances came to each end."""
        return Counter(outcome.state for outcome in self.outcomes)


def heal_all(
    catalogue: InstanceCatalogue,
    healer: Healer,
    *,
    max_count: int | None = None,
    only: str | None = None,
    cell: str = "",
    dry_run: bool = False,
    say: Callable[[str], None],
) -> HealResult:
    """Heal instances; what one fails of does not keep the others from being healed.

    :param max_count: how many are healed at most; None: all.
    :param only: the uuid of the only one that is healed.
    :param cell: those of one cell; empty: of all.
    :param say: receives how many instances were looked at.
    :raises NoSuchInstance: the one that was asked for does not exist.
    :raises ComputeAgentError: the source cannot be used; nothing was changed.
    """
    result = HealResult()
    try:
        for instance in catalogue.instances(only):
            if cell and instance.cell != cell:
                continue
            result.looked_at += 1
            is_full = max_count is not None and result.counts[State.HEALED] >= max_count
            outcome = healer.heal(instance, dry_run=dry_run or is_full)
            if is_full and outcome.state is State.HEALED:
                result.more = True
                break
            if outcome.state is not State.WHOLE or outcome.surplus:
                result.outcomes.append(outcome)
            if result.looked_at % 50 == 0:
                say(f"{result.looked_at} instances looked at")
    except errors.ComputeAgentError as error:
        if not result.looked_at:
            raise
        # what was done until now is to be reported
        result.failure = error
    if only is not None and not result.looked_at:
        raise NoSuchInstance(
            f"The source of instances ({catalogue.name}) knows no instance {only}. Nothing was "
            "changed."
        )
    return result
