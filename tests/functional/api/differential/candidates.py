"""Differences in allocation candidates that are meant.

In every rule our answer is compared with a brute force of the definitions, or with the whole
answer of the other server; the rule says by which weakness of the published server theirs comes to
be another one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from msgspec import structs

from placement_server.candidates.query import parser as queries
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from tests.unit.candidates.forest import SHARING, Provider, Result

from ..wsgi_client import Answer
from . import definition
from .definition import Key
from .pair import Difference

_PATH = "/allocation_candidates?"


def wrong_amounts(difference: Difference) -> bool:
    """A class is wanted with and without suffix and group_policy is not none."""
    asked = _AskedQuery.of(difference, (200, 200))
    if asked is None or asked.policy == "none" or not asked.a_class_is_wanted_twice():
        return False
    theirs = definition.shapes(definition.keys(difference.theirs))
    return asked.ours_is_right() and not theirs - definition.shapes(asked.expected)


def lost_anchors(difference: Difference) -> bool:
    """Only results are missing whose unsuffixed group is served by sharing providers alone."""
    asked = _AskedQuery.of(difference, (200, 200))
    if asked is None or "" not in asked.groups or len(asked.groups) < 2:
        return False
    return asked.ours_is_right() and asked.lacks_only_shared_alone(difference.theirs, asked.results)


def hidden_by_debt(difference: Difference) -> bool:
    """Only trees are missing in which an inventory of a class asked for has less than nothing.

    They add the free amounts of a tree up, and where more is reserved than there is that takes
    away from what others have.
    """
    asked = _AskedQuery.of(difference, (200, 200))
    if asked is None or not asked.ours_is_right():
        return False
    wanted = {name for group in asked.groups.values() for name, _ in group.resources}
    parents = {provider.name: provider.parent for provider in asked.world}
    indebted = {
        _root(provider.name, parents)
        for provider in asked.world
        for name, stock in provider.stock().items()
        if name in wanted and (stock.total - stock.reserved) * stock.ratio < 0
    }
    theirs = definition.keys(difference.theirs)
    missing = asked.expected - theirs
    return not theirs - asked.expected and all(
        indebted & {_root(provider, parents) for provider, _, _ in json.loads(key)[0]}
        for key in missing
    )


def groups_without_resources(difference: Difference) -> bool:
    """They find nothing for one without a positive filter, and overlook the in_tree of others."""
    asked = _AskedQuery.of(difference, (200, 200))
    if asked is None or not asked.ours_is_right():
        return False
    idle = [group for group in asked.groups.values() if not group.resources]
    if any(not group.required and not group.member_of for group in idle):
        return not definition.keys(difference.theirs)
    boundless = [
        group if group.resources else structs.replace(group, in_tree=None)
        for group in asked.query.groups
    ]
    results = asked.by_definition(structs.replace(asked.query, groups=tuple(boundless)))
    return any(group.in_tree for group in idle) and (
        asked.agrees(difference.theirs, definition.keys_of(results, asked.minor))
        or ("" in asked.groups and asked.lacks_only_shared_alone(difference.theirs, results))
    )


def limited(difference: Difference) -> bool:
    """Each answer is the right number of results of the other server's answer without limit."""
    if _AskedQuery.of(difference, (200, 200)) is None:
        return False
    pairs = difference.sent.url.removeprefix(_PATH).split("&")
    limits = [pair.partition("=")[2] for pair in pairs if pair.startswith("limit=")]
    if not limits:
        return False
    url = _PATH + "&".join(pair for pair in pairs if not pair.startswith("limit="))
    answers = difference.asked_both(url=url)
    if [answer.status for answer in answers] != [200, 200]:
        return False
    whole = replace(
        difference,
        sent=replace(difference.sent, url=url),
        theirs=answers[0],
        ours=answers[1],
    )
    return (
        _is_limited(difference, whole, int(limits[0]))
        and set(difference.ours.json["provider_summaries"]) == _summarised(difference.ours)
        and _summarises_trees(difference)
    )


def _is_limited(difference: Difference, whole: Difference, limit: int) -> bool:
    """Whether the answers are parts of those without limit, which are equal or may differ."""
    theirs, ours = difference.theirs, difference.ours
    if _is_part(theirs, whole.ours, limit) and _is_part(ours, whole.theirs, limit):
        return True
    told = (wrong_amounts, lost_anchors, hidden_by_debt, groups_without_resources)
    return (
        any(rule(whole) for rule in told)
        and _is_part(theirs, whole.theirs, limit)
        and _is_part(ours, whole.ours, limit)
    )


def crash_with_a_nested_sharing_provider(difference: Difference) -> bool:
    """They answer 500 where a sharing provider is a child in a tree."""
    for ours in (200, 400):
        asked = _AskedQuery.of(difference, (500, ours))
        if asked is not None:
            right = asked.ours_is_right() if ours == 200 else _tells_an_unknown_name(difference)
            return right and any(
                SHARING in provider.traits and provider.parent for provider in asked.world
            )
    return False


def hidden_bad_value(difference: Difference) -> bool:
    """They check the last limit or group_policy and use the first one."""
    if not difference.sent.url.startswith(_PATH) or difference.ours.status != 400:
        return False
    pairs = _pairs(difference)
    return any(
        len(values) > 1 and f"schema['properties']['{name}']" in difference.detail_of_ours
        for name in ("limit", "group_policy")
        for values in [[value for key, value in pairs if key == name]]
    )


