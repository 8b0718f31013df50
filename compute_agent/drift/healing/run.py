"""Healing the allocations of many instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from compute_agent import errors
from compute_agent.drift.healing.healer import Healer, Outcome, State
from compute_agent.drift.instances.instance import Instance, InstanceCatalogue


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

    def having(self, state: State) -> list[Outcome]:
        """Return the outcomes of one kind."""
        return [outcome for outcome in self.outcomes if outcome.state is state]


@dataclass(frozen=True, slots=True)
class Heal:
    """One run over a source of instances.

    :ivar max_count: how many are healed at most; None: all.
    :ivar only: the uuid of the only one that is healed.
    :ivar cell: those of one cell; empty: of all.
    :ivar say: receives how many instances were looked at.
    """

    catalogue: InstanceCatalogue
    healer: Healer
    max_count: int | None = None
    only: str | None = None
    cell: str = ""
    dry_run: bool = False
    say: Callable[[str], None] = lambda _text: None

    def run(self) -> HealResult:
        """Heal; what one instance fails of does not keep the others from being healed.

        :raises NoSuchInstance: the one that was asked for does not exist.
        :raises ComputeAgentError: the source cannot be used; nothing was changed.
        """
        result = HealResult()
        try:
            for instance in self._instances():
                result.looked_at += 1
                if not self._heal_instance(instance, result):
                    break
        except errors.ComputeAgentError as error:
            if not result.looked_at:
                raise
            # what was done until now is to be reported
            result.failure = error
        if self.only is not None and not result.looked_at:
            raise NoSuchInstance(
                f"The source of instances ({self.catalogue.name}) knows no instance "
                f"{self.only}. Nothing was changed."
            )
        return result

    def _heal_instance(self, instance: Instance, result: HealResult) -> bool:
        """Heal one instance; whether to go on."""
        bound = self.max_count
        is_full = bound is not None and result.counts[State.HEALED] >= bound
        outcome = self.healer.heal(instance, dry_run=self.dry_run or is_full)
        if is_full and outcome.state is State.HEALED:
            result.more = True
            return False
        if outcome.state is not State.WHOLE or outcome.surplus:
            result.outcomes.append(outcome)
        if result.looked_at % 50 == 0:
            self.say(f"{result.looked_at} instances looked at")
        return True

    def _instances(self) -> Iterator[Instance]:
        for instance in self.catalogue.instances(self.only):
            if not self.cell or instance.cell == self.cell:
                yield instance
