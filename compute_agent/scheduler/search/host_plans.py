"""Plans of what a guest gets on a host, made from its tree and what its agent announces.

Placement's candidates prove that a host is worth looking at. What is claimed is the best that the
host can give, composed from one of them: the NUMA nodes of the guest and its devices are put where
the planner says, every other group stays. A group of which something cannot be seen in summaries,
as its aggregates, stays as well. How much is free of a nested host its summaries say; of which
cores, how far cells are from each other and how devices are linked its agent announces. The claim
is refused where a summary was stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.fitting.drawing import draw
from compute_agent.fitting.guest import REQUIRED, Guest
from compute_agent.fitting.host import DEFAULT_OPTIONS, Host, PlanOptions
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest
from compute_agent.request.guest_numa import GuestNuma
from compute_agent.scheduler.host_state import HostState, fits
from compute_agent.scheduler.outcomes import SHOWN_HOSTS, FilterCause, RejectedHost
from compute_agent.scheduler.placement.candidates import (
    AllocationCandidates,
    Candidate,
    is_near,
)
from compute_agent.scheduler.search.candidate_tree import CandidateTree
from compute_agent.scheduler.search.layout_queries import (
    HOST_GROUP,
    TRAIT_GROUP,
    nested_request,
)

LOG = logging.getLogger(__name__)


class HostPlans(Struct, frozen=True):
    """Plans for one request, on whichever host.

    :ivar policy_of: how near the device of a group must be, by its suffix.
    :ivar guest: what is asked for, without devices.
    :ivar announced: returns what the agent of the host of a root announces, None if nothing.
    """

    request: CandidateRequest
    numa: GuestNuma
    policy_of: Mapping[str, str]
    guest: Guest
    announced: Callable[[str], Host | None]
    options: PlanOptions = DEFAULT_OPTIONS

    @property
    def required(self) -> dict[str, str]:
        """The policies of the devices that must be on a cell of the guest."""
        return {suffix: name for suffix, name in self.policy_of.items() if name == REQUIRED}

    def with_near_devices(self, host: HostState) -> HostState:
        """Return a host with the candidates whose devices are where they must be.

        The best that it can give is one of them, whether placement named it or not.
        """
        near = [c for c in host.candidates if is_near(c, host.providers, self.required)]
        return self.best_first(host._replace(candidates=tuple(near)), base=host)

    def _is_refused_for_announced(self, host: HostState, refusal: Refusal) -> bool:
        """Whether a host has no plan for what its agent announces, and else would.

        Placement knows nothing of cores, sockets and the cells that are near networks.
        """
        if refusal.is_undecided or self.announced(host.uuid) is None:
            return False
        without = replace(self, announced=lambda _root: None)._answer(host)
        return without is not None and isinstance(without[2], Plan)

    def cause(self, refused: Sequence[HostState], before: int) -> FilterCause | None:
        """Return why hosts have no plan, as the cause of a filter; None if none was refused.

        :param before: how many hosts there were.
        """
        if not refused:
            return None
        rejected = [RejectedHost(host.name, self._reason(host)) for host in refused[:SHOWN_HOSTS]]
        left = before - len(refused)
        return FilterCause("the plan of the host", before, left, (), tuple(rejected))

    def _reason(self, host: HostState) -> str:
        answer = self._answer(host)
        return answer[2].sentence if answer and isinstance(answer[2], Refusal) else ""

    def drawing(self, host: HostState) -> list[str]:
        """Return the lines of a host with what the guest gets of it; none without a plan."""
        answer = self._answer(host)
        return [] if answer is None else draw(answer[1], answer[2])

    def best_first(self, host: HostState, *, base: HostState | None = None) -> HostState:
        """Return a host with the best that it can give as its first candidate.

        It has none where its agent announces that the guest does not fit.

        :param base: the host with a candidate to compose it from; None: the host itself.
        """
        base = base or host
        answer = self._answer(base)
        if answer is None:
            return host
        tree, _host, best = answer
        if isinstance(best, Refusal):
            if best.is_undecided:
                LOG.warning("Host %s: %s; placement's candidates stay.", host.name, best.sentence)
            is_refused = self._is_refused_for_announced(base, best)
            return host._replace(candidates=()) if is_refused else host
        composed = tree.compose(best)
        is_apart = self.request.group_policy != "isolate" or _is_isolated(composed)
        if not (is_apart and fits(composed, host.providers)):
            return host
        others = [candidate for candidate in host.candidates if not _equal(candidate, composed)]
        return host._replace(candidates=(composed, *others), cost=best.cost)

    def _answer(self, host: HostState) -> tuple[CandidateTree, Host, Plan | Refusal] | None:
        """Return what the planner says of a host; None where nothing can be put elsewhere."""
        base = host.candidates[0] if host.candidates else None
        if base is None or base.shape == "split":
            return None
        is_nested = bool(base.guest_cells)
        request = nested_request(self.request, self.numa) if is_nested else self.request
        announced = self.announced(host.uuid)
        tree = CandidateTree(host.providers, base, request, self.policy_of, announced)
        if not (tree.moved_groups and (is_nested or tree.wishes)):
            return None
        guest = replace(self.guest, wishes=tuple(tree.wishes))
        if is_nested:
            nodes = [replace(n, cell=tree.fixed_cell(i)) for i, n in enumerate(guest.nodes)]
            is_one = guest.names_nodes or TRAIT_GROUP in base.mappings
            is_one = is_one or nodes[0].cell is not None
            guest = replace(guest, nodes=tuple(nodes), names_nodes=is_one, floats=False)
            free = Host(tree.cells(), tree.devices())
        elif announced is not None:
            free = replace(announced, devices=tree.devices())
        else:
            guest = replace(guest, nodes=(), floats=True)
            free = Host((), tree.devices())
        return tree, free, plan(free, guest, self.options)

    def over_cells(
        self, answer: AllocationCandidates, probe: CandidateRequest
    ) -> AllocationCandidates:
        """Return the answer with one candidate for each host whose cells hold the guest together.

        :param answer: to `probe`.
        :param probe: the question with one CPU and one MiB in the place of what the guest needs.
        """
        composed: dict[str, Candidate] = {}
        for candidate in answer.candidates:
            if candidate.root in composed:
                continue
            providers = {uuid: answer.providers[uuid] for uuid in answer.trees[candidate.root]}
            announced = self.announced(candidate.root)
            tree = CandidateTree(providers, candidate, probe, self.policy_of, announced)
            guest = replace(self.guest, wishes=tuple(tree.wishes), floats=False)
            spread = plan(Host(tree.cells(), tree.devices()), guest, self.options)
            if isinstance(spread, Plan):
                composed[candidate.root] = tree.lay_over(spread)
        return AllocationCandidates([*composed.values()], answer.providers, answer.returned_count)


def _is_isolated(candidate: Candidate) -> bool:
    """Whether no provider serves two groups with suffixes, but for those without resources."""
    uuids = [
        uuid
        for suffix, own in candidate.mappings.items()
        if suffix not in (UNSUFFIXED, TRAIT_GROUP, HOST_GROUP)
        for uuid in own
    ]
    return len(uuids) == len(set(uuids))


def _equal(one: Candidate, other: Candidate) -> bool:
    return one.allocations == other.allocations and one.mappings == other.mappings
