"""Healing what the audit found: orphans that are really gone, instances that hold nothing.

    audit (thread of a pass) --found--> waiting, newest per node --> thread of its own --> remedies

Whether an instance exists is known elsewhere, and asking takes as long as it takes. So the audit
only hands over what it found and goes on; no lock of a node is held. What cannot be healed now is
found again by the next audit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.drift.audit import Drift, End, Treatment
from compute_agent.drift.instances.source import check_healing
from compute_agent.programs.kept_values import LastingConditions

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.healing.remedies import Remedies
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.state.ledger import Ledger
    from compute_agent.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)


class HealedKinds(Struct, frozen=True):
    """Which kinds of drift are healed, at the moment."""

    orphans: bool = False
    missing_consumers: bool = False


@contextmanager
def open_remedies(
    conf: cfg.ConfigOpts, driver: ComputeDriver, ledger: Ledger, way: Transport | None = None
) -> Iterator[Remedies]:
    """Yield the remedies for the drift of an agent, as it is configured.

    :param way: transport to placement, instead of the configured one.
    :raises InvalidConfiguration: the source of instances cannot be used.
    """
    # loaded for an agent that has something to heal
    from compute_agent.drift.healing.remedies import Remedies
    from compute_agent.placement.transports.keystone import KeystoneTransport

    # a reload reports a fault and goes on, so it is checked again
    check_healing(conf)
    with ExitStack() as closing:
        yield Remedies(conf, driver, ledger, way or KeystoneTransport.from_conf(conf), closing)


class DriftHealing(Struct, eq=False):
    """Heals in a thread that lives as long as there is something to do. Safe for threads.

    :ivar remedies: opens what heals; it is closed when all that was found has been treated.
    :ivar healed_kinds: asked for every finding, since an operator may switch healing on and off.
    :ivar on_healed: called with node, root and the consumers about which there is agreement now.
    """

    remedies: Callable[[], AbstractContextManager[Remedies]]
    healed_kinds: Callable[[], HealedKinds]
    on_healed: Callable[[str, str, frozenset[str]], None] = lambda _n, _r, _c: None
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _waiting_work: dict[str, tuple[str, Drift]] = {}
    _thread: threading.Thread | None = None
    _conditions: LastingConditions = field(default_factory=LastingConditions)

    def take_over(self, node: str, root: str, drift: Drift) -> None:
        """Take over what an audit found; what still waits for the same node is replaced."""
        enabled_kinds = self.healed_kinds()
        work = Drift(
            drift.orphans if enabled_kinds.orphans else frozenset(),
            drift.missing_consumers if enabled_kinds.missing_consumers else frozenset(),
        )
        with self._condition:
            self._waiting_work.pop(node, None)
            if not work.orphans and not work.missing_consumers:
                return
            self._waiting_work[node] = root, work
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="healing", daemon=True)
                thread.start()
                self._thread = thread

    def wait(self, timeout: float) -> bool:
        """Wait until everything that was found has been treated; False if it was not in time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._thread is None, timeout)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            try:
                with self.remedies() as remedies:
                    while waiting_work := self._next():
                        node, (root, work) = waiting_work
                        self._treat(node, root, work, remedies)
            except Exception as error:  # noqa: BLE001 - nobody but an operator waits for healing
                with self._condition:
                    self._waiting_work.clear()
                self._log_failure("What audits found", error)
            else:
                self._conditions.is_over("What audits found")
            with self._condition:
                # more may have been found while the remedies were closed
                is_over = not self._waiting_work
                if is_over:
                    self._thread = None
                    self._condition.notify_all()

    def _next(self) -> tuple[str, tuple[str, Drift]] | None:
        with self._condition:
            return self._waiting_work.popitem() if self._waiting_work else None

    def _treat(self, node: str, root: str, work: Drift, remedies: Remedies) -> None:
        healed_consumers: set[str] = set()
        if work.orphans:
            healed_consumers |= self._apply_remedy(
                node, "orphans", remedies.delete_gone, root, work.orphans
            )
        if work.missing_consumers:
            healed_consumers |= self._apply_remedy(
                node, "instances", remedies.allocate, node, work.missing_consumers
            )
        if healed_consumers:
            self.on_healed(node, root, frozenset(healed_consumers))

    def _apply_remedy(
        self,
        node: str,
        what: str,
        remedy: Callable[[str, Collection[str]], Iterable[Treatment]],
        where: str,
        consumers: frozenset[str],
    ) -> set[str]:
        """Apply one remedy; the consumers that are healed."""
        healed_consumers: set[str] = set()
        try:
            for treatment in remedy(where, consumers):
                consumer, end, detail = treatment
                if end is End.HEALED:
                    healed_consumers.add(consumer)
                    self._conditions.is_over((node, consumer))
                elif not self._conditions.is_new((node, consumer), detail):
                    continue
                LOG.log(end.value, "Node %s: %s %s", node, consumer, detail)
        except Exception as error:  # noqa: BLE001 - the other kind is treated anyway
            self._log_failure(f"Node {node}: {what}", error)
        else:
            self._conditions.is_over(f"Node {node}: {what}")
        return healed_consumers

    def _log_failure(self, what: str, error: Exception) -> None:
        """Log a trouble that lasts once."""
        if self._conditions.is_new(what, type(error).__name__):
            LOG.warning(
                "%s cannot be healed now; this is tried again at the next audit: %s",
                what,
                error,
                exc_info=not isinstance(error, errors.ComputeAgentError),
            )
