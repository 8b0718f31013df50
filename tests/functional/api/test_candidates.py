"""GET /allocation_candidates over HTTP: parameters, errors, and small worlds worked out by hand."""

from typing import Any

import pytest

from tests.fixtures.allocations import claim_body

from .candidate_world import A1, A2, NAMES, PATH, UNKNOWN, UUID, ask, found, path_of
from .wsgi_client import Client

CELLS_WITH_POOL = {
    "cellA0(VCPU:1) hostA(MEMORY_MB:512) pool1(DISK_GB:10)",
    "cellA1(VCPU:1) hostA(MEMORY_MB:512) pool1(DISK_GB:10)",
}
THREE = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10"


def test_a_tree_its_own_disk_and_the_pools_it_reaches(world: Client) -> None:
    assert found(world, THREE) == {
        *CELLS_WITH_POOL,
        "hostB(DISK_GB:10,MEMORY_MB:512,VCPU:1)",
        "hostB(MEMORY_MB:512,VCPU:1) pool1(DISK_GB:10)",
        "hostB(MEMORY_MB:512,VCPU:1) pool2(DISK_GB:10)",
    }
    assert len(ask(world, THREE)["provider_summaries"]) == 8


def test_before_1_29_combinations_of_two_providers_of_a_tree_vanish(world: Client) -> None:
    assert not found(world, THREE, "1.28") & CELLS_WITH_POOL
    summaries = ask(world, THREE, "1.28")["provider_summaries"]
    assert set(summaries) == {UUID[name] for name in ("hostB", "pool1", "pool2")}
    single = found(world, "resources=VCPU:1", "1.28")
    assert single == {"cellA0(VCPU:1)", "cellA1(VCPU:1)", "hostB(VCPU:1)"}


def test_an_unsuffixed_required_trait_may_be_on_any_contributing_provider(
    world: Client,
) -> None:
    candidates = found(world, f"{THREE}&required=STORAGE_DISK_SSD")
    assert candidates == {
        *CELLS_WITH_POOL,
        "hostB(MEMORY_MB:512,VCPU:1) pool1(DISK_GB:10)",
    }


def test_a_forbidden_trait_disqualifies_contributing_providers_only(world: Client) -> None:
    assert found(world, f"{THREE}&required=!CUSTOM_FAST") == {
        "cellA0(VCPU:1) hostA(MEMORY_MB:512) pool1(DISK_GB:10)"
    }
    idle_root = found(world, "resources=VCPU:1&required=!CUSTOM_RACK")
    assert "cellA0(VCPU:1)" in idle_root


def test_any_of_several_traits(world: Client) -> None:
    candidates = found(world, "resources=VCPU:1&required=in:CUSTOM_FAST,CUSTOM_NET1")
    assert candidates == {"cellA1(VCPU:1)", "hostB(VCPU:1)"}


def test_unsuffixed_member_of_spans_the_tree_and_vouches_only_for_members(
    world: Client,
) -> None:
    query = "resources=VCPU:1,DISK_GB:10"
    assert found(world, f"{query}&member_of={A2}") == {
        "hostB(DISK_GB:10,VCPU:1)",
        "hostB(VCPU:1) pool2(DISK_GB:10)",
    }
    assert found(world, f"{query}&member_of=!{A2}") == {
        "cellA0(VCPU:1) pool1(DISK_GB:10)",
        "cellA1(VCPU:1) pool1(DISK_GB:10)",
    }


def test_suffixed_groups_and_same_subtree(world: Client) -> None:
    query = "resources1=VCPU:1&resources2=SRIOV_NET_VF:1&group_policy=none"
    assert len(found(world, query)) == 4
    assert found(world, f"{query}&same_subtree=1,2") == {
        "cellA0(VCPU:1) nicA0(SRIOV_NET_VF:1)",
        "cellA1(VCPU:1) nicA1(SRIOV_NET_VF:1)",
    }


