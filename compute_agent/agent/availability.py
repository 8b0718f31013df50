"""Availability of the host to schedulers: by an operator's word, and by the agent itself.

    who             disables                                      enables
    operator        set_host_enabled(False)                       set_host_enabled(True)
    agent, "AUTO:"  the hypervisor is away; builds fail           it is back; a build succeeds

The agent enables only what it disabled itself. What an operator disabled stays disabled, whatever
happens meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.state.files import StateUnusable
from compute_agent.state.ledger import ServiceState

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient
    from compute_agent.state.claim import Claim
    from compute_agent.state.ledger import Ledger
    from compute_agent.tracker.status import StatusBoard

LOG = logging.getLogger(__name__)

AUTOMATIC = "AUTO: "
HYPERVISOR = f"{AUTOMATIC}the hypervisor cannot be asked"
BUILDS = f"{AUTOMATIC}builds fail"


class Availability(Struct, eq=False):
    """Keeps the state in the ledger and shows it at once on every root in placement.

    :ivar default_enabled: whether a host starts enabled for the first time, at the moment.
    :ivar roots: uuids of the root providers of this agent.
    :ivar threshold: failed builds in a row that disable the host, at the moment; 0 for never.
    """

    ledger: Ledger
    report: ReportClient
    board: StatusBoard
    default_enabled: Callable[[], bool]
    roots: Callable[[], Iterable[str]]
    threshold: Callable[[], int]
    clock: Callable[[], float] = time.time
    _failed_builds: dict[str, str] = {}
    """Image by instance whose build failed since the last that succeeded; empty: not known."""
    _last_failure: float = 0.0
    _conditions: LastingConditions = field(default_factory=LastingConditions)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    """Held from the look at a state to its change: operators and passes come at the same time."""

    def __post_init__(self) -> None:
        # builds of before a restart are not known: only what is claimed from now on counts
        self._last_failure = self.clock()
        self.show()

    def state(self) -> ServiceState:
        """Return whether new instances are allowed on the host, and why not."""
        return self.ledger.service_state(default_enabled=self.default_enabled())

    @property
    def failed_builds(self) -> int:
        """Builds that failed since the last that succeeded."""
        return len(self._failed_builds)

    def set_by_operator(self, is_enabled: bool, reason: str) -> None:
        """Enable or disable, over restarts."""
        if is_enabled:
            self._failed_builds.clear()
        state = ServiceState(is_enabled, "" if is_enabled else reason)
        self._change_state(lambda _state: state)

    def hypervisor_is_away(self, why: str) -> None:
        """Disable the host, if it is enabled, until the hypervisor is back."""
        self._disable(f"{HYPERVISOR}: {why}")

    def hypervisor_is_back(self) -> None:
        """Enable the host, if it was disabled because the hypervisor was away."""
        self._undo(HYPERVISOR)

    def build_failed(self, instance: str, image: str, why: str) -> None:
        """Disable the host, if it is enabled, when too many builds failed in a row.

        Failures of a single image speak against the image, not against the host.
        """
        self._failed_builds[instance] = image
        self._last_failure = self.clock()
        LOG.warning("The build of instance %s failed: %s", instance, why)
        count, images = len(self._failed_builds), set(self._failed_builds.values())
        if 0 < self.threshold() <= count and (len(images) > 1 or "" in images):
            self._disable(f"{BUILDS}: {count} in a row, the last with: {why}")

    def waits_for_a_build(self) -> bool:
        """Whether a build that succeeds would change anything."""
        state = self.state()
        return bool(self._failed_builds) or (state.automatic and state.reason.startswith(BUILDS))

    def has_built(self, claims: Iterable[Claim], running_guests: Collection[str]) -> bool:
        """Whether an instance that was claimed after the last failed build runs."""
        return any(
            claim.claimed_at > self._last_failure and claim.instance in running_guests
            for claim in claims
        )

    def build_succeeded(self) -> None:
        """Forget the builds that failed, and enable the host if they had disabled it."""
        self._failed_builds.clear()
        self._undo(BUILDS)

    def show(self) -> None:
        """Put the state into the status document."""
        state = self.state()
        self.board.set_availability(is_enabled=state.enabled, reason=state.reason)

    def _disable(self, reason: str) -> None:
        self._change_if_written(
            lambda state: (
                ServiceState(enabled=False, reason=reason, automatic=True)
                if state.enabled
                else state
            )
        )

    def _undo(self, reason: str) -> None:
        """Enable the host, if it was the agent that disabled it, for what begins so."""
        self._change_if_written(
            lambda state: (
                ServiceState(enabled=True)
                if state.automatic and state.reason.startswith(reason)
                else state
            )
        )

    def _change_if_written(self, change: Callable[[ServiceState], ServiceState]) -> None:
        """Change the state; leave it to a later pass where it cannot be recorded."""
        try:
            self._change_state(change)
        except StateUnusable as error:
            if self._conditions.is_new("not written"):
                described = "enabled" if self.state().enabled else "disabled"
                LOG.error(
                    "The host stays %s until a pass can record the change: %s", described, error
                )
        else:
            self._conditions.is_over("not written")

    def _change_state(self, change: Callable[[ServiceState], ServiceState]) -> None:
        with self._mutex:
            last_state = self.state()
            state = change(last_state)
            if state == last_state:
                return
            self.ledger.set_service_state(state)
            self.show()
        described = "enabled" if state.enabled else "disabled"
        LOG.info("The host is now %s", ": ".join(filter(None, (described, state.reason))))
        self._mirror(state)

    def _mirror(self, state: ServiceState) -> None:
        """Show the state in placement at once; the next pass does it where this fails."""
        add, remove = (
            ((), (COMPUTE_STATUS_DISABLED,)) if state.enabled else ((COMPUTE_STATUS_DISABLED,), ())
        )
        for root in self.roots():
            try:
                with self.report.tracing():
                    self.report.change_traits(root, add=add, remove=remove)
            except errors.ComputeAgentError as error:
                LOG.warning(
                    "Trait %s of provider %s is out of date; the next pass writes it: %s",
                    COMPUTE_STATUS_DISABLED,
                    root,
                    error,
                )
                if isinstance(error, errors.PlacementUnavailable):
                    return
