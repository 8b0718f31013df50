"""Providers that PUT /provider_trees/{uuid} makes, changes, moves and deletes."""

from ..wsgi_client import Client
from .trees import (
    AGGREGATE,
    BELOW,
    CARD,
    CELL,
    LEAF,
    OTHER,
    ROOT,
    UNKNOWN,
    A,
    by_uuid,
    claim,
    get,
    held,
    host,
    must,
    provider,
    put,
    rows,
    tag_of,
)


def test_what_is_left_out_is_left_alone(api: Client, tree: str) -> None:
    before = by_uuid(get(api))
    must(put(api, [provider(CELL, "cell 0", ROOT, inventories={"VCPU": 16})], tree))
    after = by_uuid(get(api))
    assert (after[ROOT], after[CARD]) == (before[ROOT], before[CARD])
    assert after[CELL]["aggregates"] == [AGGREGATE]
    assert (after[CELL]["name"], after[CELL]["generation"]) == ("cell 0", 1)


def test_an_empty_list_takes_everything(api: Client, tree: str) -> None:
    must(put(api, [provider(CARD, "card", CELL, inventories={}, traits=[])], tree))
    shown = by_uuid(get(api))[CARD]
    assert (shown["inventories"], shown["traits"], shown["generation"]) == ({}, [], 1)


def test_the_same_request_again_writes_no_row(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    allocations = {A: {"allocations": {CELL: held(VCPU=2)}, "consumer_generation": 1}}
    body = [*host(), provider(LEAF, "leaf", ROOT)]
    first = must(put(api, body, tree, absent=[UNKNOWN], allocations=allocations))
    stored = rows(api)
    again = must(put(api, body, first.headers["etag"], absent=[UNKNOWN], allocations=allocations))
    assert rows(api) == stored
    assert (again.json, again.headers["etag"]) == (first.json, first.headers["etag"])


def test_a_refused_request_writes_no_row(api: Client, tree: str) -> None:
    stored = rows(api)
    body = [provider(ROOT, "new", None, traits=["CUSTOM_NEW"], inventories={"CUSTOM_NEW": 1})]
    assert put(api, body, '"x"').status == 412
    assert put(api, [*body, provider(CELL, "cell", UNKNOWN)], tree).status == 400
    assert rows(api) == stored


def test_the_answer_can_be_minimal(api: Client, tree: str) -> None:
    answer = put(api, [provider(ROOT, "renamed", None)], tree, prefer="return=minimal")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["etag"] == tag_of(api)
    assert answer.headers["preference-applied"] == "return=minimal"


def test_names_may_be_swapped_and_taken_over(api: Client, tree: str) -> None:
    swapped = put(api, [provider(CELL, "card", ROOT), provider(CARD, "cell", CELL)], tree)
    assert swapped.status == 200
    taken = put(api, [provider(LEAF, "cell", CELL)], swapped.headers["etag"], absent=[CARD])
    assert {entry["name"] for entry in taken.json["providers"]} == {"host", "card", "cell"}


def test_providers_move_within_the_tree(api: Client, tree: str) -> None:
    turned = must(put(api, [provider(CARD, "card", ROOT), provider(CELL, "cell", CARD)], tree))
    assert [entry["uuid"] for entry in turned.json["providers"]] == [ROOT, CARD, CELL]


def test_a_new_provider_may_come_between(api: Client, tree: str) -> None:
    must(put(api, [provider(CARD, "card", LEAF), provider(LEAF, "bus", CELL)], tree))
    assert by_uuid(get(api))[CARD]["parent_provider_uuid"] == LEAF


def test_a_provider_of_another_tree_comes_with_its_subtree(
    api: Client, tree: str, other_tree: str
) -> None:
    claim(api, A, BELOW, VCPU=1)
    moving = provider(BELOW, "below", CELL)
    answer = put(api, [moving], tree)
    assert (answer.status, answer.error["moved"]) == (428, [{"uuid": BELOW, "generation": 1}])
    answer = put(api, [{**moving, "generation": 0}], tree)
    assert (answer.status, answer.error["moved"]) == (412, [{"uuid": BELOW, "generation": 1}])
    must(put(api, [{**moving, "generation": 1}], tree))
    assert [entry["uuid"] for entry in get(api, LEAF).json["providers"]] == [
        *(ROOT, CELL, BELOW, LEAF, CARD)
    ]
    assert len(get(api, OTHER).json["providers"]) == 1
    assert tag_of(api, OTHER) != other_tree


def test_a_whole_tree_is_taken_with_its_root(api: Client, tree: str, other_tree: str) -> None:
    must(put(api, [provider(OTHER, "other", CARD, generation=0)], tree))
    assert len(get(api, OTHER).json["providers"]) == 6
    assert get(api, BELOW).json["root_provider_uuid"] == ROOT


def test_a_provider_that_was_deleted_before_it_is_taken_is_not_made_anew(
    api: Client, tree: str
) -> None:
    before = rows(api)
    answer = put(api, [provider(OTHER, "other", CARD, generation=0)], tree)
    assert (answer.status, answer.error["moved"], answer.error["etag"]) == (412, [], tree)
    assert OTHER in answer.detail
    assert rows(api) == before


def test_a_provider_becomes_the_root_of_a_tree_of_its_own(
    api: Client, tree: str, other_tree: str
) -> None:
    must(put(api, [provider(BELOW, "below", None, generation=0)], root=BELOW))
    assert [entry["uuid"] for entry in get(api, LEAF).json["providers"]] == [BELOW, LEAF]
    assert len(get(api, OTHER).json["providers"]) == 1


def test_a_tree_is_turned_upside_down(api: Client, tree: str, other_tree: str) -> None:
    sent = [
        provider(LEAF, "leaf", None, generation=0),
        provider(OTHER, "other", LEAF, generation=0),
    ]
    must(put(api, sent, root=LEAF))
    assert [entry["uuid"] for entry in get(api, OTHER).json["providers"]] == [LEAF, OTHER, BELOW]


def test_providers_are_deleted_with_all_they_have(api: Client, tree: str) -> None:
    must(put(api, [], tree, absent=[CARD, CELL]))
    assert list(by_uuid(get(api))) == [ROOT]
    must(put(api, [provider(CARD, "card", ROOT)], tag_of(api)))
    assert by_uuid(get(api))[CARD]["inventories"] == {}


def test_a_whole_tree_is_deleted(api: Client, tree: str) -> None:
    answer = put(api, [], tree, absent=[CARD, ROOT, CELL])
    assert (answer.status, answer.headers.get("etag")) == (204, None)
    assert get(api).status == 404
    must(put(api, host()))


def test_a_tree_that_does_not_exist_may_be_deleted(api: Client) -> None:
    before = rows(api)
    answer = put(api, [], absent=[ROOT])
    assert (answer.status, answer.headers.get("etag")) == (204, None)
    assert rows(api) == before