def test_isolate_keeps_suffixed_groups_apart(world: Client) -> None:
    query = (
        "resources_N1=SRIOV_NET_VF:1&required_N1=CUSTOM_NET1"
        "&resources_N2=SRIOV_NET_VF:1&required_N2=CUSTOM_NET2"
    )
    apart = {"nicA0(SRIOV_NET_VF:1) nicA1(SRIOV_NET_VF:1)"}
    assert found(world, f"{query}&group_policy=isolate") == apart
    assert found(world, f"{query}&group_policy=none") == apart | {"nicA1(SRIOV_NET_VF:2)"}
    both = ask(world, f"{query}&group_policy=none")["allocation_requests"]
    nic = UUID["nicA1"]
    assert {"_N1": [nic], "_N2": [nic]} in [request["mappings"] for request in both]


def test_isolate_does_not_concern_the_unsuffixed_group(world: Client) -> None:
    for policy in ("none", "isolate"):
        query = f"resources=MEMORY_MB:1&resources1=VCPU:1&group_policy={policy}"
        assert "hostB(MEMORY_MB:1,VCPU:1)" in found(world, query)


def test_suffixed_member_of_looks_at_the_one_provider(world: Client) -> None:
    query = f"resources_C=VCPU:1&resources_D=DISK_GB:10&member_of_D={A2}&group_policy=none"
    assert found(world, query) == {
        "hostB(DISK_GB:10,VCPU:1)",
        "hostB(VCPU:1) pool2(DISK_GB:10)",
    }


def test_in_tree_shuts_out_pools_and_in_tree_of_a_group_may_name_one(world: Client) -> None:
    one_pool = f"resources=VCPU:1&resources_D=DISK_GB:10&in_tree_D={UUID['pool1']}"
    assert found(world, one_pool) == {
        "cellA0(VCPU:1) pool1(DISK_GB:10)",
        "cellA1(VCPU:1) pool1(DISK_GB:10)",
        "hostB(VCPU:1) pool1(DISK_GB:10)",
    }
    by_member = f"resources=VCPU:1&in_tree={UUID['nicA0']}&resources_D=DISK_GB:10"
    assert found(world, by_member) == {
        "cellA0(VCPU:1) pool1(DISK_GB:10)",
        "cellA1(VCPU:1) pool1(DISK_GB:10)",
    }
    assert found(world, f"resources=VCPU:1,DISK_GB:10&in_tree={UUID['hostA']}") == set()


def test_a_resourceless_group_shows_in_mappings_only(world: Client) -> None:
    query = "resources_V=SRIOV_NET_VF:1&required_N=HW_NUMA_ROOT&same_subtree=_V,_N"
    answer = ask(world, f"{query}&group_policy=none")
    mappings = {
        request["mappings"]["_V"][0]: request["mappings"]["_N"]
        for request in answer["allocation_requests"]
    }
    assert mappings == {
        UUID["nicA0"]: [UUID["cellA0"]],
        UUID["nicA1"]: [UUID["cellA1"]],
    }


def test_root_required_looks_at_the_root_of_the_anchor_only(world: Client) -> None:
    query = "resources=VCPU:1,DISK_GB:10&root_required=CUSTOM_RACK"
    assert found(world, query) == {
        "cellA0(VCPU:1) pool1(DISK_GB:10)",
        "cellA1(VCPU:1) pool1(DISK_GB:10)",
    }
    assert found(world, "resources=VCPU:1&root_required=!CUSTOM_RACK") == {"hostB(VCPU:1)"}


def test_a_pool_alone_is_one_result_however_many_anchors_there_are(world: Client) -> None:
    assert found(world, "resources=DISK_GB:10") == {
        "hostB(DISK_GB:10)",
        "pool1(DISK_GB:10)",
        "pool2(DISK_GB:10)",
    }
    summaries = ask(world, "resources=DISK_GB:10")["provider_summaries"]
    assert set(summaries) == {UUID[name] for name in ("hostB", "pool1", "pool2")}


