"""Reading of requests for allocation candidates from a query string.

Everything that can be checked without looking at the store is checked here, in the order in which
the Placement API checks it: the JSON schema of the query string, root_required, same_subtree, the
group parameters in the order of the query, the shape of the groups, contradictions between traits,
the group policy. The names come after. The names, the regular expressions and even the order of
the keys of the schemas are part of the error texts that clients see.
"""

import copy
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jsonschema

from placement_server import limits
from placement_server.candidates.errors import QueryError
from placement_server.candidates.query.filters import (
    INVALID,
    FilterSize,
    Microversion,
    check_limits,
    parse_in_tree,
    parse_member_of,
    parse_required,
    parse_resources,
)
from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree

DUPLICATE_KEY = "placement.query.duplicate_key"
BAD_VALUE = "placement.query.bad_value"
MISSING_VALUE = "placement.query.missing_value"

Parameters = Sequence[tuple[str, str]]

_MOST_DIGITS = 18
_GROUP_KEY = re.compile(r"^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?$")
JsonSchema = dict[str, Any]

_NUMBER = "([1-9][0-9]*)?$"
_SUFFIX = "([a-zA-Z0-9_-]{1,64})?$"
EXTENDED_NAMES = ("root_member_of", "isolate")


# A query string only has strings; the integer forms serve callers that pass numbers.
_LIMIT: JsonSchema = {
    "type": ["integer", "string"],
    "pattern": "^[1-9][0-9]*$",
    "minimum": 1,
    "minLength": 1,
}


def _plain(*names: str) -> JsonSchema:
    properties: JsonSchema = {"resources": {"type": "string"}}
    for name in names:
        properties[name] = _LIMIT if name == "limit" else {"type": ["string"]}
    return {
        "type": "object",
        "properties": properties,
        "required": ["resources"],
        "additionalProperties": False,
    }


def _group_schema(suffix: str, *keywords: str, names: tuple[str, ...] = ()) -> JsonSchema:
    properties: JsonSchema = {
        "limit": _LIMIT,
        "group_policy": {"type": "string", "enum": ["none", "isolate"]},
    }
    properties.update({name: {"type": ["string"]} for name in names})
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "patternProperties": {f"^{keyword}{suffix}": {"type": "string"} for keyword in keywords},
    }


_FOUR = ("resources", "required", "member_of", "in_tree")

SCHEMAS: dict[Microversion, JsonSchema] = {
    (1, 10): _plain(),
    (1, 16): _plain("limit"),
    (1, 17): _plain("limit", "required"),
    (1, 21): _plain("limit", "required", "member_of"),
    (1, 25): _group_schema(_NUMBER, *_FOUR[:3]),
    (1, 31): _group_schema(_NUMBER, *_FOUR),
    (1, 33): _group_schema(_SUFFIX, *_FOUR),
    (1, 35): _group_schema(_SUFFIX, *_FOUR, names=("root_required",)),
    (1, 36): _group_schema(_SUFFIX, *_FOUR, names=("root_required", "same_subtree")),
}
"""By the microversion from which on each is valid."""


def schema_for(microversion: Microversion, *, extensions: bool = False) -> JsonSchema:
    """Return the schema for a microversion.

    :param extensions: add the parameters of `placement-ext 1.0`. They build on the parameters of
        1.36, so below that microversion nothing is added.
    """
    since = max(version for version in SCHEMAS if version <= microversion)
    schema = SCHEMAS[since]
    if not extensions or since < (1, 36):
        return schema
    extended_schema = copy.deepcopy(schema)
    extended_schema["properties"].update({name: {"type": ["string"]} for name in EXTENDED_NAMES})
    return extended_schema


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
    lists = values.get("isolate", []) if extensions else []
    isolate = frozenset(suffix for value in lists for suffix in _suffix_list(value, "isolate"))
    root_member_of, root_not_member_of = parse_member_of(
        values.get("root_member_of", []) if extensions else [], microversion, "root_member_of"
    )
    if len(groups) > limits.GROUPS:
        message = limits.too_many("the query", len(groups), "request groups", limits.GROUPS)
        raise QueryError(f"{INVALID}{message}")
    required_terms = [frozenset({name}) for name in root_required]
    check_limits(
        [
            *(filter_size for group in groups for filter_size in group.filters()),
            FilterSize.of("root_required", "traits", required_terms, root_forbidden),
            FilterSize.of("root_member_of", "aggregates", root_member_of, root_not_member_of),
            FilterSize("same_subtree", "suffixes", len(subtrees), sum(map(len, subtrees))),
            FilterSize("isolate", "suffixes", bool(isolate), len(isolate)),
        ]
    )
    _check_shape(groups, subtrees, microversion)
    # Below 1.22 nothing can be forbidden.
    _check_contradictions(groups)
    suffixed_groups = [group for group in groups if group.suffix]
    if isolate and policy is not None:
        raise QueryError(
            "`isolate` and `group_policy` say how groups share providers, each in its own way: "
            "give one of them.",
            BAD_VALUE,
        )
    if isolate:
        _check_suffixes(sorted(isolate), suffixed_groups, "isolate")
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


def _suffix_list(value: str, key: str, *, marked: bool = False) -> list[str]:
    """Split a list of suffixes.

    :param marked: whether a suffix may have `!` before it.
    """
    suffixes = list(dict.fromkeys(item.strip() for item in value.split(",")))
    if not all(suffix.removeprefix("!") if marked else suffix for suffix in suffixes):
        raise QueryError(
            f"Empty string (unsuffixed group) can not be specified in `{key}` ", BAD_VALUE
        )
    return suffixes


def _same_subtree(value: str, extensions: bool) -> SameSubtree:
    suffixes = _suffix_list(value, "same_subtree", marked=extensions)
    if not extensions:
        return SameSubtree(frozenset(suffixes))
    apart = frozenset(suffix[1:] for suffix in suffixes if suffix.startswith("!"))
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


def _check_contradictions(groups: list[RequestGroup]) -> None:
    conflicts = [
        f"required{group.suffix}: ({', '.join(sorted(term))})"
        for group in groups
        for term in group.required
        if term <= group.forbidden
    ]
    if conflicts:
        raise QueryError(
            "Conflicting required and forbidden traits found in the following traits keys: "
            + ", ".join(conflicts)
        )
