"""Memory, time and providers that supposed changes may take."""

from __future__ import annotations

from placement_server.candidates.what_if import MOST_ADDED

from ..candidate_world import UUID
from ..conftest import MakeApi
from .questions import (
    VCPU,
    answers,
    asked_directly,
    build,
    hosts,
    what_if,
)


def test_as_many_providers_as_may_be_added_are_added_within_the_memory_of_a_search(
    make_api: MakeApi,
) -> None:
    api = make_api(filled_by=build, placement_server__search_memory=64)
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    (answer,) = answers(api, added, [{"candidates": "resources=VCPU:5&limit=3"}])
    assert len(answer["allocation_requests"]) == 3
    assert asked_directly(api, VCPU)[0]["allocation_requests"]


def test_changes_and_questions_share_the_deadline_of_one_search(make_api: MakeApi) -> None:
    api = make_api(filled_by=build, placement_server__search_deadline=0.1)
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    many = "&".join(f"resources_{n}=VCPU:1" for n in range(9))
    endless = {"candidates": f"{many}&group_policy=none"}
    answer = what_if(api, added, [endless, endless])
    if answer.status == 200:
        statuses = [entry["errors"][0]["status"] for entry in answer.json["answers"]]
        assert statuses == [503, 503]
    else:
        assert answer.status == 503
    assert answers(api, [], VCPU) == asked_directly(api, VCPU)


def test_what_does_not_fit_into_the_memory_of_a_search_is_given_up(make_api: MakeApi) -> None:
    api = make_api(filled_by=build, placement_server__search_memory=1)
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    answer = what_if(api, added, VCPU)
    assert answer.status == 503
    assert "search_memory" in answer.detail
    (alone,) = answers(api, [], VCPU)
    assert hosts(alone) == {"cellA0", "hostB"}