def sharing_world(api: Client, trees: dict[str, tuple[dict[str, int], list[str], bool]]) -> None:
    for number, (name, (totals, aggregates, sharing)) in enumerate(trees.items()):
        uuid = UUID[NAMES[number]]
        api.provider(name, uuid=uuid)
        api.inventory(path_of(uuid), **totals)
        api.aggregates(path_of(uuid), *aggregates)
        if sharing:
            api.traits(path_of(uuid), "MISC_SHARES_VIA_AGGREGATE")


def test_two_pools_combine_through_an_idle_anchor(api: Client) -> None:
    sharing_world(
        api,
        {
            "disk": ({"DISK_GB": 10}, [A1], True),
            "address": ({"IPV4_ADDRESS": 10}, [A2], True),
            "host": ({"VCPU": 10}, [A1, A2], False),
        },
    )
    assert len(found(api, "resources=DISK_GB:1,IPV4_ADDRESS:1")) == 1
    assert api.delete(path_of(UUID[NAMES[2]])).status == 204
    assert found(api, "resources=DISK_GB:1,IPV4_ADDRESS:1") == set()


def test_sharing_is_not_transitive(api: Client) -> None:
    sharing_world(
        api,
        {
            "host": ({"VCPU": 10}, [A1], False),
            "disk": ({"DISK_GB": 10}, [A1, A2], True),
            "address": ({"IPV4_ADDRESS": 10}, [A2], True),
        },
    )
    assert found(api, "resources=VCPU:1,DISK_GB:1,IPV4_ADDRESS:1") == set()
    assert found(api, "resources=VCPU:1,IPV4_ADDRESS:1") == set()
    assert len(found(api, "resources=DISK_GB:1,IPV4_ADDRESS:1")) == 1


def test_an_aggregate_of_a_child_links_the_whole_tree(api: Client) -> None:
    host, numa, disk = (UUID[name] for name in NAMES[:3])
    api.provider("host", uuid=host)
    api.inventory(path_of(host), VCPU=10)
    api.provider("numa", uuid=numa, parent_provider_uuid=host)
    api.inventory(path_of(numa), MEMORY_MB=10)
    api.aggregates(path_of(numa), A1)
    api.provider("disk", uuid=disk)
    api.inventory(path_of(disk), DISK_GB=10)
    api.aggregates(path_of(disk), A1)
    api.traits(path_of(disk), "MISC_SHARES_VIA_AGGREGATE")
    answer = ask(api, "resources=VCPU:1,DISK_GB:1")
    assert len(answer["allocation_requests"]) == 1
    assert set(answer["provider_summaries"]) == {host, numa, disk}


@pytest.mark.parametrize("policy", ["&group_policy=none", "&group_policy=isolate", ""])
def test_amounts_of_groups_on_one_provider_are_added(api: Client, policy: str) -> None:
    root, x, y = (UUID[name] for name in NAMES[:3])
    api.provider("root", uuid=root)
    for name, uuid in (("x", x), ("y", y)):
        api.provider(name, uuid=uuid, parent_provider_uuid=root)
        api.inventory(path_of(uuid), VCPU=8)
    answer = ask(api, f"resources=VCPU:2&resources1=VCPU:3{policy}")
    results = {
        tuple(
            sorted((uuid, entry["resources"]["VCPU"]) for uuid, entry in r["allocations"].items())
        ): r["mappings"]
        for r in answer["allocation_requests"]
    }
    assert results == {
        ((x, 5),): {"": [x], "1": [x]},
        ((y, 5),): {"": [y], "1": [y]},
        ((x, 2), (y, 3)): {"": [x], "1": [y]},
        ((x, 3), (y, 2)): {"": [y], "1": [x]},
    }


def test_the_sum_is_checked_against_max_unit_but_not_min_unit_and_step_size(
    api: Client,
) -> None:
    limits: list[dict[str, Any]] = [{"max_unit": 2}, {"min_unit": 1, "step_size": 1}]
    for name, more in zip(NAMES, limits, strict=False):
        api.provider(name, uuid=UUID[name])
        api.inventory(path_of(UUID[name]), VGPU={"total": 8, **more})
    groups = "&".join(f"resources{suffix}=VGPU:1" for suffix in ("", "1", "2"))
    assert found(api, f"{groups}&group_policy=none") == {f"{NAMES[1]}(VGPU:3)"}


