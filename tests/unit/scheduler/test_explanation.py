"""Explanations without a placement: changes, room, listings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup
from compute_agent.scheduler.causes import (
    Causes,
    ClosestHost,
    ConstraintCause,
    FilterCause,
    FittingChange,
    Lack,
    LostClaim,
    QueryCause,
    RejectedHost,
)
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.explanation.changes import (
    apply_all,
    omissions,
    single_changes,
)
from compute_agent.scheduler.explanation.constraints import listings_of
from compute_agent.scheduler.explanation.room import largest_that_fits

_TRAITS = st.sampled_from([frozenset[str](), frozenset({"T1"}), frozenset({"T1", "T2"})])
_AGGREGATES = st.sampled_from(
    [frozenset[frozenset[str]](), frozenset({frozenset("a"), frozenset("ab")})]
)
_GROUPS = st.builds(
    RequestGroup,
    resources=st.dictionaries(st.sampled_from(["VCPU", "VGPU"]), st.integers(1, 9), max_size=2),
    required=_TRAITS.map(lambda traits: frozenset({traits} - {frozenset()})),
    forbidden=_TRAITS,
    member_of=_AGGREGATES,
    forbidden_aggregates=_TRAITS,
    in_tree=st.sampled_from([None, "root"]),
)
_REQUESTS = st.builds(
    CandidateRequest,
    groups=st.dictionaries(st.sampled_from(["", "A", "B"]), _GROUPS),
    group_policy=st.sampled_from(["none", "isolate"]),
    root_required=_TRAITS,
    root_forbidden=_TRAITS,
    same_subtree=st.sampled_from([frozenset[frozenset[str]](), frozenset({frozenset("AB")})]),
    root_member_of=_AGGREGATES,
    root_forbidden_aggregates=_TRAITS,
)


@given(_REQUESTS)
def test_each_change_takes_something_away_and_all_together_leave_only_the_least_amounts(
    request: CandidateRequest,
) -> None:
    changes = list(single_changes(request))
    clauses = {frozenset(request.parameters(is_extended=True))}
    for change in changes:
        assert frozenset(change.apply(request).parameters(is_extended=True)) not in clauses
    bare = apply_all(changes, request)
    assert all(set(group.resources.values()) <= {1} for group in bare.groups.values())
    left = {name.rstrip("AB") for name, _ in bare.parameters(is_extended=True)}
    assert left <= {"resources", "group_policy"}


def test_what_cannot_be_lowered_is_left_out_only_when_nothing_else_fits() -> None:
    request = CandidateRequest({"G": RequestGroup({"VGPU": 1, "VCPU": 2}, frozenset())})
    assert [change.name for change in single_changes(request)] == ["VCPU"]
    [without] = omissions(request)
    assert without.apply(request).group("G").resources == {"VCPU": 2}
    assert without.text == "without VGPU=1 in group G"


@given(st.sets(st.integers(1, 500)), st.integers(0, 500))
def test_the_largest_amount_that_fits_is_found_in_few_trials(amounts: set[int], room: int) -> None:
    tried: list[int] = []

    def fits(amount: int) -> str | None:
        tried.append(amount)
        return f"{amount} fits" if amount <= room else None

    fitting = [amount for amount in amounts if amount <= room]
    expected = (max(fitting), f"{max(fitting)} fits") if fitting else None
    assert largest_that_fits(sorted(amounts), fits) == expected
    assert len(tried) <= len(amounts).bit_length()


def test_constraints_of_a_group_with_a_suffix_are_counted_together_and_others_alone() -> None:
    parameters = [
        ("requiredG", "T1,!T2"),
        ("resourcesG", "VGPU:1"),
        ("resources", "MEMORY_MB:1,VCPU:2"),
        ("required", "in:A,B"),
        ("root_required", "R,!S"),
        ("same_subtree", "G,_NUMA0"),
        ("limit", "10"),
    ]
    listings = {
        (listing.group, listing.constraint): listing.parameters
        for listing in listings_of(parameters)
    }
    assert listings == {
        ("G", "resources VGPU:1"): (("resources", "VGPU:1"),),
        ("", "resources MEMORY_MB:1"): (("resources", "MEMORY_MB:1"),),
        ("", "resources VCPU:2"): (("resources", "VCPU:2"),),
        ("G", "required T1"): (("resources", "VGPU:1"), ("required", "T1")),
        ("G", "required !T2"): (("resources", "VGPU:1"), ("required", "T1,!T2")),
        ("", "required in:A,B"): (("required", "in:A,B"),),
        (None, "root_required R"): (("required", "R"),),
        (None, "root_required !S"): (("required", "!S"),),
    }


def test_an_error_that_travels_keeps_all_that_it_carries() -> None:
    causes = Causes(
        queries=(QueryCause("flat", "q", "1.39", 0, False, (ConstraintCause("", "c", 0),)),),
        filters=(FilterCause("F", 2, 0, (), (RejectedHost("h", "why"),)),),
        claims_lost=(LostClaim("h", "p", "VCPU", 2),),
        notes=("note",),
        closest_hosts=(ClosestHost("h", (Lack("VCPU: 2 asked, 1 free", "", "VCPU", 2, 1),)),),
        fits_with=(FittingChange(({"group": "", "drop_trait": "T"},), "without T", 1, "h"),),
        remark="remark",
        request_id="req-1",
    )
    error = NoValidHost("reason", causes)
    # as oslo.messaging makes it again
    again = type(error)(*error.args, **error.kwargs)
    assert (str(again), again.causes.as_dict()) == (str(error), causes.as_dict())
