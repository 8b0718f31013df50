"""Requests for allocation candidates, as values, and their reading from a query string.

Everything that can be checked without looking at the store is checked here, in the order in which
the Placement API checks it: root_required, same_subtree, the group parameters in the order of the
query, the shape of the groups, contradictions between traits, the group policy. The JSON schema of
the query string comes before (`placement_server.candidates.query.schema`), the names come
after.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema

from placement_server import limits
from placement_server.candidates.errors import QueryError
from placement_server.candidates.query.filters import (
    INVALID,
    AggregateTerms,
    FilterSize,
    Microversion,
    TraitTerms,
    check_limits,
    parse_in_tree,
    parse_member_of,
    parse_required,
    parse_resources,
)
from placement_server.candidates.query.schema import schema_for

DUPLICATE_KEY = "placement.query.duplicate_key"
BAD_VALUE = "placement.query.bad_value"
MISSING_VALUE = "placement.query.missing_value"

GroupPolicy = Literal["none", "isolate"]
Parameters = Sequence[tuple[str, str]]

_MOST_DIGITS = 18
_GROUP_KEY = re.compile(r"^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?$")


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One group of requested resources.

    :param suffix: "" for the unsuffixed group.
    :param resources: amounts by class name, in the order asked.
    :param required: every term must be met by at least one of its traits.
    :param member_of: every term must be met by membership in at least one of its aggregates.
    :param in_tree: the uuid of any provider of the only tree that may serve the group.
    """

    suffix: str
    resources: tuple[tuple[str, int], ...] = ()
    required: TraitTerms = ()
    forbidden: frozenset[str] = frozenset()
    member_of: AggregateTerms = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None

    def filters(self) -> Iterator[FilterSize]:
        """Yield how much each parameter of the group asks for."""
        suffix, amounts = self.suffix, len(self.resources)
        yield FilterSize(f"resources{suffix}", "resource classes", amounts, amounts)
        yield FilterSize.of(f"required{suffix}", "traits", self.required, self.forbidden)
        yield FilterSize.of(
            f"member_of{suffix}", "aggregates", self.member_of, self.forbidden_aggregates
        )
        yield FilterSize(f"in_tree{suffix}", "resource providers", *[self.in_tree is not None] * 2)


@dataclass(frozen=True, slots=True)
class SameSubtree:
    """One same_subtree constraint, by suffixes.

    The providers of `together` must all be in the subtree of one of them; those of `apart`
    (written with `!`, an extension) must not be in that subtree.
    """

    together: frozenset[str]
    apart: frozenset[str] = frozenset()

    def __len__(self) -> int:
        """Count the suffixes."""
        return len(self.together) + len(self.apart)


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """A request for allocation candidates.

    :param groups: in the order in which their suffixes first appear in the query.
    :param isolate: suffixes whose providers serve no other group at all (an extension).
    :param root_member_of: aggregate terms on the root of the tree (an extension).
    """

    groups: tuple[RequestGroup, ...]
    group_policy: GroupPolicy = "none"
    limit: int | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[SameSubtree, ...] = ()
    isolate: frozenset[str] = frozenset()
    root_member_of: AggregateTerms = ()
    root_forbidden_aggregates: frozenset[str] = frozenset()


def parse(
    params: Parameters, microversion: Microversion, *, extensions: bool = False
) -> CandidateQuery:
    """Read a query.

    :param params: names and values in the order of the query string. They have passed the schema
        of the microversion.
    :param extensions: understand the parameters of `placement-ext 1.0` as well.
    :raises QueryError: with the text and the code of the Placement API.
    """
    extensions = extensions and microversion >= (1, 36)
    values: dict[str, list[str]] = {}
    for name, value in params:
        values.setdefault(name, []).append(value)
    limit, policy = _first_values(values, microversion)
    root_required, root_forbidden = _root_required(values.get("root_required", []), microversion)
    subtrees = [_same_subtree(value, extensions) for value in values.get("same_subtree", [])]
    groups = _groups(params, values, microversion)
    isolate, root_member_of, root_not_member_of = _extension_fields(
        values, microversion, extensions
    )
    _check_limits(
        groups,
        FilterSize.of(
            "root_required", "traits", [frozenset({name}) for name in root_required], root_forbidden
        ),
        FilterSize.of("root_member_of", "aggregates", root_member_of, root_not_member_of),
        FilterSize("same_subtree", "suffixes", len(subtrees), sum(map(len, subtrees))),
        FilterSize("isolate", "suffixes", bool(isolate), len(isolate)),
    )
    _check_shape(groups, subtrees, microversion)
    _check_contradictions(groups, microversion)
    suffixed_groups = [group for group in groups if group.suffix]
    if isolate:
        _check_isolate(isolate, policy, suffixed_groups)
    elif policy is None and len(suffixed_groups) > 1 and not extensions:
        raise QueryError(
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.'
        )
    return CandidateQuery(
        groups=tuple(groups),
        group_policy="isolate" if policy == "isolate" else "none",
        limit=limit,
        root_required=root_required,
        root_forbidden=root_forbidden,
        same_subtree=tuple(subtrees),
        isolate=isolate,
        root_member_of=root_member_of,
        root_forbidden_aggregates=root_not_member_of,
    )


