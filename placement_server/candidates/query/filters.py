"""Parsers of the filter values that GET /allocation_candidates and GET /resource_providers share.

Each takes the value as it came (percent-decoded) and raises `QueryError` with the text that
the Placement API gives. Names of classes and traits are only split here; whether they exist is
checked later, against the store.
"""

from collections.abc import Sequence
from typing import NamedTuple

from placement_server import limits
from placement_server.candidates.errors import QueryError

Microversion = tuple[int, int]
TraitTerms = tuple[frozenset[str], ...]
AggregateTerms = tuple[frozenset[str], ...]

INVALID = "Invalid query string parameters: "
_HEX = frozenset("0123456789abcdef")


class FilterSize(NamedTuple):
    """Size of one parameter of a query.

    :ivar kind: what it names, in the plural.
    :ivar terms: how many conditions it makes.
    :ivar names: how many names these have.
    """

    parameter: str
    kind: str
    terms: int
    names: int

    @classmethod
    def of(
        cls,
        parameter: str,
        kind: str,
        terms: Sequence[frozenset[str]],
        forbidden_names: frozenset[str],
    ) -> "FilterSize":
        """Measure required terms and forbidden names; those of `member_of` are one condition."""
        apart = len(forbidden_names) if kind == "traits" else bool(forbidden_names)
        names = sum(map(len, terms)) + len(forbidden_names)
        return cls(parameter, kind, len(terms) + apart, names)


def check_limits(filters: Sequence[FilterSize]) -> None:
    """Refuse a query that asks for more than one request may."""
    _check_sum(
        [(filter_size.parameter, filter_size.terms) for filter_size in filters],
        "filters",
        limits.FILTERS,
    )
    for kind in dict.fromkeys(filter_size.kind for filter_size in filters):
        names = [
            (filter_size.parameter, filter_size.names)
            for filter_size in filters
            if filter_size.kind == kind
        ]
        _check_sum(names, kind, limits.NAMES)


def _check_sum(counts: Sequence[tuple[str, int]], what: str, most: int) -> None:
    total = sum(count for _, count in counts)
    if total <= most:
        return
    parameter, count = max(counts, key=lambda pair: pair[1])
    field = f"'{parameter}'" if count == total else "the query"
    raise QueryError(f"{INVALID}{limits.too_many(field, total, what, most)}")


def is_uuid_like(value: str) -> bool:
    """Check whether a value is a uuid in any of the accepted spellings (dashless, braces, urn)."""
    digits = value.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
    return len(digits) == 32 and _HEX.issuperset(digits)


def parse_resources(value: str) -> dict[str, int]:
    """Parse `VCPU:2,MEMORY_MB:1024` into amounts by class name; the last of equal names wins."""
    form = (
        "Badly formed resources parameter. Expected resources query string parameter in form: "
        "?resources=VCPU:2,MEMORY_MB:1024. Got: {}."
    )
    if not value.strip():
        raise QueryError(form.format("empty string"))
    amounts: dict[str, int] = {}
    for item in value.split(","):
        name, colon, text = item.partition(":")
        if not colon or ":" in text:
            raise QueryError(form.format(item))
        try:
            amount = int(text)
        except ValueError:
            raise QueryError(
                f"Requested resource {name} expected positive integer amount. Got: {text}."
            ) from None
        if amount < 1:
            raise QueryError(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        amounts[name] = amount
    return amounts


def parse_required(
    values: Sequence[str], microversion: Microversion, key: str = "required"
) -> tuple[TraitTerms, frozenset[str]]:
    """Parse the values of `required`.

    :param values: every value of the parameter that counts (below 1.39 only the last does).
    :param key: the name of the parameter; `root_required` never takes an `in:` list.
    :returns: the terms that must each be met by at least one of their traits (a plain trait is a
        term of one), and the forbidden traits.
    """
    forbidding = microversion >= (1, 22)
    example = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if forbidding else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    form = f"{INVALID}Expected 'required' parameter value of the form: {example}. "
    terms: list[frozenset[str]] = []
    forbidden_traits: set[str] = set()
    for value in values:
        if value.startswith("in:"):
            terms.append(_parse_any_of(value, microversion, key))
            continue
        for item in map(str.strip, value.split(",")):
            trait = item.lstrip("!").strip()
            if not trait:
                raise QueryError(f"{form}Got an empty trait in: {value}")
            if not item.startswith("!"):
                terms.append(frozenset((trait,)))
            elif forbidding:
                forbidden_traits.add(trait)
            else:
                raise QueryError(f"{form}Got: {value}")
    return tuple(dict.fromkeys(terms)), frozenset(forbidden_traits)


def _parse_any_of(value: str, microversion: Microversion, key: str) -> frozenset[str]:
    example = "in:HW_CPU_X86_VMX,CUSTOM_MAGIC"
    if microversion < (1, 39) or key == "root_required":
        raise QueryError(
            f"{INVALID}The format '{example}' only supported since microversion 1.39. Got: {value}"
        )
    traits = [item.strip() for item in value[len("in:") :].split(",")]
    if not all(traits):
        raise QueryError(
            f"{INVALID}Expected 'required' parameter value of the form: {example}. "
            f"Got an empty trait in: {value}"
        )
    if any(trait.startswith("!") for trait in traits):
        raise QueryError(
            f"{INVALID}The format '{example}' does not support forbidden traits. Got: {value}"
        )
    return frozenset(traits)


def parse_member_of(
    values: Sequence[str], microversion: Microversion, key: str = "member_of"
) -> tuple[AggregateTerms, frozenset[str]]:
    """Parse the values of `member_of`.

    :returns: the terms that must each be met by membership in at least one of their aggregates,
        and the aggregates that it must not be a member of.
    """
    if len(values) > 1 and microversion < (1, 24):
        raise QueryError(f"Multiple {key} parameters are not supported")
    terms: list[frozenset[str]] = []
    forbidden_aggregates: set[str] = set()
    for value in values:
        is_forbidden, rest = value.startswith("!"), value.removeprefix("!")
        if rest.startswith("in:"):
            aggregates = rest[len("in:") :].split(",")
        elif "," in rest:
            raise QueryError(
                "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword "
                f"using the valid microversion. Got: {value}"
            )
        else:
            aggregates = [rest]
        for aggregate in aggregates:
            if not is_uuid_like(aggregate):
                raise QueryError(
                    f"{INVALID}Expected 'member_of' parameter to contain valid UUID(s). "
                    f"Got: {aggregate}"
                )
        if is_forbidden and microversion < (1, 32):
            raise QueryError(
                f"Forbidden {key} parameters are not supported in the specified microversion"
            )
        if is_forbidden:
            forbidden_aggregates.update(aggregates)
        else:
            terms.append(frozenset(aggregates))
    return tuple(dict.fromkeys(terms)), frozenset(forbidden_aggregates)


def parse_in_tree(value: str) -> str:
    """Parse `in_tree` of the candidates: one provider uuid in any spelling, compared as given."""
    uuid = value.strip()
    if not is_uuid_like(uuid):
        raise QueryError(
            f"{INVALID}Expected 'in_tree' parameter to be a format of uuid. Got: {value}"
        )
    return uuid
