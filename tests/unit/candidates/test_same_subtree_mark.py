"""A `!` in same_subtree means something only to those who asked for the extensions."""

import pytest

from placement_server.candidates.errors import QueryError
from placement_server.candidates.query import query


def parse(value: str, *, extensions: bool) -> query.CandidateQuery:
    params = [("resources_A", "VCPU:1"), ("resources_B", "VCPU:1"), ("group_policy", "none")]
    return query.parse([*params, ("same_subtree", value)], (1, 39), extensions=extensions)


def test_without_the_extensions_a_lone_mark_is_an_unknown_suffix() -> None:
    with pytest.raises(QueryError, match=r"\['!'\] not found in"):
        parse("_A,!", extensions=False)


def test_with_the_extensions_a_lone_mark_names_nothing() -> None:
    with pytest.raises(QueryError, match="Empty string"):
        parse("_A,!", extensions=True)


def test_with_the_extensions_a_mark_keeps_the_group_apart() -> None:
    (subtree,) = parse("_A,!_B", extensions=True).same_subtree
    assert (subtree.together, subtree.apart) == (frozenset({"_A"}), frozenset({"_B"}))
