"""Attempts to make one request fit: it is asked again with one constraint less, then with two."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.request.candidate_request import UNSUFFIXED
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.causes import Causes, ClosestHost, FittingChange, Lack, QueryCause
from compute_agent.scheduler.explanation.changes import (
    ChangeKind,
    RequestChange,
    apply_all,
    omissions,
    single_changes,
)
from compute_agent.scheduler.explanation.constraints import constraints_of
from compute_agent.scheduler.explanation.named_changes import named_changes
from compute_agent.scheduler.explanation.room import (
    largest_that_fits,
    most_for,
    most_on,
    plausible_amounts,
)
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement_client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, TargetedRequest, Trial
from compute_agent.scheduler.search.targets import Target

LOG = logging.getLogger(__name__)

SHOWN_CHANGES = 5
SHOWN_CLOSEST = 10
LISTINGS = 12
"""Lists of providers that the constraints of one query may cost."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How many questions to placement an explanation may cost, and after how long none follows."""

    questions: int
    seconds: float


IN_PASSING = Effort(40, 3.0)
"""For a request that failed, whose caller waits."""
THOROUGH = Effort(400, 30.0)
"""For an operator who asked."""


class Attempt:
    """Attempts to make one request fit, within an effort."""

    def __init__(
        self,
        placement: PlacementClient,
        search: HostSearch,
        spec: RequestSpec,
        request: TargetedRequest,
        effort: Effort,
        clock: Callable[[], float],
    ) -> None:
        self._placement = placement
        self._search = search
        self._spec = spec
        self._request = request
        self._clock = clock
        self._until = clock() + effort.seconds
        self._questions_left = effort.questions
        self._gave_up = False
        self._closest: dict[str, tuple[float, ClosestHost]] = {}
        self.base = self._search.try_out(spec, request)
        self._questions_left -= len(self.base.causes.queries)

    def causes(self) -> Causes:
        """Return the causes with all that was found out."""
        queries = tuple(self._with_constraints())
        fitting_changes = self._fitting()
        closest = sorted(self._closest.values(), key=lambda entry: (entry[0], entry[1].host))
        remark = ""
        if not fitting_changes:
            remark = "No change of one or two constraints would make it fit."
        if self._gave_up:
            remark = (
                "The search for changes that would fit was ended after its limit of questions or "
                "time, so there may be more: compute-scheduler explain takes longer."
            )
        causes = self.base.causes
        if not self.base.admitted_hosts:
            causes = self._search.with_disabled_target(causes, self._request.target)
        return replace(
            causes,
            queries=queries,
            closest_hosts=tuple(host for _, host in closest[:SHOWN_CLOSEST]),
            fits_with=tuple(fitting_changes[:SHOWN_CHANGES]),
            remark=remark,
        )

    def _with_constraints(self) -> Iterator[QueryCause]:
        for query in self.base.causes.queries:
            if query.candidates or not self._may_ask():
                yield query
                continue
            constraints = constraints_of(self._placement, query.query, LISTINGS)
            self._questions_left -= 1
            yield replace(query, constraints=constraints)

    def _fitting(self) -> list[FittingChange]:
        singles = [*self._filter_changes(), *single_changes(self._request.request)]
        fitting_changes = list(self._try_sets(self._named_sets(singles)))
        if not fitting_changes:
            fitting_changes = list(self._try_sets((change,) for change in singles))
        if not fitting_changes:
            fitting_changes = list(self._try_sets(combinations(singles, 2), most=SHOWN_CHANGES))
        if not fitting_changes:
            fitting_changes = list(
                self._try_sets((change,) for change in omissions(self._request.request))
            )
        return sorted(
            fitting_changes, key=lambda change: (len(change.changes), -change.hosts, change.text)
        )

    def _filter_changes(self) -> Iterator[RequestChange]:
        for cause in self.base.causes.filters:
            if cause.rejected:
                yield RequestChange(ChangeKind.FILTER, None, frozenset({cause.name}))

    def _named_sets(self, singles: Sequence[RequestChange]) -> Iterator[tuple[RequestChange, ...]]:
        for query in self.base.causes.queries:
            if not query.candidates and self._may_ask():
                self._questions_left -= 1
                yield from named_changes(self._placement, query.query, singles)

    def _try_sets(
        self, sets: Iterable[tuple[RequestChange, ...]], most: int | None = None
    ) -> Iterator[FittingChange]:
        tried_changes, fitting_count = set[frozenset[tuple[object, ...]]](), 0
        for changes in sets:
            key = frozenset((change.kind, change.group, change.subject) for change in changes)
            if key in tried_changes:
                continue
            tried_changes.add(key)
            if fitting_count == most:
                return
            trial = self._least(changes)
            if trial is not None:
                fitting_count += 1
                yield self._fits(*trial)

    def _least(
        self, changes: tuple[RequestChange, ...]
    ) -> tuple[tuple[RequestChange, ...], Trial] | None:
        """Return the changes that fit, with amounts no lower than they must be."""
        trial = self._try(changes)
        if trial is None:
            return None
        self._note_closest(changes, self._with_least(changes) or trial)
        for index, change in enumerate(changes):
            if change.kind is ChangeKind.AMOUNT and change.before > 1:
                others = changes[:index], changes[index + 1 :]
                larger_change = self._raise_amount(change, others, trial)
                if larger_change is not None:
                    amount, trial = larger_change
                    changes = (*others[0], change.to(amount), *others[1])
        return changes, trial

    def _with_least(self, changes: tuple[RequestChange, ...]) -> Trial | None:
        """Try again with amounts of 1, if placement named larger ones.

        At the amounts that it names only the very closest hosts are left, one perhaps.
        """
        least = tuple(change.to(min(change.after, 1)) for change in changes)
        return self._try(least) if least != changes else None

    def _raise_amount(
        self,
        change: RequestChange,
        others: tuple[tuple[RequestChange, ...], tuple[RequestChange, ...]],
        trial: Trial,
    ) -> tuple[int, Trial] | None:
        plausible = plausible_amounts(change.name, change.before, trial.hosts)
        return largest_that_fits(
            [amount for amount in plausible if amount > change.after],
            lambda amount: self._try((*others[0], change.to(amount), *others[1])),
        )

    def _try(self, changes: Sequence[RequestChange]) -> Trial | None:
        if not self._may_ask():
            return None
        skipped_names = {change.name for change in changes if change.kind is ChangeKind.FILTER}
        kinds = {change.kind for change in changes}
        changed_request = replace(
            self._request,
            request=apply_all(changes, self._request.request),
            target=Target() if ChangeKind.TARGET in kinds else self._request.target,
        )
        if not changed_request.request.resources:
            return None
        try:
            trial = self._search.try_out(self._spec, changed_request, skipped_names)
        except PlacementUnavailable:
            raise
        except (PlacementError, InvalidRequest) as error:
            LOG.debug("A changed request is not a valid one: %s", error)
            self._questions_left -= 1
            return None
        self._questions_left -= len(trial.causes.queries)
        return trial if trial.hosts else None

    def _may_ask(self) -> bool:
        self._gave_up = self._gave_up or self._questions_left <= 0 or self._clock() >= self._until
        return not self._gave_up

    def _fits(self, changes: tuple[RequestChange, ...], trial: Trial) -> FittingChange:
        return FittingChange(
            tuple(change.as_dict() for change in changes),
            " and ".join(self._text(change) for change in changes),
            len(trial.hosts),
            trial.hosts[0].name,
        )

    def _text(self, change: RequestChange) -> str:
        aggregates = (ChangeKind.AGGREGATES, ChangeKind.FORBIDDEN_AGGREGATES)
        if change.kind not in aggregates:
            return change.text
        text = change.text
        for aggregate in self._request.aggregates.all:
            if aggregate.name:
                text = text.replace(aggregate.uuid, f"{aggregate.name} ({aggregate.uuid})")
        return text

    def _note_closest(self, changes: tuple[RequestChange, ...], trial: Trial) -> None:
        for host in trial.hosts:
            lacks, distance = [], 0.0
            for change in changes:
                lack = self._lack(change, host)
                lacks.append(lack)
                distance += (lack.asked - lack.free) / lack.asked if lack.asked else 1.0
            known_host = self._closest.get(host.uuid)
            if known_host is None or distance < known_host[0]:
                self._closest[host.uuid] = (distance, ClosestHost(host.name, tuple(lacks)))

    def _lack(self, change: RequestChange, host: HostState) -> Lack:
        if change.kind is ChangeKind.FILTER:
            return Lack(self._rejection(change.name, host))
        if change.kind is not ChangeKind.AMOUNT:
            return Lack(self._text_of_lack(change), change.group)
        name, amount = change.name, change.before
        # of the providers that the rest of the request allows, where candidates name them
        most = most_for(host, name, change.group or UNSUFFIXED) or most_on(host, name)
        total = host.free(name)
        if most >= amount:
            # answers about candidates do not name the limits of one allocation
            free = f"{most} free, but max_unit, step_size or the rest of the request is in the way"
        elif change.group == UNSUFFIXED and total > most:
            free = f"{total} free, at most {most} on one provider"
        else:
            free = f"{most} free"
        of_group = f" (group {change.group})" if change.group else ""
        text = f"{name}: {amount} asked, {free}{of_group}"
        return Lack(text, change.group, name, amount, min(most, amount))

    def _text_of_lack(self, change: RequestChange) -> str:
        text = change.lack
        for aggregate in self._request.aggregates.all:
            if aggregate.name:
                text = text.replace(aggregate.uuid, aggregate.name)
        return text

    def _rejection(self, name: str, host: HostState) -> str:
        for cause in self.base.causes.filters:
            for rejected_host in cause.rejected:
                if cause.name == name and rejected_host.host == host.name and rejected_host.reason:
                    return f"{name}: {rejected_host.reason}"
        return f"{name} rejects it"
