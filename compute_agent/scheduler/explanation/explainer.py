"""Explainer of requests that fit nowhere.

It tries the request again with one constraint less, then with two less, through the same search
that chooses hosts: what it names as a change that would fit has been seen to fit, filters and all.
Where placement names the closest changes itself (placement-ext 1.1) these are tried first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compute_agent.errors import PlacementError
from compute_agent.request.errors import SchedulerError
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.causes import Causes, ClosestHost, Lack, QueryCause
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.explanation.attempt import (
    IN_PASSING,
    SHOWN_CLOSEST,
    THOROUGH,
    Attempt,
    Effort,
)
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement_client import PlacementClient
from compute_agent.scheduler.search.rebuild import is_rebuild
from compute_agent.scheduler.search.search import HostSearch

LOG = logging.getLogger(__name__)

KEPT_SECONDS = 10.0
"""How long the explanation of one request serves others that are equal."""
KEPT_EXPLANATIONS = 64


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation, and the hosts that the request would fit on as it is."""

    causes: Causes
    hosts: tuple[HostState, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "fits": bool(self.hosts),
            "hosts": [host.name for host in self.hosts],
            "causes": self.causes.as_dict(),
        }


class Explainer:
    """Explains why requests fit nowhere.  Safe in several threads, of which one explains.

    :param is_enabled: whether requests that failed are explained; one that is asked for always is.
    :param effort: that a request that failed is worth.
    """

    def __init__(
        self,
        placement: PlacementClient,
        search: HostSearch,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_enabled: bool = True,
        effort: Effort = IN_PASSING,
    ) -> None:
        self._effort = effort
        self._placement = placement
        self._search = search
        self._clock = clock
        self._is_enabled = is_enabled
        self._lock = threading.Lock()
        self._kept_explanations: dict[str, tuple[float, Causes]] = {}

    def add_explanation(self, spec: RequestSpec, causes: Causes) -> Causes:
        """Return the causes of a request that failed, with what would have made it fit.

        Equal requests share an explanation for a while, and while
        one is being made others go without: a full cloud must not be asked for ever more.
        """
        if not self._is_enabled or is_rebuild(spec):
            return causes
        key = repr(spec)
        if not self._lock.acquire(blocking=False):
            remark = "Another request was being explained: use compute-scheduler explain."
            return replace(causes, remark=remark)
        try:
            since, explanation = self._kept_explanations.get(key, (0.0, None))
            if explanation is None or self._clock() - since > KEPT_SECONDS:
                explanation = self.explain(spec, self._effort).causes
                self._keep(key, explanation)
        except (PlacementError, SchedulerError) as error:
            return replace(causes, remark=f"It could not be explained further: {error}")
        finally:
            self._lock.release()
        return replace(
            causes,
            queries=_with_constraints(causes.queries, explanation.queries),
            closest_hosts=_where_claims_were_lost(causes) or explanation.closest_hosts,
            fits_with=explanation.fits_with,
            remark=explanation.remark,
        )

    def explain(self, spec: RequestSpec, effort: Effort = THOROUGH) -> Explained:
        """Return where a request fits, or else why it does not.

        :raises InvalidRequest: the request is wrong in itself.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        try:
            spec = self._search.with_group_hosts(spec)
            request = self._search.targeted_request(spec)
        except NoValidHost as error:
            return Explained(error.causes)
        attempt = Attempt(self._placement, self._search, spec, request, effort, self._clock)
        trial = attempt.base
        if trial.hosts:
            first, others = trial.hosts[0].name, len(trial.hosts)
            remark = f"One instance fits now, on {others} host(s) such as {first}."
            remark = " ".join(
                [remark, *(f"{w}." for w in self._search.warnings(spec, trial.hosts))]
            )
            return Explained(replace(trial.causes, remark=remark), trial.hosts)
        return Explained(attempt.causes())

    def _keep(self, key: str, causes: Causes) -> None:
        if len(self._kept_explanations) >= KEPT_EXPLANATIONS:
            self._kept_explanations.pop(next(iter(self._kept_explanations)))
        self._kept_explanations[key] = (self._clock(), causes)


def _with_constraints(
    query_causes: Sequence[QueryCause], explained_queries: Sequence[QueryCause]
) -> tuple[QueryCause, ...]:
    constraints = {query.query: query.constraints for query in explained_queries}
    return tuple(
        replace(query, constraints=constraints.get(query.query, query.constraints))
        for query in query_causes
    )


def _where_claims_were_lost(causes: Causes) -> tuple[ClosestHost, ...]:
    lost_claims = {
        claim.host: ClosestHost(
            claim.host,
            (
                Lack(
                    f"the claim was refused: {claim.sentence()}",
                    resource_class=claim.resource_class,
                    asked=claim.amount,
                ),
            ),
        )
        for claim in causes.claims_lost
    }
    return tuple(lost_claims.values())[:SHOWN_CLOSEST]
