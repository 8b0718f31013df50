"""Explanations of requests that fit nowhere: what the search saw, and what placement answers.

For each question that found nothing, placement names the constraint that left nobody, the smallest
changes with which it would have candidates, and the providers that come closest. Filters and hosts
are known here only. A placement without extensions explains nothing: then what is left is how many
candidates each question had, and how many hosts each filter left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import dropwhile
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from compute_agent.errors import PlacementError
from compute_agent.programs.kept_values import KeptValues
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.outcomes import Causes
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, SearchResult
from compute_agent.scheduler.search.targets import is_rebuild

KEPT_SECONDS: Final = 10.0
"""How long the explanation of one question serves others that are equal."""
EXPLAINED_QUERIES: Final = 4
"""Questions of one request that are explained: devices of many kinds may make more of them."""


class ExplainedRequest(Struct, frozen=True):
    """An explanation, and the hosts that the request would fit on as it is.

    :ivar plan: what the guest would get of the first host, drawn on it; empty where there is but
        one way.
    """

    causes: Causes
    hosts: tuple[HostState, ...] = ()
    plan: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "fits": bool(self.hosts),
            "hosts": [host.name for host in self.hosts],
            "plan": list(self.plan),
            "causes": to_builtins(self.causes),
        }


class Explainer:
    """Explains why requests fit nowhere.  Safe in several threads, of which one asks placement.

    :param search: of which nobody hears.
    :param is_enabled: whether requests that failed are explained; one that is asked for always is.
    """

    def __init__(
        self,
        placement: PlacementClient,
        search: HostSearch,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_enabled: bool = True,
    ) -> None:
        self._placement = placement
        self._search = search
        self._is_enabled = is_enabled
        self._lock = threading.Lock()
        self._explanations: KeptValues[str, Mapping[str, Any]] = KeptValues(
            KEPT_SECONDS, clock, most=64
        )

    def add_explanation(self, spec: RequestSpec, causes: Causes) -> Causes:
        """Return the causes of a request that failed, with what placement explains.

        Equal questions share an explanation for a while, and while one is being made other requests
        go without: a full cloud must not be asked for ever more.
        """
        if not self._is_enabled or is_rebuild(spec):
            return causes
        if not self._lock.acquire(blocking=False):
            remark = "Another request was being explained: use compute-scheduler explain."
            return replace(causes, remark=remark)
        try:
            return self._with_explanations(causes)
        finally:
            self._lock.release()

    def explain(self, spec: RequestSpec) -> ExplainedRequest:
        """Return where a request fits, or else why it does not.

        :raises InvalidRequest: the request is wrong in itself.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        try:
            spec = self._search.with_group_hosts(spec)
            result = self._search.find(spec)
        except NoValidHost as error:
            return ExplainedRequest(error.causes)
        with_room = list(dropwhile(result.members.crowding, result.hosts))
        refused = [host for host in with_room if not result.best_first(host).candidates]
        hosts = tuple(host for host in with_room if host not in refused)
        causes = result.causes.with_filter(result.members.cause(result.hosts))
        causes = causes.with_filter(result.plan_cause(refused, len(with_room)))
        if not hosts:
            with self._lock:
                return ExplainedRequest(self._with_explanations(causes))
        fits = f"One instance fits now, on {len(hosts)} host(s) such as {hosts[0].name}"
        remark = " ".join(f"{text}." for text in (fits, *self._search.warnings(spec, hosts)))
        return ExplainedRequest(replace(causes, remark=remark), hosts, self._plan(result, hosts[0]))

    def _plan(self, result: SearchResult, host: HostState) -> tuple[str, ...]:
        """Return what the guest would get of a host, with the names of its devices."""
        lines = [] if result.plans is None else result.plans.drawing(host)
        names = self._placement.provider_names(
            [uuid for uuid in host.providers if any(uuid in line for line in lines)]
        )
        for uuid, name in names.items():
            lines = [line.replace(uuid, name) for line in lines]
        return tuple(lines)

    def _with_explanations(self, causes: Causes) -> Causes:
        queries = list(causes.queries)
        places = [place for place, query in enumerate(queries) if not query.candidates]
        try:
            for place in places[:EXPLAINED_QUERIES]:
                explanation = self._explanation(queries[place].query)
                queries[place] = replace(queries[place], explanation=explanation)
        except PlacementError as error:
            causes = replace(causes, remark=f"It could not be explained further: {error}")
        return replace(causes, queries=tuple(queries))

    def _explanation(self, query: str) -> Mapping[str, Any] | None:
        explanation = self._explanations.get(query)
        if explanation is None and (answer := self._placement.explanation(parse_qsl(query))):
            explanation = self._explanations.keep(query, _of_the_request(answer))
        return explanation


def _of_the_request(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation without the changes of what the shape of a question added.

    The first sentences are those about the closest changes, one for each.
    """
    closest, sentences = explanation["closest"], explanation["sentences"]
    own_changes = [
        (changes, sentence)
        for changes, sentence in zip(closest, sentences, strict=False)
        if not any(HW_NUMA_ROOT in change.values() for change in changes["changes"])
    ]
    return {
        **explanation,
        "closest": [changes for changes, _ in own_changes],
        "sentences": [*(sentence for _, sentence in own_changes), *sentences[len(closest) :]],
    }
