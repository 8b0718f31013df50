"""GET and PUT /provider_trees/{uuid}."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from placement_server.store import audit
from placement_server.store.tables import metadata

from .conftest import MakeApi
from .wsgi_client import Answer, Client

EXTENDED = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
ROOT = "11111111-0000-4000-8000-000000000001"
CELL = "11111111-0000-4000-8000-000000000002"
CARD = "11111111-0000-4000-8000-000000000003"
OTHER = "22222222-0000-4000-8000-000000000001"
BELOW = "22222222-0000-4000-8000-000000000002"
LEAF = "22222222-0000-4000-8000-000000000003"
UNKNOWN = "00000000-0000-4000-8000-00000000dead"
A, B, C = (f"{digit * 8}-0000-4000-8000-0000000000cc" for digit in "abc")
AGGREGATE = "99999999-0000-4000-8000-000000000001"

Provider = dict[str, Any]


def provider(uuid: str, name: str, parent: str | None, **more: Any) -> Provider:
    """A provider of a body; ``inventories`` are totals or records."""
    if "inventories" in more:
        more["inventories"] = {
            key: value if isinstance(value, dict) else {"total": value}
            for key, value in more["inventories"].items()
        }
    return {"uuid": uuid, "name": name, "parent_provider_uuid": parent, **more}


def host() -> list[Provider]:
    """A host with a cell, and a card in the cell."""
    return [
        provider(ROOT, "host", None, inventories={"DISK_GB": 100}, traits=["COMPUTE_NODE"]),
        provider(CELL, "cell", ROOT, inventories={"VCPU": 8}, aggregates=[AGGREGATE]),
        provider(CARD, "card", CELL, inventories={"CUSTOM_CARD": 4}, traits=["CUSTOM_FAST"]),
    ]


def get(api: Client, uuid: str = ROOT, query: str = "", **conditions: str) -> Answer:
    headers = {**EXTENDED, **{key.replace("_", "-"): text for key, text in conditions.items()}}
    return api.get(f"/provider_trees/{uuid}{query}", headers=headers)


def put(
    api: Client,
    providers: list[Provider],
    tag: str | None = None,
    root: str = ROOT,
    *,
    prefer: str | None = None,
    **more: Any,
) -> Answer:
    """PUT a tree that has a tag, or does not exist yet."""
    condition = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
    preference = {} if prefer is None else {"Prefer": prefer}
    return api.put(
        f"/provider_trees/{root}",
        {"providers": providers, **more},
        headers={**EXTENDED, **condition, **preference},
    )


def tag_of(api: Client, uuid: str = ROOT) -> str:
    return get(api, uuid).headers["etag"]


def must(answer: Answer) -> Answer:
    assert answer.status in (200, 204), answer.body
    return answer


def held(**amounts: int) -> dict[str, Any]:
    return {"resources": amounts}


def claim(
    api: Client, consumer: str, uuid: str, generation: int | None = None, **amounts: int
) -> None:
    must(api.claim(consumer, held={uuid: amounts}, generation=generation))


def by_uuid(answer: Answer) -> dict[str, Provider]:
    return {entry["uuid"]: entry for entry in answer.json["providers"]}


def rows(api: Client) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with api.store.engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(table.select())), key=str)
            for table in metadata.sorted_tables
        }


@pytest.fixture
def tree(api: Client) -> str:
    """The host, made by PUT; its tag."""
    return must(put(api, host())).headers["etag"]


@pytest.fixture(autouse=True)
def invariants_hold(api: Client) -> Iterator[None]:
    """After every test the audit is clean."""
    yield
    assert api.store.read(audit.audit) == []


def test_a_new_tree_is_shown_as_it_was_sent(api: Client) -> None:
    made = put(api, host())
    assert made.status == 200
    assert made.json == get(api, CARD).json
    assert made.json["root_provider_uuid"] == ROOT
    shown = made.json["providers"]
    assert [entry["uuid"] for entry in shown] == [ROOT, CELL, CARD]
    assert shown[2] == {
        "uuid": CARD,
        "name": "card",
        "parent_provider_uuid": CELL,
        "generation": 0,
        "inventories": {
            "CUSTOM_CARD": {
                "total": 4,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": 2147483647,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
        },
        "traits": ["CUSTOM_FAST"],
        "aggregates": [],
    }
    assert made.headers["cache-control"] == "no-cache"
    assert made.headers["vary"] == "openstack-api-version"
    assert api.get(f"/resource_providers/{CARD}").json["root_provider_uuid"] == ROOT


def test_children_follow_their_parent_by_name(api: Client) -> None:
    sent = [
        provider(ROOT, "host", None),
        provider(CARD, "b", ROOT),
        provider(CELL, "a", ROOT),
        provider(LEAF, "z", CELL),
    ]
    must(put(api, sent))
    assert [entry["uuid"] for entry in get(api).json["providers"]] == [ROOT, CELL, LEAF, CARD]


def test_include_shows_usages_and_what_each_consumer_has_in_this_tree(
    api: Client, tree: str
) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    shown = get(api, query="?include=usages&include=allocations")
    assert by_uuid(shown)[CELL]["usages"] == {"VCPU": 2}
    assert shown.json["allocations"] == {
        A: {
            "allocations": {CELL: {"resources": {"VCPU": 2}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 1,
            "consumer_type": "INSTANCE",
        }
    }
    assert get(api, query="?include=usages,allocations").json == shown.json
    assert "allocations" not in get(api, query="?include=usages").json
    assert "usages" not in get(api).json["providers"][0]


def test_a_claim_changes_the_tags_of_what_shows_it_alone(api: Client, tree: str) -> None:
    queries = ("?include=usages", "?include=allocations", "?include=usages,allocations")
    before = [get(api, query=query).headers["etag"] for query in queries]
    claim(api, A, CELL, VCPU=1)
    assert tag_of(api) == tree
    after = [get(api, query=query).headers["etag"] for query in queries]
    assert all(old != new for old, new in zip(before, after, strict=True))
    for query, tag in zip(queries, after, strict=True):
        assert get(api, query=query, If_None_Match=tag).status == 304


def test_the_present_tag_is_304_without_a_body(api: Client, tree: str) -> None:
    for condition in (tree, f"W/{tree}", f'"other", {tree}', "*"):
        answer = get(api, CELL, If_None_Match=condition)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == tree
        assert answer.headers["cache-control"] == "no-cache"
        assert "content-type" not in answer.headers
    assert get(api, If_None_Match='"other"').status == 200


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_without_the_extension_there_is_no_such_path(api: Client, method: str) -> None:
    for version in ("placement 1.39", "placement 1.39, placement-ext 1.0"):
        headers = {"OpenStack-API-Version": version}
        assert api(method, f"/provider_trees/{ROOT}", {}, headers=headers).status == 404


def test_an_unknown_provider_is_404(api: Client) -> None:
    for conditions in ({}, {"If_None_Match": '"x"'}):
        answer = get(api, UNKNOWN, **conditions)
        assert (answer.status, answer.code) == (404, "placement.undefined_code")


@pytest.mark.parametrize("query", ["?include=all", "?limit=1", "?include=", "?include=usages,"])
def test_an_unknown_parameter_is_400(api: Client, tree: str, query: str) -> None:
    assert get(api, query=query).status == 400


def test_the_policy_decides_on_each(make_api: MakeApi) -> None:
    api = make_api(
        policy='"placement:provider_trees:show": "!"\n"placement:provider_trees:update": "!"\n'
    )
    assert get(api).status == 403
    assert put(api, host()).status == 403


# Preconditions


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


# What a write changes


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


@pytest.fixture
def other_tree(api: Client, tree: str) -> str:
    """A second tree of three providers, one below the other; its tag."""
    sent = [
        provider(OTHER, "other", None),
        provider(BELOW, "below", OTHER, inventories={"VCPU": 4}),
        provider(LEAF, "leaf", BELOW),
    ]
    return must(put(api, sent, root=OTHER)).headers["etag"]


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


# Allocations


def test_inventory_moves_with_the_allocations_against_it(api: Client, tree: str) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    claim(api, B, CELL, VCPU=6)
    answer = put(
        api,
        [
            provider(CELL, "cell", ROOT, inventories={}),
            provider(ROOT, "host", None, inventories={"DISK_GB": 100, "VCPU": 8}),
        ],
        tree,
        allocations={
            A: {"allocations": {ROOT: held(VCPU=2)}, "consumer_generation": 1},
            B: {"allocations": {ROOT: held(VCPU=6)}, "consumer_generation": 1},
        },
    )
    assert answer.status == 200, answer.body
    shown = get(api, query="?include=usages,allocations")
    assert by_uuid(shown)[ROOT]["usages"] == {"DISK_GB": 0, "VCPU": 8}
    assert shown.json["allocations"][B]["consumer_generation"] == 2
    whole = api.get(f"/allocations/{A}").json
    assert {uuid: entry["resources"] for uuid, entry in whole["allocations"].items()} == {
        ROOT: {"VCPU": 2},
        outside.rpartition("/")[2]: {"VCPU": 1},
    }
    assert (whole["project_id"], whole["consumer_type"]) == ("project", "INSTANCE")


def test_what_a_consumer_holds_elsewhere_stays_when_it_leaves(api: Client, tree: str) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    claim(api, B, CELL, VCPU=1)
    leaving = {"allocations": {}, "consumer_generation": 1}
    must(put(api, [], tree, allocations={A: leaving, B: leaving}))
    assert list(api.get(f"/allocations/{A}").json["allocations"]) == [outside.rpartition("/")[2]]
    assert api.get(f"/allocations/{B}").json["allocations"] == {}


def test_a_new_consumer_is_made_with_its_owner(api: Client, tree: str) -> None:
    new = {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": None}
    answer = put(api, [], tree, allocations={C: new})
    assert (answer.status, answer.error["pointer"]) == (400, f"/allocations/{C}")
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "MIGRATION"}
    must(put(api, [], tree, allocations={C: {**new, **owner}}))
    shown = get(api, query="?include=allocations").json["allocations"][C]
    assert shown == {**new, **owner, "consumer_generation": 1}
    must(put(api, [], tree, allocations={C: shown}))
    assert get(api, query="?include=allocations").json["allocations"][C] == shown


def test_generations_rise_where_something_changed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    claim(api, B, CARD, CUSTOM_CARD=1)
    must(
        put(
            api,
            [*host()[:1], provider(CELL, "cell", ROOT, inventories={"VCPU": 10})],
            tree,
            allocations={
                A: {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": 1},
                B: {"allocations": {CARD: held(CUSTOM_CARD=2)}, "consumer_generation": 1},
            },
        )
    )
    shown = get(api, query="?include=allocations")
    generations = {uuid: entry["generation"] for uuid, entry in by_uuid(shown).items()}
    assert generations == {ROOT: 0, CELL: 2, CARD: 2}
    consumers = shown.json["allocations"]
    assert (consumers[A]["consumer_generation"], consumers[B]["consumer_generation"]) == (1, 2)


def test_an_inventory_may_shrink_below_its_use(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=6)
    must(put(api, [provider(CELL, "cell", ROOT, inventories={"VCPU": 4})], tree))
    less = {A: {"allocations": {CELL: held(VCPU=5)}, "consumer_generation": 1}}
    must(put(api, [], tag_of(api), allocations=less))
    more = {A: {"allocations": {CELL: held(VCPU=6)}, "consumer_generation": 2}}
    assert put(api, [], tag_of(api), allocations=more).status == 409


# Conflicts


def conflicts(answer: Answer) -> list[tuple[Any, ...]]:
    assert answer.status == 409, answer.body
    keys = ("code", "provider", "resource_class", "consumer", "asked", "free")
    return [tuple(entry[key] for key in keys) for entry in answer.error["conflicts"]]


def test_every_holder_of_what_would_vanish_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    claim(api, B, CELL, VCPU=2)
    claim(api, C, CARD, CUSTOM_CARD=3)
    answer = put(
        api,
        [provider(CELL, "cell", ROOT, inventories={})],
        tree,
        absent=[CARD],
        allocations={A: {"allocations": {}, "consumer_generation": 1}},
    )
    assert sorted(conflicts(answer)) == [
        ("placement.inventory.inuse", CELL, "VCPU", B, 2, 0),
        ("placement.resource_provider.inuse", CARD, "CUSTOM_CARD", C, 3, 0),
    ]


def test_every_amount_that_does_not_fit_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=5)
    records = {"VCPU": 6, "MEMORY_MB": {"total": 10, "step_size": 2}}
    owner = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    answer = put(
        api,
        [provider(CELL, "cell", ROOT, inventories=records)],
        tree,
        allocations={
            B: {"allocations": {CELL: held(VCPU=2, MEMORY_MB=3)}, **owner},
            C: {"allocations": {ROOT: held(VCPU=1)}, **owner},
        },
    )
    undefined = "placement.undefined_code"
    assert conflicts(answer) == [
        (undefined, CELL, "VCPU", B, 2, 1),
        (undefined, CELL, "MEMORY_MB", B, 3, 10),
        (undefined, ROOT, "VCPU", C, 1, 0),
    ]
    assert [entry["reason"] for entry in answer.error["conflicts"]] == [
        *("capacity", "inventory_constraint", "no_inventory")
    ]


def test_every_outdated_consumer_and_taken_name_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    api.provider("taken")
    answer = put(
        api,
        [provider(ROOT, "taken", None), provider(LEAF, "card", ROOT)],
        tree,
        allocations={
            A: {"allocations": {}, "consumer_generation": 7},
            B: {
                "allocations": {CELL: held(VCPU=1)},
                "consumer_generation": 3,
                "project_id": "p",
                "user_id": "u",
            },
        },
    )
    assert sorted(conflicts(answer), key=str) == sorted(
        [
            ("placement.duplicate_name", ROOT, None, None, None, None),
            ("placement.duplicate_name", LEAF, None, None, None, None),
            ("placement.concurrent_update", None, None, A, None, None),
            ("placement.concurrent_update", None, None, B, None, None),
        ],
        key=str,
    )


def test_a_consumer_that_is_gone_is_a_conflict(api: Client, tree: str) -> None:
    gone = {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": 1}
    answer = put(api, [], tree, allocations={A: gone})
    assert conflicts(answer) == [("placement.concurrent_update", None, None, A, None, None)]


def test_a_provider_with_children_that_stay_is_not_deleted(api: Client, tree: str) -> None:
    ((code, uuid, *_),) = conflicts(put(api, [], tree, absent=[CELL]))
    assert (code, uuid) == ("placement.resource_provider.cannot_delete_parent", CELL)
    must(put(api, [provider(CARD, "card", ROOT)], tree, absent=[CELL]))


def test_a_provider_of_another_tree_is_not_deleted(api: Client, tree: str, other_tree: str) -> None:
    answer = put(api, [], tree, absent=[LEAF])
    assert [entry["reason"] for entry in answer.error["conflicts"]] == ["provider_in_another_tree"]


# Malformed bodies


def twice(uuid: str, name: str) -> list[Provider]:
    return [*host(), provider(uuid, name, ROOT)]


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no providers": ({}, ""),
    "an unknown key": ({"providers": [], "more": 1}, ""),
    "no name": ({"providers": [{"uuid": ROOT, "parent_provider_uuid": None}]}, "/providers/0"),
    "an empty name": ({"providers": [provider(ROOT, "", None)]}, "/providers/0/name"),
    "no uuid": ({"providers": [provider("-" * 36, "x", ROOT)]}, "/providers/0/uuid"),
    "a total of 0": (
        {"providers": [provider(ROOT, "host", None, inventories={"VCPU": 0})]},
        "/providers/0/inventories/VCPU/total",
    ),
    "too much reserved": (
        {
            "providers": [
                provider(ROOT, "host", None, inventories={"VCPU": {"total": 1, "reserved": 2}})
            ]
        },
        "/providers/0/inventories/VCPU/reserved",
    ),
    "a malformed trait": (
        {"providers": [provider(ROOT, "host", None, traits=["COMPUTE_NODE", "custom_x"])]},
        "/providers/0/traits/1",
    ),
    "an unknown standard trait": (
        {"providers": [provider(ROOT, "host", None, traits=["HW_NOTHING"])]},
        "/providers/0/traits",
    ),
    "an unknown standard class": (
        {"providers": [provider(ROOT, "host", None, inventories={"WHEELS": 4})]},
        "/providers/0/inventories/WHEELS",
    ),
    "an unknown class of an allocation": (
        {
            "providers": [],
            "allocations": {
                A: {"allocations": {CELL: held(CUSTOM_NONE=1)}, "consumer_generation": None}
            },
        },
        f"/allocations/{A}/allocations/{CELL}/resources/CUSTOM_NONE",
    ),
    "an allocation elsewhere": (
        {
            "providers": [],
            "allocations": {
                A: {
                    "allocations": {UNKNOWN: held(VCPU=1)},
                    "consumer_generation": None,
                    "project_id": "p",
                    "user_id": "u",
                }
            },
        },
        f"/allocations/{A}/allocations/{UNKNOWN}",
    ),
    "a provider twice": ({"providers": twice(CELL, "x")}, "/providers/3/uuid"),
    "a name twice": ({"providers": twice(LEAF, "cell")}, "/providers/3/name"),
    "kept and absent": ({"providers": host(), "absent": [LEAF, CELL]}, "/absent/1"),
    "an unknown parent": (
        {"providers": [provider(CELL, "cell", UNKNOWN)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a parent that is deleted": (
        {"providers": [provider(CARD, "card", CELL)], "absent": [CELL]},
        "/providers/0/parent_provider_uuid",
    ),
    "a second root": (
        {"providers": [provider(CELL, "cell", None)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a root below another": (
        {"providers": [provider(ROOT, "host", CELL)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a circle": (
        {"providers": [provider(CELL, "cell", CARD)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a circle that outlives its root": (
        {
            "providers": [provider(CELL, "cell", CARD), provider(CARD, "card", CELL)],
            "absent": [ROOT],
        },
        "/providers/0/parent_provider_uuid",
    ),
    "a new circle beside a root that is deleted": (
        {
            "providers": [provider(OTHER, "x", BELOW), provider(BELOW, "y", OTHER)],
            "absent": [ROOT, CELL, CARD],
        },
        "/providers/0/parent_provider_uuid",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_body_is_400_with_a_pointer(api: Client, tree: str, case: str) -> None:
    body, pointer = MALFORMED[case]
    answer = api.put(f"/provider_trees/{ROOT}", body, headers={**EXTENDED, "If-Match": tree})
    assert answer.status == 400, answer.body
    assert answer.error["pointer"] == pointer


def test_a_new_tree_without_its_root_is_400(api: Client) -> None:
    answer = put(api, [provider(CELL, "cell", ROOT)])
    assert answer.status == 400


@pytest.mark.parametrize(
    "body",
    [
        lambda: {"providers": [provider(ROOT, "host", None)] * 10_001},
        lambda: {
            "providers": [],
            "absent": [f"{n:08}-0000-4000-8000-000000000000" for n in range(10_001)],
        },
    ],
    ids=["providers", "absent"],
)
def test_too_much_at_once_is_400(api: Client, tree: str, body: Callable[[], Any]) -> None:
    answer = api.put(f"/provider_trees/{ROOT}", body(), headers={**EXTENDED, "If-Match": tree})
    assert answer.status == 400
    assert "the limit is 10000" in answer.detail


def test_a_tree_of_thousands_is_written_and_replaced(api: Client) -> None:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(3000)]
    sent = [provider(uuids[0], "p0", None)] + [
        provider(uuid, f"p{number}", uuids[(number - 1) // 3], inventories={"VCPU": 1})
        for number, uuid in enumerate(uuids[1:], 1)
    ]
    made = must(put(api, sent, root=uuids[0]))
    assert len(made.json["providers"]) == 3000
    gone = must(put(api, [], made.headers["etag"], root=uuids[0], absent=uuids))
    assert gone.status == 204
