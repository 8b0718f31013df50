"""The reading of queries, and the words in which they are refused."""

from __future__ import annotations

from urllib.parse import parse_qsl

import jsonschema
import pytest

from placement_server.candidates.errors import QueryError
from placement_server.candidates.query.parser import parse, schema_for
from placement_server.candidates.query.query import CandidateQuery, SameSubtree

U1 = "11111111-1111-1111-1111-111111111111"
U2 = "22222222-2222-2222-2222-222222222222"
CUT = "Invalid query string parameters: "
FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: "
)
TRAITS = CUT + "Expected 'required' parameter value of the form: "
BAD = "placement.query.bad_value"


def read(query: str, version: int = 39, *, extensions: bool = False) -> CandidateQuery:
    pairs = parse_qsl(query, keep_blank_values=True)
    return parse(pairs, (1, version), extensions=extensions)


REFUSED = [
    ("resources=", 39, FORM + "empty string."),
    ("resources=VCPU", 39, FORM + "VCPU."),
    ("resources=VCPU:1,", 39, FORM + "."),
    ("resources=VCPU:1:2", 39, FORM + "VCPU:1:2."),
    ("resources=VCPU:a", 39, "Requested resource VCPU expected positive integer amount. Got: a."),
    ("resources=VCPU:0", 39, "Requested resource VCPU requires amount >= 1. Got: 0."),
    ("resources=&resources=VCPU:1", 39, FORM + "empty string."),
    (
        "resources=VCPU:1&required=",
        39,
        TRAITS + "HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: ",
    ),
    (
        "resources=VCPU:1&required=A,!",
        39,
        TRAITS + "HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: A,!",
    ),
    ("resources=VCPU:1&required=!A", 21, TRAITS + "HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !A"),
    (
        "resources=VCPU:1&required=in:A",
        38,
        CUT + "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. "
        "Got: in:A",
    ),
    (
        "resources=VCPU:1&required=in:A,",
        39,
        TRAITS + "in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: in:A,",
    ),
    (
        "resources=VCPU:1&required=in:A,!B",
        39,
        CUT + "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. "
        "Got: in:A,!B",
    ),
    (
        "resources=VCPU:1&member_of=x",
        39,
        CUT + "Expected 'member_of' parameter to contain valid UUID(s). Got: x",
    ),
    (
        f"resources=VCPU:1&member_of={U1},{U2}",
        39,
        "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using "
        f"the valid microversion. Got: {U1},{U2}",
    ),
    (
        f"resources1=VCPU:1&member_of1=!{U1}",
        31,
        "Forbidden member_of1 parameters are not supported in the specified microversion",
    ),
    (
        f"resources=VCPU:1&member_of={U1}&member_of={U2}",
        23,
        "Multiple member_of parameters are not supported",
    ),
    (
        "resources=VCPU:1&in_tree=x",
        39,
        CUT + "Expected 'in_tree' parameter to be a format of uuid. Got: x",
    ),
    (
        "required=A&resources1=VCPU:1&required2=B",
        35,
        "All traits parameters must be associated with resources.  Found the following orphaned "
        "traits keys: required, required2",
    ),
    (
        f"resources=VCPU:1&member_of1={U1}&member_of3=!{U1}",
        35,
        "All member_of parameters must be associated with resources. Found the following orphaned "
        "member_of keys: member_of1, member_of3",
    ),
    (f"resources=VCPU:1&in_tree1={U1}", 35, "All request groups must specify resources."),
    ("resources=VCPU:1&required1=!A", 35, "All request groups must specify resources."),
    (
        "limit=1",
        35,
        "At least one request group (`resources` or `resources{$S}`) is required.",
    ),
    (
        "resources1=VCPU:1&resources2=VCPU:1",
        39,
        'The "group_policy" parameter is required when specifying more than one "resources{N}" '
        "parameter.",
    ),
    (
        "resources1=VCPU:1&required1=A,!A,B,!B",
        39,
        "Conflicting required and forbidden traits found in the following traits keys: "
        "required1: (A), required1: (B)",
    ),
    (
        "resources=VCPU:1&required=in:A,B&required=!A,!B",
        39,
        "Conflicting required and forbidden traits found in the following traits keys: "
        "required: (A, B)",
    ),
]


@pytest.mark.parametrize(("query", "version", "text"), REFUSED)
def test_a_malformed_query_is_refused_in_the_words_of_the_api(
    query: str, version: int, text: str
) -> None:
    with pytest.raises(QueryError) as raised:
        read(query, version)
    assert raised.value.message == text
    assert raised.value.code is None


CODED = [
    (
        "resources=VCPU:1&root_required=A&root_required=B",
        "Query parameter 'root_required' may be specified only once.",
        "placement.query.duplicate_key",
    ),
    (
        "resources=VCPU:1&root_required=A,!A,B",
        "Conflicting required and forbidden traits found in root_required: A",
        BAD,
    ),
    (
        "resources_A=VCPU:1&same_subtree=_A,,_B",
        "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
        BAD,
    ),
    (
        "resources=VCPU:1&required_A=X",
        "Resourceless suffixed group request should be specified in `same_subtree` query param: "
        "bad group(s) - ['_A'].",
        BAD,
    ),
    (
        "resources_A=VCPU:1&same_subtree=_A,_B",
        "Real suffixes should be specified in `same_subtree`: ['_B'] not found in ['_A'].",
        BAD,
    ),
    (
        "required_A=X",
        "There must be at least one resources or resources[$S] parameter.",
        "placement.query.missing_value",
    ),
]


@pytest.mark.parametrize(("query", "text", "code"), CODED)
def test_some_errors_have_a_code_of_their_own(query: str, text: str, code: str) -> None:
    with pytest.raises(QueryError) as raised:
        read(query)
    assert (raised.value.message, raised.value.code) == (text, code)