def _first_values(
    values: dict[str, list[str]], microversion: Microversion
) -> tuple[int | None, str | None]:
    """Return limit and group_policy, of which the first value counts.

    The schema only saw the last value of each, so the first one is checked against it here.
    """
    first = {name: values[name][0] for name in ("limit", "group_policy") if name in values}
    if any(len(values[name]) > 1 for name in first):
        try:
            jsonschema.validate(first, {"properties": schema_for(microversion)["properties"]})
        except jsonschema.ValidationError as error:
            raise QueryError(f"{INVALID}{error}") from None
    limit = first.get("limit")
    # Beyond this many there are none, and numbers of thousands of digits are not worth reading.
    bounded_limit = None if limit is None else int(limit[:_MOST_DIGITS])
    return bounded_limit, first.get("group_policy")


def _root_required(
    values: list[str], microversion: Microversion
) -> tuple[frozenset[str], frozenset[str]]:
    if len(values) > 1:
        raise QueryError(
            "Query parameter 'root_required' may be specified only once.", DUPLICATE_KEY
        )
    terms, forbidden_traits = parse_required(values, microversion, "root_required")
    required_traits = frozenset().union(*terms)
    conflicts = required_traits & forbidden_traits
    if conflicts:
        raise QueryError(
            "Conflicting required and forbidden traits found in root_required: "
            + ", ".join(sorted(conflicts)),
            BAD_VALUE,
        )
    return required_traits, forbidden_traits


def _suffix_list(value: str, key: str) -> list[str]:
    suffixes = list(dict.fromkeys(item.strip() for item in value.split(",")))
    _require_suffixes(suffixes, key)
    return suffixes


def _require_suffixes(suffixes: Iterable[str], key: str) -> None:
    if not all(suffixes):
        raise QueryError(
            f"Empty string (unsuffixed group) can not be specified in `{key}` ", BAD_VALUE
        )


def _same_subtree(value: str, extensions: bool) -> SameSubtree:
    suffixes = _suffix_list(value, "same_subtree")
    if not extensions:
        return SameSubtree(frozenset(suffixes))
    apart = frozenset(suffix[1:] for suffix in suffixes if suffix.startswith("!"))
    _require_suffixes(apart, "same_subtree")
    together = frozenset(suffix for suffix in suffixes if not suffix.startswith("!"))
    if not together or together & apart:
        raise QueryError(
            "`same_subtree` must name at least one suffix without `!`, and none both with and "
            f"without it. Got: {value}",
            BAD_VALUE,
        )
    return SameSubtree(together, apart)


def _groups(
    params: Parameters, values: dict[str, list[str]], microversion: Microversion
) -> list[RequestGroup]:
    """Parse the group parameters in the order of the query: the first error is the one reported.

    `resources` and `in_tree` are parsed each time that they are given, though only the last
    counts; `required` and `member_of` once, where they first appear.
    """
    fields: dict[str, dict[str, Any]] = {}
    parsed_names: set[str] = set()
    for name, value in params:
        match = _GROUP_KEY.match(name)
        if match is None:
            continue
        keyword, suffix = match.group(1), match.group(2) or ""
        group = fields.setdefault(suffix, {})
        if keyword == "resources":
            group["resources"] = tuple(parse_resources(value).items())
        elif keyword == "in_tree":
            group["in_tree"] = parse_in_tree(value)
        elif name in parsed_names:
            continue
        elif keyword == "required":
            counted_values = values[name] if microversion >= (1, 39) else values[name][-1:]
            group["required"], group["forbidden"] = parse_required(counted_values, microversion)
        else:
            group["member_of"], group["forbidden_aggregates"] = parse_member_of(
                values[name], microversion, name
            )
        parsed_names.add(name)
    return [RequestGroup(suffix=suffix, **group) for suffix, group in fields.items()]


