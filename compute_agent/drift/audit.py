"""Drift: instances without allocations, allocations without instances, and those that differ.

An allocation whose consumer is not here may be on its way: it is suspected only when it is older
than the time of grace. It is reported here, and handed on to the healer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims.guests import cannot_tell, presence
from compute_agent.placement.allocations.allocations import (
    INSTANCE,
    MIGRATION,
    ConsumerNature,
)
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.report.usage import holders_in_tree

if TYPE_CHECKING:
    from compute_agent.claims.book import ClaimBook
    from compute_agent.claims.comparison import Holders
    from compute_agent.report.client import ReportClient
    from compute_agent.tracker.status import StatusBoard
    from compute_agent.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

ORPHANED = "orphaned"
MISSING = "missing"
DIFFERING = "differing"

SUSPECTED_TYPES = frozenset({INSTANCE, MIGRATION, None})
"""Types of consumers of hosts; None: placement does not report it. Others are not ours."""


class Drift(Struct, frozen=True):
    """Consumers about which the host and placement disagree."""

    orphans: frozenset[str] = frozenset()
    """Hold something here, and do not run here."""
    missing_consumers: frozenset[str] = frozenset()
    """Run here, and hold nothing here; with `orphans_unknown`: were claimed here."""
    differences: Mapping[str, str] = MappingProxyType({})
    """What those hold that run here and hold something else than they have, in words."""

    orphans_unknown: bool = False
    """The driver does not know what runs here, so that no consumer can be called orphaned."""

    def as_lists(self) -> dict[str, list[str]]:
        """Return the consumers by kind, as the status document shows them.

        Without the kind that cannot be found out: an empty list would mean that there are none.
        """
        lists = {
            ORPHANED: sorted(self.orphans),
            MISSING: sorted(self.missing_consumers),
            DIFFERING: sorted(self.differences),
        }
        if self.orphans_unknown:
            del lists[ORPHANED]
        return lists


class End(Enum):
    """What became of a consumer, and how loudly it is said."""

    HEALED = logging.INFO
    LEFT = logging.DEBUG
    """Nothing is wrong with it after all, or it cannot be judged now."""
    FAILED = logging.WARNING


class Treatment(NamedTuple):
    """A consumer after its treatment, with a sentence about it that goes on after its name."""

    consumer: str
    end: End
    detail: str


class DriftAudit(Struct):
    """The audits of one node.

    :param interval: seconds between two, at the moment; 0 for never.
    :param grace: seconds for which an unknown consumer is not suspected, at the moment.
    :param started_at: of a monotonic clock; the first audit is one interval later.
    """

    node: str
    interval: Callable[[], float]
    grace: Callable[[], float]
    started_at: float
    _first_seen: dict[str, float] = {}
    _last: Drift = Drift()

    def is_due(self, now: float) -> bool:
        """Whether it is time for an audit."""
        interval = self.interval()
        return interval > 0 and now - self.started_at >= interval

    def run(
        self,
        now: float,
        running_guests: Iterable[str] | None,
        holders: Mapping[str, Iterable[str]],
        *,
        claiming_consumers: Collection[str] = (),
        unfounded_consumers: Collection[str] = (),
        strangers: Mapping[str, ConsumerNature] = MappingProxyType({}),
        differences: Mapping[str, str] = MappingProxyType({}),
        all_run_here: bool = True,
    ) -> Drift:
        """Compare, log what is new and what is over, and return what disagrees.

        :param running_guests: uuids of the instances that the driver lists; None: it does not know.
        :param claiming_consumers: consumers that count as being here by their claims.
        :param unfounded_consumers: where the driver does not know: instances that were claimed
            here, and for which no consumer holds it.
        :param holders: provider uuid to the consumers that hold something of it.
        :param strangers: what is known of consumers that do not run here. The age of one that is
            not among them is the time for which it has been seen.
        :param differences: what differs, by instance that runs here.
        :param all_run_here: False if `running_guests` includes those of other nodes of this agent.
        """
        self.started_at = now
        holding = frozenset(consumer for consumers in holders.values() for consumer in consumers)
        if running_guests is None:
            self._first_seen = {}
            missing_consumers = frozenset(unfounded_consumers)
            return self._record(Drift(frozenset(), missing_consumers, differences, True))
        here = frozenset(running_guests)
        unknown_consumers = holding - here - frozenset(claiming_consumers)
        self._first_seen = {
            consumer: self._first_seen.get(consumer, now) for consumer in sorted(unknown_consumers)
        }
        orphaned_consumers = frozenset(
            c for c in unknown_consumers if self._is_suspected(c, now, strangers.get(c))
        )
        missing_consumers = here - holding if all_run_here else frozenset()
        return self._record(Drift(orphaned_consumers, missing_consumers, differences))

    def _record(self, drift: Drift) -> Drift:
        self._log(drift)
        self._last = drift
        return drift

    def without(self, consumers: frozenset[str]) -> Drift:
        """Record agreement about some consumers, and return what is left."""
        last = self._last
        self._last = replace(
            last,
            orphans=last.orphans - consumers,
            missing_consumers=last.missing_consumers - consumers,
        )
        return self._last

    def _is_suspected(self, consumer: str, now: float, nature: ConsumerNature | None) -> bool:
        age = nature.age if nature is not None else None
        if age is None:
            age = now - self._first_seen[consumer]
        kind = nature.type if nature is not None else None
        return kind in SUSPECTED_TYPES and age >= self.grace()

    def _log(self, drift: Drift) -> None:
        for consumer in sorted(drift.orphans - self._last.orphans):
            LOG.warning(
                "Node %s: consumer %s holds allocations here and does not run here. If it runs "
                "nowhere, `compute-manage placement audit` can remove them.",
                self.node,
                consumer,
            )
        for consumer in sorted(drift.missing_consumers - self._last.missing_consumers):
            if drift.orphans_unknown:
                LOG.warning(
                    "Node %s: instance %s was claimed here and holds no allocation here. If it "
                    "runs, its resources are offered to others; if it does not, drop its claim "
                    "with `compute-agent drop-claim %s`.",
                    self.node,
                    consumer,
                    consumer,
                )
            else:
                LOG.warning(
                    "Node %s: instance %s runs here and holds no allocation here, so its resources "
                    "are offered to others.",
                    self.node,
                    consumer,
                )
        for consumer, difference in sorted(drift.differences.items()):
            if self._last.differences.get(consumer) != difference:
                LOG.warning(
                    "Node %s: what instance %s has here is not what it holds in placement: %s. "
                    "`compute-manage placement heal_allocations --instance %s --dry-run` says what "
                    "it should hold.",
                    self.node,
                    consumer,
                    difference,
                    consumer,
                )
        for consumer in sorted(_all(self._last) - _all(drift)):
            LOG.info("Node %s: instances and allocations of %s agree again.", self.node, consumer)


def _all(drift: Drift) -> frozenset[str]:
    return drift.orphans | drift.missing_consumers | drift.differences.keys()


class Auditor(Struct, eq=False):
    """Audits each node when it is time, and shows what disagrees in the status.

    :ivar interval: seconds between two audits, at the moment; 0 for never.
    :ivar grace: seconds for which an unknown consumer is not suspected, at the moment.
    """

    report: ReportClient
    driver: ComputeDriver
    board: StatusBoard
    book: ClaimBook
    interval: Callable[[], float]
    grace: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    on_drift: Callable[[str, str, Drift], None] = lambda _name, _uuid, _drift: None
    """Called with node, root and what an audit found, in the thread of the pass."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started_at: float = 0.0
    _audits: dict[str, DriftAudit] = {}
    _conditions: LastingConditions = field(default_factory=LastingConditions)

    def __post_init__(self) -> None:
        self._started_at = self.clock()

    def after_pass(self, name: str, uuid: str) -> None:
        """Audit the node if it is time; a failure is logged, and it is tried again next pass."""
        audit = self._audits.setdefault(
            name, DriftAudit(name, self.interval, self.grace, self._started_at)
        )
        if not audit.is_due(self.clock()):
            return
        try:
            with self.report.tracing():
                holders = self._holders(uuid)
                here = presence(self.driver, self.book.claims(), time.time())
                is_unlisted = here.running_guests is None
                strangers = {} if is_unlisted else self._strangers(holders, here.known_consumers)
                differences = self.book.differences(name, holders)
                self.book.forget_stale(name)
                # a migration is not an instance, and its instance has a claim of its own
                unfounded_consumers = [
                    claim.instance
                    for claim in (self.book.claims_without_guest(name) if is_unlisted else ())
                    if claim.consumer == claim.instance
                ]
        except Exception as error:  # noqa: BLE001 - only an operator waits for a comparison
            self._log_failure(name, error)
            return
        self._conditions.is_over(name)
        with self._lock:
            drift = audit.run(
                self.clock(),
                here.running_guests,
                holders,
                claiming_consumers=here.claimed_consumers,
                unfounded_consumers=unfounded_consumers,
                strangers=strangers,
                differences=differences,
                all_run_here=not self.driver.several_nodes,
            )
            self._show(name, uuid, drift)
        self.on_drift(name, uuid, drift)

    def record_healed(self, name: str, uuid: str, consumers: frozenset[str]) -> None:
        """Record the consumers about which there is agreement again; from any thread."""
        with self._lock:
            if name in self._audits and self.board.node(name) is not None:
                remaining_drift = self._audits[name].without(consumers)
                self._show(name, uuid, remaining_drift)

    def _show(self, name: str, uuid: str, drift: Drift) -> None:
        """Put drift into the status; log once that orphans cannot be found."""
        why = cannot_tell(self.driver) if drift.orphans_unknown else ""
        node = self.board.node(name)
        if why and (node is None or node.orphans_unknown != why):
            LOG.info("Node %s: orphaned allocations are not looked for: %s.", name, why)
        self.board.set_node(name, uuid, drift=drift.as_lists(), orphans_unknown=why)

    def _log_failure(self, name: str, error: Exception) -> None:
        """Log a trouble that lasts once."""
        if self._conditions.is_new(name, type(error).__name__):
            LOG.warning(
                "Node %s: instances and allocations were not compared: %s",
                name,
                error,
                exc_info=not isinstance(error, errors.ComputeAgentError),
            )

    def _holders(self, root_uuid: str) -> dict[str, dict[str, dict[str, int]]]:
        moving = frozenset(self.book.moving())
        return {
            uuid: {c: amounts for c, amounts in consumers.items() if c not in moving}
            for uuid, consumers in holders_in_tree(self.report, root_uuid).items()
        }

    def _strangers(self, holders: Holders, here: Collection[str]) -> dict[str, ConsumerNature]:
        """Return what placement knows of the consumers that are not known to be here."""
        unknown_consumers = {c for consumers in holders.values() for c in consumers}.difference(
            here
        )
        return {
            c: self.report.placement.allocations.read_consumer(c)[1]
            for c in sorted(unknown_consumers)
        }