def test_same_allocations_with_other_mappings_are_other_results(api: Client) -> None:
    root = UUID["hostA"]
    api.provider("root", uuid=root)
    for name in ("nicA0", "nicA1"):
        api.provider(name, uuid=UUID[name], parent_provider_uuid=root)
        api.inventory(path_of(UUID[name]), SRIOV_NET_VF=1)
    query = "resources1=SRIOV_NET_VF:1&resources2=SRIOV_NET_VF:1&group_policy=isolate"
    for version in ("1.33", "1.39"):
        assert len(ask(api, query, version)["allocation_requests"]) == 2


def test_no_match_is_200_with_nothing(api: Client) -> None:
    empty: dict[str, Any] = {"allocation_requests": [], "provider_summaries": {}}
    assert ask(api, "resources=VCPU:1") == empty
    api.provider()
    assert ask(api, "resources=VCPU:1", "1.10") == empty
    assert ask(api, f"resources=VCPU:1&in_tree={UNKNOWN}") == empty


@pytest.mark.parametrize(
    ("version", "form", "keys", "traits", "classes"),
    [
        ("1.10", list, {"allocations"}, False, {"VCPU"}),
        ("1.11", list, {"allocations"}, False, {"VCPU"}),
        ("1.12", dict, {"allocations"}, False, {"VCPU"}),
        ("1.17", dict, {"allocations"}, True, {"VCPU"}),
        ("1.26", dict, {"allocations"}, True, {"VCPU"}),
        ("1.27", dict, {"allocations"}, True, {"VCPU", "MEMORY_MB", "DISK_GB"}),
        ("1.34", dict, {"allocations", "mappings"}, True, {"VCPU", "MEMORY_MB", "DISK_GB"}),
    ],
)
def test_the_form_of_the_answer_by_version(
    world: Client, version: str, form: type, keys: set[str], traits: bool, classes: set[str]
) -> None:
    answer = ask(world, "resources=VCPU:1", version)
    for request in answer["allocation_requests"]:
        assert set(request) == keys
        assert isinstance(request["allocations"], form)
    summary = answer["provider_summaries"][UUID["hostB"]]
    assert set(summary["resources"]) == classes
    assert ("traits" in summary) is traits


def test_summaries_list_whole_trees_from_1_29_also_providers_without_inventory(
    world: Client,
) -> None:
    assert world.delete(f"{path_of(UUID['nicA1'])}/inventories").status == 204
    answer = ask(world, "resources=VCPU:1&required=!CUSTOM_FAST", "1.29")
    summaries = answer["provider_summaries"]
    assert set(summaries) == {UUID[n] for n in ("hostA", "cellA0", "nicA0", "cellA1", "nicA1")}
    assert summaries[UUID["nicA1"]]["resources"] == {}
    nic = summaries[UUID["nicA0"]]
    assert nic["parent_provider_uuid"] == UUID["cellA0"]
    assert nic["root_provider_uuid"] == UUID["hostA"]
    assert summaries[UUID["hostA"]]["parent_provider_uuid"] is None


def test_summaries_show_capacity_truncated_and_usage(api: Client) -> None:
    provider = api.provider("host", uuid=UUID["hostA"])
    api.inventory(provider, VCPU={"total": 5, "reserved": 2, "allocation_ratio": 1.5})
    consumer = "aaaaaaaa-0000-4000-8000-0000000000cc"
    sent = claim_body({provider: {"VCPU": 2}})
    assert api.put(f"/allocations/{consumer}", sent).status == 204
    summaries = ask(api, "resources=VCPU:1")["provider_summaries"]
    assert summaries[UUID["hostA"]]["resources"] == {"VCPU": {"capacity": 4, "used": 2}}


