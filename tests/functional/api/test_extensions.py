"""placement-ext 1.0: asked for in the version header, invisible without it."""

from typing import Any

import jsonschema
import pytest

from placement_server.api.extensions.candidate_explanation import EXPLANATION
from placement_server.api.routes import ALL_ROUTES, Route
from tests.functional.api.extended_searches import EXTENDED, ask

from .candidate_world import A2, PATH, UUID, build_world
from .conftest import MakeApi
from .wsgi_client import Answer, Client

NICS = "resources_N1=SRIOV_NET_VF:1&resources_N2=SRIOV_NET_VF:1"

ROUTES = [route for route in ALL_ROUTES if route.extension is not None]


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return make_api(filled_by=build_world)


def used(answer: Answer) -> list[set[str]]:
    """The names of the providers that each candidate takes from."""
    names = {uuid: name for name, uuid in UUID.items()}
    requests = answer.json["allocation_requests"]
    return [{names[uuid] for uuid in request["allocations"]} for request in requests]


def test_the_answer_names_the_extension_version_when_it_was_asked_for(api: Client) -> None:
    answer = ask(api, "resources=VCPU:1")
    assert answer.headers["openstack-api-version"] == "placement 1.39, placement-ext 1.0"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.template)
def test_a_route_is_an_unknown_path_before_its_version_of_the_extensions(
    api: Client, route: Route
) -> None:
    assert route.extension is not None
    older = [f", placement-ext 1.{minor}" for minor in range(route.extension.minor)]
    for extension in ("", *older):
        headers = {"OpenStack-API-Version": f"placement 1.39{extension}"}
        for method in ("GET", "POST", "OPTIONS"):
            path = route.template.replace("{uuid}", UUID["hostA"])
            asked = api(method, path, version=None, headers=headers)
            nowhere = api(method, "/nowhere", version=None, headers=headers)
            assert asked.status == nowhere.status == 404
            assert asked.detail == nowhere.detail
            assert set(asked.headers) == set(nowhere.headers)


def test_the_root_document_lists_the_extensions_only_when_asked(api: Client) -> None:
    plain = api("GET", "/")
    assert set(plain.json) == {"versions"}
    extended = api("GET", "/", version=None, headers={"OpenStack-API-Version": EXTENDED})
    assert [entry["id"] for entry in extended.json["extensions"]] == ["placement-ext"]


@pytest.mark.parametrize(
    "url",
    [
        *(f"/agent_reports?{query}" for query in ("root=x", "notable=false", "pony=1")),
        *(f"/history?{field}=x" for field in ("root", "consumer", "before", "after", "pony")),
        *(f"/history?{query}" for query in ("name=", "limit=0", "limit=1001")),
        f"/history?name={'x' * 256}",
    ],
)
def test_a_malformed_query_is_refused(api: Client, url: str) -> None:
    answer = api.get(url, version="1.39, placement-ext 1.1")
    assert answer.status == 400
    assert answer.detail.startswith("Invalid query string parameters: ")


@pytest.mark.parametrize("query", [f"root_member_of={A2}&resources=VCPU:1", f"isolate=_N1&{NICS}"])
def test_without_the_extension_its_parameters_are_unknown(api: Client, query: str) -> None:
    answer = ask(api, query, header="placement 1.39")
    assert answer.status == 400
    assert "does not match any of the regexes" in answer.detail


def test_two_groups_need_no_group_policy(api: Client) -> None:
    assert ask(api, NICS, header="placement 1.39").status == 400
    assert {"nicA0"} in used(ask(api, NICS))


def test_isolated_groups_share_no_provider_with_another(api: Client) -> None:
    apart = used(ask(api, f"{NICS}&isolate=_N1"))
    assert apart
    assert all(providers == {"nicA0", "nicA1"} for providers in apart)


def test_isolate_and_group_policy_exclude_each_other(api: Client) -> None:
    assert ask(api, f"{NICS}&isolate=_N1&group_policy=none").status == 400


