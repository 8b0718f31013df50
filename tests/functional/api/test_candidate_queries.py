"""Answers of GET /allocation_candidates to queries that are wrong."""

import pytest

from .candidate_world import A1, UNKNOWN, UUID, ask, error, found
from .wsgi_client import Client


@pytest.mark.parametrize("limit", ["0", "-5", "cow", "", "%201", "1.5"])
def test_an_invalid_limit_is_a_schema_error(api: Client, limit: str) -> None:
    detail, _ = error(api, f"resources=VCPU:1&limit={limit}")
    assert detail.startswith("Invalid query string parameters: ")
    assert "Failed validating 'pattern'" in detail


@pytest.mark.parametrize(
    ("query", "version", "fragment"),
    [
        ("resources=VCPU:1&limit=1", "1.15", "'limit' was unexpected"),
        ("resources=VCPU:1&required=X", "1.16", "'required' was unexpected"),
        (f"resources=VCPU:1&member_of={A1}", "1.20", "'member_of' was unexpected"),
        ("resources=VCPU:1&resources1=VCPU:1", "1.24", "'resources1' was unexpected"),
        ("resources=VCPU:1&group_policy=none", "1.24", "'group_policy' was unexpected"),
        ("", "1.24", "'resources' is a required property"),
        ("resources01=VCPU:1", "1.32", "'resources01' does not match any of the regexes"),
        ("resources0=VCPU:1", "1.32", "'resources0' does not match any of the regexes"),
        ("resources=VCPU:1&in_tree=x", "1.30", "'in_tree' does not match any of the regexes"),
        ("root_required=X", "1.34", "'root_required' does not match any of the regexes"),
        ("same_subtree=X", "1.35", "'same_subtree' does not match any of the regexes"),
        ("resources=VCPU:1&group_policy=bogus", "1.25", "not one of ['none', 'isolate']"),
        (f"resources{'x' * 65}=VCPU:1", "1.33", "does not match any of the regexes"),
        ("resources=VCPU:1&group_policy=none%20", "1.39", "is not one of ['none', 'isolate']"),
    ],
)
def test_what_a_version_does_not_know_is_a_schema_error(
    api: Client, query: str, version: str, fragment: str
) -> None:
    detail, _ = error(api, query, version)
    assert detail.startswith("Invalid query string parameters: ")
    assert fragment in detail


@pytest.mark.parametrize(
    ("since", "query"),
    [
        (16, "limit=1"),
        (17, "required=HW_NUMA_ROOT"),
        (21, f"member_of={A1}"),
        (25, "resources1=VCPU:1"),
        (25, "group_policy=none"),
        (31, f"in_tree={UUID['hostB']}"),
        *((33, f"resources{suffix}=VCPU:1") for suffix in ("01", "0", "_COMPUTE", "-x", "x" * 64)),
        (35, "root_required=CUSTOM_RACK"),
        (36, "resources_A=VCPU:1&same_subtree=_A"),
    ],
)
def test_a_parameter_is_known_from_its_version_on(world: Client, since: int, query: str) -> None:
    assert ask(world, f"resources=VCPU:1&{query}", f"1.{since}")["allocation_requests"]


@pytest.mark.parametrize(
    ("query", "version", "detail", "code"),
    [
        (
            "resources=VCPU:1&root_required=A&root_required=B",
            "1.39",
            "Query parameter 'root_required' may be specified only once.",
            "placement.query.duplicate_key",
        ),
        (
            f"resources=VCPU:1&member_of3={A1}",
            "1.35",
            "All member_of parameters must be associated with resources. Found the following "
            "orphaned member_of keys: member_of3",
            "placement.undefined_code",
        ),
        (
            "resources_A=VCPU:1&required_B=HW_NUMA_ROOT&same_subtree=_A,_B",
            "1.39",
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.',
            "placement.undefined_code",
        ),
    ],
)
def test_contradictions_in_a_query(
    world: Client, query: str, version: str, detail: str, code: str
) -> None:
    """The words of each are in tests/unit/candidates/test_query.py."""
    told, told_code = error(world, query, version)
    assert (" ".join(told.split()), told_code) == (detail, code)


def test_unknown_names_are_told(world: Client) -> None:
    assert error(world, "resources=NOPE:1")[0] == (
        "Invalid resource class in resources parameter: No such resource class NOPE."
    )
    for query in ("required=CUSTOM_NOPE", "required=!CUSTOM_NOPE", "root_required=CUSTOM_NOPE"):
        assert error(world, f"resources=VCPU:1&{query}")[0] == "No such trait(s): CUSTOM_NOPE."
    assert found(world, f"resources=VCPU:1&member_of={UNKNOWN}") == set()


@pytest.mark.parametrize(
    "earlier", [f"in_tree={UNKNOWN}", f"member_of={UNKNOWN}", "required=MISC_SHARES_VIA_AGGREGATE"]
)
def test_unknown_names_are_told_whatever_earlier_groups_find(world: Client, earlier: str) -> None:
    assert found(world, f"resources=VCPU:1&{earlier}") == set()
    told = error(world, f"resources=VCPU:1&{earlier}&resources1=VCPU:1000,NOPE:1")[0]
    assert told == "Invalid resource class in resources parameter: No such resource class NOPE."
    told = error(world, f"resources=VCPU:1&{earlier}&resources1=VCPU:1&required1=!CUSTOM_NOPE")[0]
    assert told == "No such trait(s): CUSTOM_NOPE."


def test_orphaned_keys_are_told_before_unknown_names(world: Client) -> None:
    query = "resources1=NOPE:1&required=CUSTOM_NOPE"
    told = error(world, query, "1.35")[0]
    assert "Found the following orphaned traits keys: required" in " ".join(told.split())


def test_one_suffixed_group_needs_no_policy(world: Client) -> None:
    assert found(world, "resources=MEMORY_MB:1&resources1=VCPU:1")


def test_a_partly_forbidden_set_is_no_contradiction(world: Client) -> None:
    query = "resources=VCPU:1&required=in:CUSTOM_FAST,HW_NUMA_ROOT&required=!CUSTOM_FAST"
    assert found(world, query) == {"cellA0(VCPU:1)"}