def unknown_name_told_early(difference: Difference) -> bool:
    """Their search ends, with nothing, before it comes to a name that does not exist."""
    if not difference.sent.url.startswith(_PATH) or difference.statuses != (200, 400):
        return False
    nothing: dict[str, object] = {"allocation_requests": [], "provider_summaries": {}}
    return difference.theirs.json == nothing and _tells_an_unknown_name(difference)


def _tells_an_unknown_name(difference: Difference) -> bool:
    """Whether our error names a class or trait of the query that neither server has."""
    text = difference.detail_of_ours.removesuffix(".")
    kinds = {"No such resource class ": "resource_classes", "No such trait(s): ": "traits"}
    for words, kind in kinds.items():
        _, found, name = text.rpartition(words)
        if found and any(name in value for _, value in _pairs(difference)):
            return difference.unknown_to_both(f"/{kind}/{name}")
    return False


def _pairs(difference: Difference) -> list[tuple[str, str]]:
    return parse_qsl(difference.sent.url.partition("?")[2], keep_blank_values=True)


class _AskedQuery:
    """A candidates query that our server answered, and what the definitions say of it."""

    def __init__(self, difference: Difference) -> None:
        minor = difference.sent.minor
        assert minor is not None
        pairs = _pairs(difference)
        self.minor = minor
        self.query = queries.parse(pairs, (1, minor))
        self.groups = {group.suffix: group for group in self.query.groups}
        self.policy = next((value for name, value in pairs if name == "group_policy"), None)
        self._difference = difference

    @classmethod
    def of(cls, difference: Difference, statuses: tuple[int, int]) -> _AskedQuery | None:
        """The query, None when it is another one or was answered with other statuses."""
        sent = difference.sent
        is_search = sent.method == "GET" and sent.url.startswith(_PATH)
        return cls(difference) if is_search and difference.statuses == statuses else None

    @cached_property
    def world(self) -> list[Provider]:
        return definition.world_of(self._difference.pair.api)

    @cached_property
    def results(self) -> set[Result]:
        return self.by_definition(self.query)

    @cached_property
    def expected(self) -> Counter[Key]:
        return definition.keys_of(self.results, self.minor)

    def by_definition(self, query: CandidateQuery) -> set[Result]:
        return definition.results(self.world, query, self.minor)

    def ours_is_right(self) -> bool:
        return self.agrees(self._difference.ours, self.expected)

    def agrees(self, answer: Answer, expected: Counter[Key]) -> bool:
        """Whether an answer has all of the results expected, or as many as its limit allows."""
        found = definition.keys(answer)
        most = expected.total() if self.query.limit is None else self.query.limit
        return (
            not found - expected
            and found.total() == min(most, expected.total())
            and set(answer.json["provider_summaries"]) == _summarised(answer)
        )

    def lacks_only_shared_alone(self, answer: Answer, results: set[Result]) -> bool:
        """Whether nothing is missing but what `is_shared_alone` says."""
        found = definition.keys(answer)
        expected = definition.keys_of(results, self.minor)
        shared = definition.keys_of(filter(self.is_shared_alone, results), self.minor)
        return not found - expected and not expected - found - shared

    def a_class_is_wanted_twice(self) -> bool:
        unsuffixed = self.groups.get("", RequestGroup("")).resources
        others = [group.resources for suffix, group in self.groups.items() if suffix]
        return any(name in dict(other) for name, _ in unsuffixed for other in others)

    def is_shared_alone(self, result: Result) -> bool:
        sharing = {provider.name for provider in self.world if SHARING in provider.traits}
        return dict(result[1])[""] <= sharing


def _is_part(answer: Answer, whole: Answer, limit: int) -> bool:
    """Whether an answer is so many of the results of another one, with their summaries."""
    few, everything = definition.keys(answer), definition.keys(whole)
    summaries, every_summary = (body.json["provider_summaries"] for body in (answer, whole))
    return (
        not few - everything
        and few.total() == min(limit, everything.total())
        and set(summaries) <= set(every_summary)
        and all(_same_summary(every_summary[uuid], summary) for uuid, summary in summaries.items())
    )


def _summarises_trees(difference: Difference) -> bool:
    """Whether they summarise what they have to, or before 1.29 all they know of the same trees."""
    theirs = set(difference.theirs.json["provider_summaries"])
    required = _summarised(difference.theirs)
    minor = difference.sent.minor
    if minor is None or minor >= 29:
        return theirs == required
    parents = {
        provider.name: provider.parent for provider in definition.world_of(difference.pair.api)
    }
    return required <= theirs and all(
        _root(uuid, parents) in {_root(giver, parents) for giver in required} for uuid in theirs
    )


def _root(uuid: str, parents: Mapping[str, str | None]) -> str:
    parent = parents[uuid]
    return uuid if parent is None else _root(parent, parents)


def _summarised(answer: Answer) -> set[str]:
    """The providers that an answer has to summarise: those that give; from 1.29 their trees."""
    summaries = answer.json["provider_summaries"]
    requests = answer.json["allocation_requests"]
    givers = {uuid for request in requests for uuid in definition.given(request)}
    if not givers <= set(summaries):
        return givers
    roots = {summaries[uuid].get("root_provider_uuid", uuid) for uuid in givers}
    return {
        uuid
        for uuid, summary in summaries.items()
        if summary.get("root_provider_uuid", uuid) in roots
    }


def _same_summary(one: dict[str, Any], other: dict[str, Any]) -> bool:
    traits = [sorted(instance.get("traits", ())) for instance in (one, other)]
    return traits[0] == traits[1] and {**one, "traits": 0} == {**other, "traits": 0}
