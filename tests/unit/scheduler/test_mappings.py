"""Mappings of a claim, found again from what is held."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup
from compute_agent.scheduler.search.mappings import mappings_of

Group = tuple[int, frozenset[str]]


def request_of(vcpus: int, groups: list[Group]) -> CandidateRequest:
    asked = {"": RequestGroup(resources={"VCPU": vcpus})} if vcpus else {}
    for number, (amount, traits) in enumerate(groups):
        required = frozenset(frozenset({trait}) for trait in traits)
        asked[f"_{number}"] = RequestGroup(resources={"VF": amount}, required=required)
    return CandidateRequest(groups=asked)


def cards(number: int) -> dict[str, dict[str, int]]:
    return {"host": {"VCPU": 2}, **{f"card{n:02}": {"VF": 1} for n in range(number)}}


def test_another_request_is_told_apart_at_once_whatever_the_number_of_groups() -> None:
    groups: list[Group] = [(1, frozenset())] * 20
    assert mappings_of(request_of(4, groups), cards(20), {}) is None


def test_a_trait_that_is_too_rare_is_found_out_soon() -> None:
    groups: list[Group] = [(1, frozenset())] * 10 + [(1, frozenset({"A"}))] * 2
    assert mappings_of(request_of(2, groups), cards(12), {"card03": frozenset({"A"})}) is None
    found = mappings_of(request_of(2, groups[1:-1]), cards(10), {"card03": frozenset({"A"})})
    assert found is not None
    assert found["_9"] == ("card03",)


def test_the_unsuffixed_group_is_served_by_no_provider_with_a_trait_that_it_forbids() -> None:
    group = RequestGroup(resources={"VCPU": 2}, forbidden=frozenset({"HW_NUMA_ROOT"}))
    request = CandidateRequest(groups={"": group})
    held = {"cell": {"VCPU": 2}}
    assert mappings_of(request, held, {}) == {"": ("cell",)}
    assert mappings_of(request, held, {"cell": frozenset({"HW_NUMA_ROOT"})}) is None


TRAITS = st.frozensets(st.sampled_from("AB"))


@given(
    groups=st.lists(st.tuples(st.integers(1, 2), TRAITS), max_size=3),
    providers=st.lists(st.tuples(st.integers(1, 2), TRAITS), max_size=3),
)
def test_mappings_are_found_just_when_there_are_some(
    groups: list[Group], providers: list[Group]
) -> None:
    held = {f"card{n}": {"VF": amount} for n, (amount, _) in enumerate(providers)}
    traits = {f"card{n}": has for n, (_, has) in enumerate(providers)}
    found = mappings_of(request_of(0, groups), held, traits)
    # each provider has a slot for each unit; a group takes all its slots from one provider
    slots = [n for n, (amount, _) in enumerate(providers) for _ in range(amount)]
    units = [n for n, (amount, _) in enumerate(groups) for _ in range(amount)]

    def serves(order: tuple[int, ...]) -> bool:
        chosen: dict[int, int] = {}
        return all(
            chosen.setdefault(group, slot) == slot and groups[group][1] <= providers[slot][1]
            for group, slot in zip(units, order, strict=True)
        )

    possible = len(slots) == len(units) and any(map(serves, set(permutations(slots))))
    assert (found is not None) is possible
    for n, (_, needed) in enumerate(groups):
        if found is not None:
            [provider] = found[f"_{n}"]
            assert needed <= traits[provider]
