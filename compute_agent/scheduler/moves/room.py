"""Room for a request that fits nowhere: which few guests to move, as placement plans it.

Placement knows neither filters nor the planner of hosts. So a plan counts only if the search finds
the host of the request in the fleet as it would be after the moves; else another host is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from compute_agent.placement.candidates import after_moves
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.explanation import ExplainedRequest, Explainer
from compute_agent.scheduler.outcomes.causes import Causes
from compute_agent.scheduler.placement.client import PlacementClient

_MOST_REFUSED: Final = 10
"""Hosts that may be refused before there is no plan."""


@dataclass(frozen=True, slots=True)
class Room:
    """A plan of moves for a request.

    :ivar now: where the request fits as it is, or why it does not.
    :ivar plan: as placement gave it; None where there is none, or nothing has to move.
    :ivar then: where it fits after the moves.
    :ivar is_proved: whether no plan has fewer moves, or where there is none, that there is none.
    :ivar refused: by the names of the hosts that filters or the planner refused, how.
    """

    now: ExplainedRequest
    plan: Mapping[str, Any] | None = None
    then: ExplainedRequest | None = None
    is_proved: bool = True
    refused: Mapping[str, Causes] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "fits": [host.name for host in self.now.hosts],
            "plan": self.plan,
            "proved": self.is_proved,
            "then": None if self.then is None else self.then.as_dict(),
            "refused": {name: causes.as_dict() for name, causes in (self.refused or {}).items()},
        }


def find_room(
    client: PlacementClient,
    explainer: Explainer,
    spec: RequestSpec,
    bounds: Mapping[str, Any],
    silent_roots: Collection[str],
) -> Room:
    """Find which guests to move so that a request fits.

    :param bounds: fields of the question to placement.
    :param silent_roots: of hosts whose agents fell silent: no guest moves from or to them.
    :raises NoValidHost: a zone, tenant or host that does not exist.
    :raises InvalidRequest: the request is wrong in itself.
    :raises PlacementError: placement cannot be asked, or makes no plans.
    """
    now = explainer.explain(spec)
    if now.hosts or not now.causes.queries:
        return Room(now)
    left_alone = {**bounds.get("leave_alone", {}), "trees": sorted(silent_roots)}
    refused: dict[str, Causes] = {}
    avoided_roots: list[str] = []
    room = Room(now, is_proved=False)
    while len(refused) < _MOST_REFUSED:
        question = {**bounds, "leave_alone": left_alone, "avoid": avoided_roots}
        plan, is_proved = _best_plan(client, now.causes, question)
        room = replace(room, is_proved=is_proved)
        if plan is None:
            break
        with client.supposing(after_moves(plan["moves"])):
            then = explainer.explain(spec)
        wanted_hosts = {place["to"]["root"]: place["to"]["name"] for place in plan["places"]}
        refusing = wanted_hosts.keys() - {host.uuid for host in then.hosts}
        if not refusing:
            room = replace(room, plan=plan, then=then)
            break
        avoided_roots += refusing
        refused |= {wanted_hosts[root]: then.causes for root in refusing}
    return replace(room, refused=refused)


def _best_plan(
    client: PlacementClient, causes: Causes, question: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the best plan for any shape of a request, and whether that is proved."""
    rooms = [client.make_room({**question, "request": query.query}) for query in causes.queries]
    plans = [plan for room in rooms for plan in room["plans"]]
    best = min(plans, key=lambda plan: (len(plan["moves"]), plan["memory_mb"]), default=None)
    return best, all(room["proved"] for room in rooms)
