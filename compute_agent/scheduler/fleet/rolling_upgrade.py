"""Abilities of a fleet in the middle of an upgrade, and the layouts of its hosts.

Every agent announces a service version. A behaviour that needs both sides is switched by the lowest
version of all agents, by itself: no operator has to switch it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from compute_agent.programs.kept_values import KeptValues
from compute_agent.scheduler.fleet.announcements import Announcements

KEPT_SECONDS = 60.0
FLAT, NESTED = "flat", "nested"


class Behaviour(Struct, frozen=True):
    """Something that is done only once every agent has at least the version `needs`."""

    name: str
    needs: int
    means: str


CLAIMS = Behaviour("claims", 1, "the scheduler claims (only with legacy_self_claim = auto)")
OWNERS = Behaviour("owners", 1, "hosts and PCI devices must carry the trait OWNER_NOVA")
BEHAVIOURS = (CLAIMS, OWNERS)


class Fleet:
    """The lowest service version of all agents; kept for a minute, or until `forget`.

    Every process hears each announcement, and looks again when one has another version: so all
    processes of a scheduler agree.

    :param announcements: None without a bus, when nothing is known of any agent.
    :param existing_roots_of: returns which of some roots placement still has; an agent whose host
        is gone counts no more.
    :param behaviours: those that are switched by the version, as configured.
    :param clock: seconds that only grow.
    """

    def __init__(
        self,
        announcements: Announcements | None,
        existing_roots_of: Callable[[Collection[str]], Collection[str]],
        behaviours: Sequence[Behaviour] = BEHAVIOURS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._behaviours = behaviours
        self._announcements = announcements
        self._existing_roots_of = existing_roots_of
        self._minimum: KeptValues[int, int] = KeptValues(KEPT_SECONDS, clock, most=1)

    def minimum(self) -> int | None:
        """Return the lowest version, 0 when no agent was heard of, None without a bus.

        :raises PlacementUnavailable: placement does not answer which hosts there are.
        """
        if self._announcements is None:
            return None
        revision = self._announcements.versions_revision
        lowest = self._minimum.get(revision)
        if lowest is not None:
            return lowest
        return self._minimum.keep(revision, min((v for _, v in self._versions()), default=0))

    def supports(self, behaviour: Behaviour) -> bool:
        """Whether every agent is known to be new enough."""
        lowest = self.minimum()
        return lowest is not None and lowest >= behaviour.needs

    def may_lack(self, behaviour: Behaviour) -> bool:
        """Return whether an agent announces too old a version, or none was heard on the bus."""
        lowest = self.minimum()
        return lowest is not None and lowest < behaviour.needs

    def held_back_by(self, behaviour: Behaviour) -> tuple[str, ...]:
        """Return the hosts whose agents are too old for a behaviour, sorted."""
        return tuple(sorted({h for h, version in self._versions() if version < behaviour.needs}))

    def status(self) -> dict[str, Any]:
        """Return what is in force and what is still held back by which host, as JSON types."""
        self.forget()
        return {
            "minimum_service_version": self.minimum(),
            "behaviours": [
                {
                    **to_builtins(behaviour),
                    "in_force": self.supports(behaviour),
                    "held_back_by": list(self.held_back_by(behaviour)),
                }
                for behaviour in self._behaviours
            ],
        }

    def forget(self) -> None:
        """Look again with the next question."""
        self._minimum.forget()

    def _versions(self) -> list[tuple[str, int]]:
        if self._announcements is None:
            return []
        by_root = self._announcements.all()
        existing_roots = set(self._existing_roots_of(tuple(by_root)))
        return [
            (announcement.host, announcement.service_version)
            for root, announcement in by_root.items()
            if root in existing_roots
        ]


class Layouts:
    """Which layouts the hosts have; kept for a minute, or until `forget`.

    :param roots: returns the roots of all hosts, and of those that have NUMA cells.
    """

    def __init__(
        self,
        roots: Callable[[], tuple[frozenset[str], frozenset[str]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = roots
        self._layouts: KeptValues[None, frozenset[str]] = KeptValues(KEPT_SECONDS, clock)

    def present(self) -> frozenset[str]:
        """Return `FLAT`, `NESTED` or both; both, too, before the first host.

        :raises PlacementUnavailable: placement does not answer.
        """
        kept_layouts = self._layouts.get(None)
        if kept_layouts is not None:
            return kept_layouts
        hosts, nested_roots = self._roots()
        present_layouts = frozenset(
            name
            for name, some in ((FLAT, hosts - nested_roots), (NESTED, nested_roots))
            if some or not hosts
        )
        return self._layouts.keep(None, present_layouts)

    def forget(self) -> None:
        """Look again with the next question."""
        self._layouts.forget()