def test_root_member_of_looks_at_the_root_of_the_tree(api: Client) -> None:
    answer = used(ask(api, f"resources=VCPU:1&root_member_of={A2}"))
    assert answer == [{"hostB"}]


def test_a_group_can_be_kept_out_of_the_subtree_of_another(api: Client) -> None:
    query = "resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1"
    together = used(ask(api, f"{query}&same_subtree=_C,_N"))
    assert sorted(map(sorted, together)) == [["cellA0", "nicA0"], ["cellA1", "nicA1"]]
    apart = used(ask(api, f"{query}&same_subtree=_C,!_N"))
    assert sorted(map(sorted, apart)) == [["cellA0", "nicA1"], ["cellA1", "nicA0"]]


@pytest.mark.parametrize(("given", "status"), [("2.0", 406), ("1.2", 406), ("pony", 400)])
def test_a_version_of_the_extensions_that_does_not_exist_is_refused(
    api: Client, given: str, status: int
) -> None:
    answer = ask(api, "resources=VCPU:1", header=f"placement 1.39, placement-ext {given}")
    assert answer.status == status
    assert "Invalid microversion" in answer.detail
    assert given in answer.detail


def explain(api: Client, query: str) -> dict[str, Any]:
    answer = api(
        "GET",
        f"/candidate_explanation?{query}",
        version=None,
        headers={"OpenStack-API-Version": EXTENDED},
    )
    assert answer.status == 200, answer.body
    assert answer.headers["cache-control"] == "no-cache"
    jsonschema.validate(answer.json, EXPLANATION)
    told: dict[str, Any] = answer.json
    return told


def test_an_explanation_tells_which_filter_left_nobody(api: Client) -> None:
    told = explain(
        api, "resources=VCPU:1&required=CUSTOM_FAST&resources_G=VGPU:1&group_policy=none"
    )
    assert told["trees"] == 4
    assert {"group": "", "filter": "resources VCPU:1", "providers_left": 3} in told["steps"]
    nobody = {"group": "_G", "filter": "resources VGPU:1", "providers_left": 0}
    assert nobody in told["steps"]
    assert told["steps"][-1]["trees_rejected"] == 2
    assert told["trees_left"] == 0
    assert "resources VGPU:1 of group _G: leaves 0 provider(s)" in " ".join(told["sentences"])


def test_an_explanation_tells_why_combinations_fail_and_where(api: Client) -> None:
    query = "resources_A=VCPU:8&resources_B=VCPU:8&resources_C=VCPU:8&group_policy=isolate"
    told = explain(api, query)
    assert told["trees_left"] == sum(entry["trees"] for entry in told["trees_failed"])
    for entry in told["trees_failed"]:
        assert entry["example"] in UUID.values()


def test_an_explanation_of_what_is_found_counts_the_trees(api: Client) -> None:
    told = explain(api, "resources=VCPU:1&limit=1")
    assert told["trees_left"] == 2
    assert told["trees_failed"] == []


def test_what_is_asked_of_roots_has_no_group(api: Client) -> None:
    told = explain(api, "resourcesroot=VCPU:1&root_required=CUSTOM_RACK")
    assert [step["group"] for step in told["steps"]][:2] == [None, "root"]


@pytest.mark.parametrize("query", ["resources=VCPU:x", "resources=NOPE:1", "spam=1", ""])
def test_an_explanation_is_refused_where_the_search_is(api: Client, query: str) -> None:
    headers = {"OpenStack-API-Version": EXTENDED}
    answers = [
        api("GET", f"{path}?{query}", version=None, headers=headers)
        for path in (PATH, "/candidate_explanation")
    ]
    assert [answer.status for answer in answers] == [400, 400]
    assert answers[0].detail == answers[1].detail


def test_other_methods_on_the_explanation_are_405_with_get_allowed(api: Client) -> None:
    answer = api(
        "PUT", "/candidate_explanation", version=None, headers={"OpenStack-API-Version": EXTENDED}
    )
    assert (answer.status, answer.headers["allow"]) == (405, "GET")