def _extension_fields(
    values: dict[str, list[str]], microversion: Microversion, extensions: bool
) -> tuple[frozenset[str], AggregateTerms, frozenset[str]]:
    if not extensions:
        return frozenset(), (), frozenset()
    isolate = frozenset(
        suffix for value in values.get("isolate", []) for suffix in _suffix_list(value, "isolate")
    )
    terms, forbidden_aggregates = parse_member_of(
        values.get("root_member_of", []), microversion, "root_member_of"
    )
    return isolate, terms, forbidden_aggregates


def _check_limits(groups: list[RequestGroup], *others: FilterSize) -> None:
    if len(groups) > limits.GROUPS:
        message = limits.too_many("the query", len(groups), "request groups", limits.GROUPS)
        raise QueryError(f"{INVALID}{message}")
    check_limits([*(filter_size for group in groups for filter_size in group.filters()), *others])


def _check_shape(
    groups: list[RequestGroup], subtrees: list[SameSubtree], microversion: Microversion
) -> None:
    if microversion < (1, 36):
        _check_all_have_resources(groups)
        return
    if not any(group.resources for group in groups):
        raise QueryError(
            "There must be at least one resources or resources[$S] parameter.", MISSING_VALUE
        )
    named_suffixes = [
        suffix for subtree in subtrees for suffix in sorted(subtree.together | subtree.apart)
    ]
    idle = [
        group.suffix
        for group in groups
        if not group.resources and group.suffix not in named_suffixes
    ]
    if idle:
        raise QueryError(
            "Resourceless suffixed group request should be specified in `same_subtree` query "
            f"param: bad group(s) - {idle}.",
            BAD_VALUE,
        )
    _check_suffixes(named_suffixes, groups, "same_subtree")


def _check_suffixes(names: Iterable[str], groups: list[RequestGroup], key: str) -> None:
    suffixes = [group.suffix for group in groups]
    unknown = [suffix for suffix in dict.fromkeys(names) if suffix not in suffixes]
    if unknown:
        raise QueryError(
            f"Real suffixes should be specified in `{key}`: {unknown} not found in {suffixes}.",
            BAD_VALUE,
        )


def _check_all_have_resources(groups: list[RequestGroup]) -> None:
    idle = [group for group in groups if not group.resources]
    traits = [f"required{group.suffix}" for group in idle if group.required]
    if traits:
        raise QueryError(
            "All traits parameters must be associated with resources.  Found the following "
            f"orphaned traits keys: {', '.join(traits)}"
        )
    aggregates = [
        f"member_of{group.suffix}"
        for group in idle
        if group.member_of or group.forbidden_aggregates
    ]
    if aggregates:
        raise QueryError(
            "All member_of parameters must be associated with resources. Found the following "
            f"orphaned member_of keys: {', '.join(aggregates)}"
        )
    if idle:
        raise QueryError("All request groups must specify resources.")
    if not groups:
        raise QueryError("At least one request group (`resources` or `resources{$S}`) is required.")


def _check_contradictions(groups: list[RequestGroup], microversion: Microversion) -> None:
    if microversion < (1, 22):
        return
    conflicts = []
    for group in groups:
        conflicts += [
            f"required{group.suffix}: ({', '.join(sorted(term))})"
            for term in group.required
            if term <= group.forbidden
        ]
    if conflicts:
        raise QueryError(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + ", ".join(conflicts)
        )


def _check_isolate(
    isolate: frozenset[str], policy: str | None, suffixed_groups: list[RequestGroup]
) -> None:
    if policy is not None:
        raise QueryError(
            "`isolate` and `group_policy` say how groups share providers, each in its own way: "
            "give one of them.",
            BAD_VALUE,
        )
    _check_suffixes(sorted(isolate), suffixed_groups, "isolate")
