"""Reading placement's answer, and whose a candidate is."""

from __future__ import annotations

import json
import re
import sys

import pytest

from compute_agent.placement.candidate_answers import CandidateList
from compute_agent.programs.decoding import decoder_of
from compute_agent.scheduler import host_state
from compute_agent.scheduler.errors import AnswerMalformed
from compute_agent.scheduler.placement import candidates
from tests.unit.scheduler.trees import answered, body, candidate, summary

SHARING = "MISC_SHARES_VIA_AGGREGATE"


def test_a_host_whose_root_gives_nothing_has_its_candidates() -> None:
    found = answered(
        [candidate({"cell": {"VCPU": 1}, "pool": {"DISK_GB": 5}})],
        {
            "host": summary("host"),
            "cell": summary("host", {"VCPU": (4, 0)}, "HW_NUMA_ROOT", parent="host"),
            "pool": summary("pool", {"DISK_GB": (100, 0)}, SHARING),
        },
    )
    assert [offer.root for offer in found.candidates] == ["host"]
    assert found.roots == ["host"]


def test_a_candidate_on_shared_providers_alone_is_on_no_host() -> None:
    found = answered(
        [candidate({"pool": {"DISK_GB": 5}})],
        {"pool": summary("pool", {"DISK_GB": (100, 0)}, SHARING)},
    )
    assert found.candidates == ()
    assert found.returned_count == 1


@pytest.mark.parametrize("others", [[], [candidate({})]], ids=["alone", "beside an empty one"])
def test_a_candidate_on_two_hosts_is_an_error(others: list[dict[str, object]]) -> None:
    with pytest.raises(AnswerMalformed, match="one candidate on two hosts: a, b"):
        answered(
            [*others, candidate({"a": {"VCPU": 1}, "b": {"DISK_GB": 1}})],
            {"a": summary("a", {"VCPU": (1, 0)}), "b": summary("b", {"DISK_GB": (1, 0)})},
        )


def test_a_provider_without_summary_is_an_error() -> None:
    with pytest.raises(AnswerMalformed, match="provider b without a summary of it"):
        answered([candidate({"b": {"VCPU": 1}})], {})


@pytest.mark.parametrize("children", [(), ("b",)], ids=["lone", "nested"])
@pytest.mark.parametrize(
    ("place", "wrong", "words"),
    [
        ("mappings", None, "mappings of a candidate on host a: it is null, not an object"),
        ("mappings", "text", 'mappings of a candidate on host a: it is "text", not an object'),
        ("mappings", {"N": 5}, "mappings of a candidate on host a: N is 5, not a list"),
        ("mappings", {"N": "text"}, 'mappings of a candidate on host a: N is "text", not a list'),
        ("traits", None, "traits of provider a: it is null, not a list"),
        ("traits", {"a": 5}, 'traits of provider a: it is {"a": 5}, not a list'),
        ("traits", ["A", ["a"]], 'traits of provider a: [1] is ["a"], not text'),
    ],
)
def test_what_is_looked_at_later_is_an_error_that_names_the_place_and_the_version(
    place: str, wrong: object, words: str, children: tuple[str, ...]
) -> None:
    below = {uuid: summary("a", {"VGPU": (4, 0)}, parent="a") for uuid in children}
    offer, host = candidate({"a": {"VCPU": 1}}, N=["a"]), summary("a", {"VCPU": (4, 0)})
    (offer if place in offer else host)[place] = wrong
    with pytest.raises(AnswerMalformed, match=rf"{re.escape(words)}.* microversion 1\.36"):
        _ = (found := answered([offer], {"a": host, **below})).candidates, found.providers


def test_a_candidate_without_mappings_cannot_be_claimed() -> None:
    offer = candidate({"a": {"VCPU": 1}})
    del offer["mappings"]
    found = answered([offer], {"a": summary("a", {"VCPU": (4, 0)})})
    with pytest.raises(AnswerMalformed, match="it is null, not an object"):
        _ = found.candidates


@pytest.mark.parametrize("place", ["mappings", "traits"])
def test_what_is_looked_at_later_may_be_nested_as_deeply_as_what_is_skipped(place: str) -> None:
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        offer, host = candidate({"a": {"VCPU": 1}}), summary("a", {"VCPU": (4, 0)})
        (offer if place in offer else host)[place] = "deep"
        content = json.dumps(body([offer], {"a": host}))
        content = content.replace('"deep"', "[" * depth + "]" * depth)
        try:
            given = decoder_of(CandidateList).decode(content.encode())
        except RecursionError:
            continue
        with pytest.raises(AnswerMalformed):
            _ = candidates.read(given).candidates


def test_the_same_candidate_in_two_answers_counts_once() -> None:
    one = answered([candidate({"a": {"VCPU": 1}})], {"a": summary("a", {"VCPU": (4, 0)})})
    merged = host_state.merge([one, one])
    assert len(merged.candidates) == 1
    assert merged.returned_count == 2


def test_a_claim_uses_up_and_drops_what_no_longer_fits() -> None:
    summaries = {"a": summary("a", {"VCPU": (4, 1)}), "b": summary("a", {"VCPU": (4, 0)})}
    found = answered(
        [
            candidate({"a": {"VCPU": 2}}),
            candidate({"b": {"VCPU": 2}}),
            candidate({"a": {"VCPU": 1}}),
        ],
        summaries,
    )
    state = host_state.HostState("a", "a", found.providers, found.candidates)
    left = state.using(found.candidates[0], claimed_count=1)
    assert [dict(offer.allocations) for offer in left.candidates] == [
        {"b": {"VCPU": 2}},
        {"a": {"VCPU": 1}},
    ]
    assert left.claimed_here == 1
    assert state.free("VCPU") - left.free("VCPU") == 2


def test_a_candidate_is_sent_back_as_it_came() -> None:
    written = candidate({"a": {"VCPU": 1}}, **{"": ["a"], "_N": ["b"]})
    found = answered([written], {"a": summary("a", {"VCPU": (4, 0)}), "b": summary("a")})
    assert found.candidates[0].as_request() == written
