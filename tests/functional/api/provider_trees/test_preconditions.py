"""Preconditions of PUT /provider_trees/{uuid}."""

from ..wsgi_client import Client
from .trees import CARD, CELL, EXTENDED, ROOT, A, claim, get, host, must, provider, put, tag_of


def test_a_write_without_a_precondition_is_428(api: Client, tree: str) -> None:
    answer = api.put(f"/provider_trees/{ROOT}", {"providers": []}, headers=EXTENDED)
    assert (answer.status, answer.code) == (428, "placement.precondition_required")


def test_a_write_for_another_state_is_412_with_all_that_the_reader_needs(
    api: Client, tree: str
) -> None:
    api.traits(f"/resource_providers/{CARD}", "CUSTOM_SLOW")
    answer = put(api, host(), tree)
    assert (answer.status, answer.code) == (412, "placement.tree_changed")
    assert answer.error["etag"] == tag_of(api)
    assert answer.error["moved"] == [
        {"uuid": ROOT, "generation": 0},
        {"uuid": CELL, "generation": 0},
        {"uuid": CARD, "generation": 1},
    ]


def test_a_tree_that_must_not_exist_and_does_is_412(api: Client, tree: str) -> None:
    answer = put(api, host())
    assert (answer.status, answer.error["etag"]) == (412, tree)


def test_a_tree_that_must_exist_and_does_not_is_412(api: Client) -> None:
    answer = put(api, host(), '"x"')
    assert (answer.status, answer.error["moved"], answer.error["etag"]) == (412, [], None)


def test_a_child_is_no_tree_of_its_own(api: Client, tree: str) -> None:
    answer = put(api, [provider(CELL, "cell", None)], tree, CELL)
    assert (answer.status, answer.code) == (428, "placement.precondition_required")
    answer = put(api, [provider(CELL, "cell", None, generation=0)], tree, CELL)
    assert (answer.status, answer.error["etag"]) == (412, None)


def test_any_tag_will_do_where_the_request_says_so(api: Client, tree: str) -> None:
    must(put(api, [provider(ROOT, "renamed", None)], "*"))
    must(put(api, [provider(ROOT, "again", None)], f'"x", {tag_of(api)}'))
    assert get(api).json["providers"][0]["name"] == "again"


def test_a_tag_that_covers_allocations_names_the_structure_too(api: Client, tree: str) -> None:
    tag = get(api, query="?include=allocations,usages").headers["etag"]
    claim(api, A, CELL, VCPU=1)
    must(put(api, [provider(ROOT, "renamed", None)], tag))


def test_weak_tags_do_not_match(api: Client, tree: str) -> None:
    assert put(api, host(), f"W/{tree}").status == 412


def test_contradicting_or_odd_preconditions_are_400(api: Client, tree: str) -> None:
    for conditions in ({"If-Match": tree, "If-None-Match": "*"}, {"If-None-Match": tree}):
        answer = api.put(
            f"/provider_trees/{ROOT}", {"providers": []}, headers={**EXTENDED, **conditions}
        )
        assert answer.status == 400


def test_a_generation_is_compared_where_it_is_given_and_something_changes(
    api: Client, tree: str
) -> None:
    claim(api, A, CELL, VCPU=1)
    answer = put(api, [provider(CELL, "cell 0", ROOT, generation=0)], tree)
    assert (answer.status, answer.error["moved"]) == (412, [{"uuid": CELL, "generation": 1}])
    must(put(api, [provider(CELL, "cell", ROOT, generation=0)], tree))
    must(put(api, [provider(CELL, "cell 0", ROOT, generation=1)], tree))
