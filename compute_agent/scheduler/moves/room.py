"""Room for a request that fits nowhere: which few guests to move, as placement plans it.

Placement knows neither filters nor the planner of hosts. So a plan counts only if the search finds
the host of the request in the fleet as it would be after the moves; else another host is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct, to_builtins

from compute_agent.placement.candidate_answers import Plan
from compute_agent.placement.candidates import after_moves
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.explanation import ExplainedRequest, Explainer
from compute_agent.scheduler.outcomes import Causes
from compute_agent.scheduler.placement.client import PlacementClient

_MOST_REFUSED: Final = 10
"""Hosts that may be refused before there is no plan."""


class Room(Struct, frozen=True):
    """A plan of moves for a request.

    :ivar now: where the request fits as it is, or why it does not.
    :ivar plan: as placement gave it; None where there is none, or nothing has to move.
    :ivar then: where it fits after the moves.
    :ivar is_proved: whether no plan has fewer moves, or where there is none, that there is none.
    :ivar refused: by the names of the hosts that filters or the planner refused, how.
    """

    now: ExplainedRequest
    plan: Plan | None = None
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
            "refused": to_builtins(self.refused or {}),
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
    question = {**bounds, "leave_alone": left_alone}
    avoided_roots: dict[str, list[str]] = {query.query: [] for query in now.causes.queries}
    refused: dict[str, Causes] = {}
    is_hidden = False
    for _ in range(_MOST_REFUSED):
        plan, is_proved, is_more_hidden = _best_plan(client, question, avoided_roots)
        is_hidden |= is_more_hidden
        if plan is None:
            if is_more_hidden:
                continue
            return Room(now, is_proved=is_proved and not is_hidden, refused=refused)
        # none has fewer moves than one
        is_proved &= not is_hidden or len(plan["moves"]) == 1
        with client.supposing(after_moves(plan["moves"])):
            then = explainer.explain(spec)
        wanted_hosts = {
            place["to"]["root"]: place["to"]["name"] or place["to"]["root"]
            for place in plan["places"]
        }
        refusing = wanted_hosts.keys() - {host.uuid for host in then.hosts}
        if not refusing:
            return Room(now, plan, then, is_proved, refused)
        for roots in avoided_roots.values():
            roots += refusing
        refused |= {wanted_hosts[root]: then.causes for root in refusing}
    return Room(now, is_proved=False, refused=refused)


def _best_plan(
    client: PlacementClient, question: Mapping[str, Any], avoided_roots: Mapping[str, list[str]]
) -> tuple[Plan | None, bool, bool]:
    """Return the best plan for any shape of a request, whether that is proved, or one was hidden.

    A plan without moves is none: a filter or the planner of its host refused the fleet as it is.
    It hides what moves would give there, so its shape, which may ask for less than the guest,
    avoids that host from then on.

    :param avoided_roots: by the query of the shape.
    """
    plans, is_proved, is_hidden = [], True, False
    for query, roots in avoided_roots.items():
        room = client.make_room({**question, "avoid": roots, "request": query})
        is_proved &= room["proved"]
        for plan in room["plans"]:
            if plan["moves"]:
                plans.append(plan)
            else:
                is_hidden = True
                roots += {place["to"]["root"] for place in plan["places"]}
    best = min(plans, key=lambda plan: (len(plan["moves"]), plan["memory_mb"]), default=None)
    return best, is_proved, is_hidden