def test_root_required_is_checked_before_the_groups() -> None:
    with pytest.raises(QueryError, match="only supported since microversion"):
        read("resources=&root_required=in:A")


def test_the_first_group_parameter_in_the_query_gives_the_error() -> None:
    with pytest.raises(QueryError, match="in_tree"):
        read("in_tree=x&resources=VCPU:0")
    with pytest.raises(QueryError, match="amount"):
        read("resources=VCPU:0&in_tree=x")


def test_values_are_read_into_groups_in_order_of_appearance() -> None:
    query = read(
        f"required_B=in:A,B&resources=VCPU:2, MEMORY_MB:1&resources_B=DISK_GB:3&required_B=C,!D"
        f"&member_of_B=in:{U1},{U2}&member_of_B=!{U1}&in_tree_B= {U2} &limit=7"
    )
    group, unsuffixed = query.groups
    assert group.suffix == "_B"
    assert group.resources == (("DISK_GB", 3),)
    assert group.required == (frozenset("AB"), frozenset("C"))
    assert group.forbidden == frozenset("D")
    assert group.member_of == (frozenset((U1, U2)),)
    assert group.forbidden_aggregates == frozenset((U1,))
    assert group.in_tree == U2
    assert unsuffixed.resources == (("VCPU", 2), (" MEMORY_MB", 1))
    assert query.limit == 7


def test_blanks_at_the_end_of_values_are_harmless_where_clients_send_them() -> None:
    query = read("resources_A=VCPU:1 &required_A=CUSTOM_X , !Y &same_subtree=_A &root_required=Z ")
    assert query.groups[0].resources == (("VCPU", 1),)
    assert query.groups[0].required == (frozenset(("CUSTOM_X",)),)
    assert query.groups[0].forbidden == frozenset(("Y",))
    assert query.same_subtree == (SameSubtree(frozenset(("_A",))),)
    assert query.root_required == frozenset(("Z",))


def test_below_139_the_last_required_counts_and_the_first_limit_always() -> None:
    query = read("resources=VCPU:1&required=A&required=B&limit=1&limit=2", 38)
    assert query.groups[0].required == (frozenset("B"),)
    assert query.limit == 1


def test_a_bad_limit_hidden_behind_a_good_one_is_refused() -> None:
    with pytest.raises(QueryError, match="'cow' does not match"):
        read("resources=VCPU:1&limit=cow&limit=1")


def test_a_limit_of_any_length_is_only_a_large_one() -> None:
    assert read("resources=VCPU:1&limit=" + "9" * 5000).limit == 10**18 - 1


def test_a_partly_forbidden_any_of_list_is_fine() -> None:
    query = read("resources=VCPU:1&required=in:A,B&required=!A")
    assert query.groups[0].required == (frozenset("AB"),)


UUID_SPELLINGS = [U1, U1.upper(), U1.replace("-", ""), f"{{{U1}}}", f"urn:uuid:{U1}"]


@pytest.mark.parametrize("spelling", UUID_SPELLINGS)
def test_uuids_in_any_spelling_are_taken_as_given(spelling: str) -> None:
    query = read(f"resources=VCPU:1&member_of={spelling}&in_tree={spelling}")
    assert query.groups[0].member_of == (frozenset((spelling,)),)
    assert query.groups[0].in_tree == spelling


def test_extensions_are_unknown_unless_asked_for() -> None:
    query = f"resources_A=VCPU:1&isolate=_A&root_member_of={U1}"
    names = dict(parse_qsl(query))
    with pytest.raises(jsonschema.ValidationError, match="match any of the regexes"):
        jsonschema.validate(names, schema_for((1, 39)))
    jsonschema.validate(names, schema_for((1, 39), extensions=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(names, schema_for((1, 35), extensions=True))
    assert read(query).isolate == frozenset()
    asked = read(query, extensions=True)
    assert asked.isolate == frozenset(("_A",))
    assert asked.root_member_of == (frozenset((U1,)),)


def test_with_extensions_the_group_policy_is_none_by_default() -> None:
    assert read("resources1=VCPU:1&resources2=VCPU:1", extensions=True).group_policy == "none"


EXTENDED_REFUSED = [
    ("resources_A=VCPU:1&isolate=_A&group_policy=none", "give one of them"),
    ("resources_A=VCPU:1&isolate=_B", "should be specified in `isolate`"),
    ("resources_A=VCPU:1&isolate=", "can not be specified in `isolate`"),
    ("resources_A=VCPU:1&same_subtree=!_A", "at least one suffix without `!`"),
    ("resources_A=VCPU:1&resources_B=VCPU:1&same_subtree=_A,!_A", "both with and without"),
    ("resources_A=VCPU:1&same_subtree=_A,!", "can not be specified in `same_subtree`"),
]


@pytest.mark.parametrize(("query", "text"), EXTENDED_REFUSED)
def test_extensions_are_checked_too(query: str, text: str) -> None:
    with pytest.raises(QueryError) as raised:
        read(query, extensions=True)
    assert text in raised.value.message
    assert raised.value.code == BAD


def test_an_exclamation_mark_in_same_subtree_puts_a_group_apart() -> None:
    query = read(
        "resources_A=VCPU:1&resources_B=VCPU:1&same_subtree=_A,!_B&group_policy=none",
        extensions=True,
    )
    assert query.same_subtree == (SameSubtree(frozenset(("_A",)), frozenset(("_B",))),)


def test_without_the_extensions_a_lone_mark_is_an_unknown_suffix() -> None:
    with pytest.raises(QueryError, match=r"\['!'\] not found in"):
        read("resources_A=VCPU:1&resources_B=VCPU:1&same_subtree=_A,!&group_policy=none")
