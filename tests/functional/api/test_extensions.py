"""placement-ext 1.0: asked for in the version header, invisible without it."""

import pytest

from .candidate_world import A2, PATH, UUID, build_world
from .conftest import MakeApi
from .wsgi_client import Client

EXTENDED = "placement 1.39, placement-ext 1.0"
NICS = "resources_N1=SRIOV_NET_VF:1&resources_N2=SRIOV_NET_VF:1"


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return build_world(make_api())


def ask(api: Client, query: str, header: str = EXTENDED):
    return api("GET", f"{PATH}?{query}", version=None, headers={"OpenStack-API-Version": header})


def used(answer) -> list[set[str]]:
    """The names of the providers that each candidate takes from."""
    names = {uuid: name for name, uuid in UUID.items()}
    requests = answer.json["allocation_requests"]
    return [{names[uuid] for uuid in request["allocations"]} for request in requests]


def test_the_answer_names_the_extension_version_when_it_was_asked_for(api: Client) -> None:
    answer = ask(api, "resources=VCPU:1")
    assert answer.headers["openstack-api-version"] == "placement 1.39, placement-ext 1.0"


def test_the_root_document_lists_the_extensions_only_when_asked(api: Client) -> None:
    plain = api("GET", "/")
    assert set(plain.json) == {"versions"}
    extended = api("GET", "/", version=None, headers={"OpenStack-API-Version": EXTENDED})
    assert [entry["id"] for entry in extended.json["extensions"]] == ["placement-ext"]


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


@pytest.mark.parametrize(("given", "status"), [("2.0", 406), ("1.1", 406), ("pony", 400)])
def test_a_version_of_the_extensions_that_does_not_exist_is_refused(
    api: Client, given: str, status: int
) -> None:
    answer = ask(api, "resources=VCPU:1", header=f"placement 1.39, placement-ext {given}")
    assert answer.status == status
    assert "Invalid microversion" in answer.detail
    assert given in answer.detail