def test_traits_of_a_summary_are_standard_ones_then_custom_ones_as_they_were_made(
    api: Client,
) -> None:
    provider = api.provider("host", uuid=UUID["hostA"])
    api.inventory(provider, VCPU=1)
    api.traits(provider, "CUSTOM_ZOO", "CUSTOM_ANT", "HW_NUMA_ROOT", "CUSTOM_FOO")
    summaries = ask(api, "resources=VCPU:1")["provider_summaries"]
    assert summaries[UUID["hostA"]]["traits"] == [
        "HW_NUMA_ROOT",
        "CUSTOM_ZOO",
        "CUSTOM_ANT",
        "CUSTOM_FOO",
    ]


def test_limit_counts_results_and_summaries_follow_it(world: Client) -> None:
    answer = ask(world, "resources=DISK_GB:10&limit=1")
    assert len(answer["allocation_requests"]) == 1
    (chosen,) = answer["allocation_requests"][0]["allocations"]
    assert set(answer["provider_summaries"]) == {chosen}
    assert len(ask(world, "resources=DISK_GB:10&limit=99")["allocation_requests"]) == 3


def test_of_a_repeated_limit_and_policy_the_first_counts(world: Client) -> None:
    answer = ask(world, "resources=DISK_GB:10&limit=2&limit=1")
    assert len(answer["allocation_requests"]) == 2
    groups = "resources1=SRIOV_NET_VF:1&resources2=SRIOV_NET_VF:1"
    isolated = ask(world, f"{groups}&group_policy=isolate&group_policy=none")
    assert isolated == ask(world, f"{groups}&group_policy=isolate")
    assert isolated != ask(world, f"{groups}&group_policy=none")
    for query in ("limit=cow&limit=1", "group_policy=bogus&group_policy=none"):
        assert world.get(f"{PATH}?resources=VCPU:1&{query}").status == 400


def test_of_a_repeated_required_the_last_counts_before_1_39_and_all_after(
    world: Client,
) -> None:
    query = "resources=VCPU:1&required=CUSTOM_NET1&required=CUSTOM_FAST"
    assert found(world, query, "1.38") == {"cellA1(VCPU:1)", "hostB(VCPU:1)"}
    assert found(world, query) == set()


def test_blanks_are_harmless_where_clients_leave_them(world: Client) -> None:
    blanks = (
        "resources=MEMORY_MB:1%20,VCPU:%201%20&resources_A=VCPU:1"
        "&required_A=HW_NUMA_ROOT%20&required_A=in:CUSTOM_FAST,CUSTOM_NET1%20"
        "&resources_B=SRIOV_NET_VF:1&same_subtree=_A,_B%20&group_policy=none"
        f"&in_tree=%20{UUID['hostA']}%20&root_required=%20CUSTOM_RACK%20"
    )
    assert found(world, blanks) == found(world, blanks.replace("%20", "")) != set()
    assert (
        "No such resource class  VCPU." in world.get(f"{PATH}?resources=%20VCPU:1").error["detail"]
    )
    assert world.get(f"{PATH}?resources=VCPU:1&member_of={A1}%20").status == 400
    assert world.get(f"{PATH}?resources=VCPU:1&limit=1%20").status == 400


def test_a_candidate_can_be_claimed_as_it_is(world: Client) -> None:
    candidate = ask(world, THREE)["allocation_requests"][0]
    consumer = "aaaaaaaa-0000-4000-8000-0000000000cc"
    body = {**claim_body({}), **candidate}
    assert world.put(f"/allocations/{consumer}", body).status == 204


def test_more_reserved_than_there_is_takes_nothing_from_others_of_the_tree(api: Client) -> None:
    root = api.provider("root").rpartition("/")[2]
    child = api.provider("child", parent_provider_uuid=root).rpartition("/")[2]
    api.inventory(path_of(root), DISK_GB=100)
    body = {
        "inventories": {
            child: {
                "resource_provider_generation": 0,
                "inventories": {"DISK_GB": {"total": 4, "reserved": 200}},
            }
        },
        "allocations": {},
    }
    assert api.post("/reshaper", body).status == 204
    answer = api.get(f"{PATH}?resources=DISK_GB:1&resources2=DISK_GB:2&group_policy=none").json
    assert [
        list(allocation_request["allocations"])
        for allocation_request in answer["allocation_requests"]
    ] == [[root]]
