"""Small worlds with known answers: what candidates are, case by case.

World one::

    hostA  MEMORY_MB 4096          agg1         CUSTOM_RACK
      cellA0  VCPU 8                            HW_NUMA_ROOT
        nicA0   SRIOV_NET_VF 4                  CUSTOM_NET1
      cellA1  VCPU 8                            HW_NUMA_ROOT, CUSTOM_FAST
        nicA1   SRIOV_NET_VF 4                  CUSTOM_NET1, CUSTOM_NET2
    hostB  VCPU 8, MEMORY_MB 4096, DISK_GB 100  agg1, agg2   CUSTOM_FAST
    pool1  DISK_GB 1000            agg1         shares, STORAGE_DISK_SSD
    pool2  DISK_GB 1000            agg2         shares
"""

from __future__ import annotations

from tests.unit.candidates.forest import SHARING, Inventory, Provider, amounts, ask, mapping

AGG1 = "11111111-1111-1111-1111-111111111111"
AGG2 = "22222222-2222-2222-2222-222222222222"
HOST_A = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
NIC_A0 = "aaaaaaaa-0000-0000-0000-aaaaaaaaaaaa"
POOL1 = "dddddddd-dddd-dddd-dddd-dddddddddddd"

ONE = [
    Provider(HOST_A, None, {"MEMORY_MB": 4096}, ("CUSTOM_RACK",), (AGG1,)),
    Provider("cellA0", HOST_A, {"VCPU": 8}, ("HW_NUMA_ROOT",)),
    Provider(NIC_A0, "cellA0", {"SRIOV_NET_VF": 4}, ("CUSTOM_NET1",)),
    Provider("cellA1", HOST_A, {"VCPU": 8}, ("HW_NUMA_ROOT", "CUSTOM_FAST")),
    Provider("nicA1", "cellA1", {"SRIOV_NET_VF": 4}, ("CUSTOM_NET1", "CUSTOM_NET2")),
    Provider(
        "hostB",
        None,
        {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100},
        ("CUSTOM_FAST",),
        (AGG1, AGG2),
    ),
    Provider(POOL1, None, {"DISK_GB": 1000}, (SHARING, "STORAGE_DISK_SSD"), (AGG1,)),
    Provider("pool2", None, {"DISK_GB": 1000}, (SHARING,), (AGG2,)),
]
THREE = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10"


def named(found: list[str]) -> list[str]:
    """Read names instead of uuids, sorted."""
    for uuid, name in ((HOST_A, "hostA"), (NIC_A0, "nicA0"), (POOL1, "pool1")):
        found = [item.replace(uuid, name) for item in found]
    return sorted(" ".join(sorted(item.split())) for item in found)


def short(query: str, version: int = 39, **options: bool) -> list[str]:
    """The providers of each candidate of world one, without amounts."""
    found = named(amounts(ask(ONE, query, version, **options)))
    return [" ".join(part.split("(")[0] for part in item.split()) for item in found]


def test_e1_each_class_comes_from_one_provider_of_the_tree_or_shared_with_it() -> None:
    body = ask(ONE, THREE)
    assert named(amounts(body)) == sorted(
        [
            "cellA0(VCPU:1) hostA(MEMORY_MB:512) pool1(DISK_GB:10)",
            "cellA1(VCPU:1) hostA(MEMORY_MB:512) pool1(DISK_GB:10)",
            "hostB(DISK_GB:10,MEMORY_MB:512,VCPU:1)",
            "hostB(MEMORY_MB:512,VCPU:1) pool1(DISK_GB:10)",
            "hostB(MEMORY_MB:512,VCPU:1) pool2(DISK_GB:10)",
        ]
    )
    assert len(body["provider_summaries"]) == 8


def test_e1_before_nesting_two_providers_of_one_tree_do_not_combine() -> None:
    body = ask(ONE, THREE, 28)
    assert len(body["allocation_requests"]) == 3
    assert body["provider_summaries"].keys() == {"hostB", POOL1, "pool2"}


def test_e2_a_required_trait_may_be_on_any_contributing_provider() -> None:
    found = short(THREE + "&required=STORAGE_DISK_SSD")
    assert found == ["cellA0 hostA pool1", "cellA1 hostA pool1", "hostB pool1"]


def test_e3_a_forbidden_trait_rules_out_every_contributing_provider() -> None:
    assert short(THREE + "&required=!CUSTOM_FAST") == ["cellA0 hostA pool1"]


def test_e4_any_of_traits_look_at_contributing_providers_only() -> None:
    assert short("resources=VCPU:1&required=in:CUSTOM_FAST,CUSTOM_NET1") == ["cellA1", "hostB"]


def test_e5_a_shared_provider_must_be_a_member_itself() -> None:
    found = short(f"resources=VCPU:1,DISK_GB:10&member_of={AGG2}")
    assert found == ["hostB", "hostB pool2"]


def test_e6_a_forbidden_aggregate_on_the_root_rules_out_its_tree() -> None:
    found = short(f"resources=VCPU:1,DISK_GB:10&member_of=!{AGG2}")
    assert found == ["cellA0 pool1", "cellA1 pool1"]


def test_e7_suffixed_groups_combine_freely_within_a_tree() -> None:
    query = "resources1=VCPU:1&resources2=SRIOV_NET_VF:1&group_policy=none"
    assert mapping(ask(ONE, query), "1", "2") == {
        ("cellA0", NIC_A0), ("cellA0", "nicA1"), ("cellA1", NIC_A0), ("cellA1", "nicA1"),
    }  # fmt: skip
    assert mapping(ask(ONE, query + "&same_subtree=1,2"), "1", "2") == {
        ("cellA0", NIC_A0), ("cellA1", "nicA1"),
    }  # fmt: skip


def test_e8_isolated_groups_are_on_different_providers() -> None:
    query = (
        "resources_N1=SRIOV_NET_VF:1&required_N1=CUSTOM_NET1"
        "&resources_N2=SRIOV_NET_VF:1&required_N2=CUSTOM_NET2&group_policy="
    )
    assert mapping(ask(ONE, query + "isolate"), "_N1", "_N2") == {(NIC_A0, "nicA1")}
    body = ask(ONE, query + "none")
    assert mapping(body, "_N1", "_N2") == {(NIC_A0, "nicA1"), ("nicA1", "nicA1")}
    assert "nicA1(SRIOV_NET_VF:2)" in amounts(body)


def test_e9_suffixed_member_of_looks_at_the_one_provider() -> None:
    query = f"resources_C=VCPU:1&resources_D=DISK_GB:10&member_of_D={AGG2}&group_policy=none"
    assert mapping(ask(ONE, query), "_C", "_D") == {("hostB", "hostB"), ("hostB", "pool2")}


def test_e10_in_tree_of_a_suffixed_group_may_name_a_sharing_provider() -> None:
    found = short(f"resources=VCPU:1&resources_D=DISK_GB:10&in_tree_D={POOL1}")
    assert found == ["cellA0 pool1", "cellA1 pool1", "hostB pool1"]


def test_e11_any_member_names_a_tree_and_in_tree_binds_its_own_group_only() -> None:
    found = short(f"resources=VCPU:1&in_tree={NIC_A0}&resources_D=DISK_GB:10")
    assert found == ["cellA0 pool1", "cellA1 pool1"]
    assert short(f"resources=VCPU:1,DISK_GB:10&in_tree={HOST_A}") == []


def test_e12_a_group_without_resources_shows_in_mappings_only() -> None:
    body = ask(
        ONE,
        "resources_V=SRIOV_NET_VF:1&required_N=HW_NUMA_ROOT&same_subtree=_V,_N&group_policy=none",
    )
    assert mapping(body, "_V", "_N") == {(NIC_A0, "cellA0"), ("nicA1", "cellA1")}
    assert named(amounts(body)) == ["nicA0(SRIOV_NET_VF:1)", "nicA1(SRIOV_NET_VF:1)"]


def test_e13_root_required_looks_at_the_root_of_the_tree() -> None:
    found = short("resources=VCPU:1,DISK_GB:10&root_required=CUSTOM_RACK")
    assert found == ["cellA0 pool1", "cellA1 pool1"]


def test_e14_a_sharing_provider_alone_is_one_candidate_however_many_trees_use_it() -> None:
    body = ask(ONE, "resources=DISK_GB:10")
    assert named(amounts(body)) == ["hostB(DISK_GB:10)", "pool1(DISK_GB:10)", "pool2(DISK_GB:10)"]
    assert body["provider_summaries"].keys() == {"hostB", POOL1, "pool2"}


SS1 = Provider("ss1", None, {"DISK_GB": 100}, (SHARING,), ("a1",))
SS2 = Provider("ss2", None, {"IPV4_ADDRESS": 10}, (SHARING,), ("a2",))


def test_w2_two_pools_combine_through_an_idle_host_linked_to_both() -> None:
    host = Provider("cn", None, {"VCPU": 8}, (), ("a1", "a2"))
    query = "resources=DISK_GB:1,IPV4_ADDRESS:1"
    assert amounts(ask([SS1, SS2, host], query)) == ["ss1(DISK_GB:1) ss2(IPV4_ADDRESS:1)"]
    assert amounts(ask([SS1, SS2], query)) == []


def test_w3_sharing_is_one_hop() -> None:
    world = [
        Provider("cn", None, {"VCPU": 8}, (), ("a1",)),
        Provider("ss1", None, {"DISK_GB": 100}, (SHARING,), ("a1", "a2")),
        SS2,
    ]
    assert amounts(ask(world, "resources=VCPU:1,DISK_GB:1,IPV4_ADDRESS:1")) == []
    assert amounts(ask(world, "resources=VCPU:1,IPV4_ADDRESS:1")) == []
    found = amounts(ask(world, "resources=DISK_GB:1,IPV4_ADDRESS:1"))
    assert found == ["ss1(DISK_GB:1) ss2(IPV4_ADDRESS:1)"]


def test_w4_an_aggregate_on_any_provider_of_a_tree_links_the_tree() -> None:
    world = [
        Provider("cn", None, {"VCPU": 8}),
        Provider("numa", "cn", {"MEMORY_MB": 1024}, (), ("a1",)),
        SS1,
    ]
    body = ask(world, "resources=VCPU:1,DISK_GB:1")
    assert amounts(body) == ["cn(VCPU:1) ss1(DISK_GB:1)"]
    assert body["provider_summaries"].keys() == {"cn", "numa", "ss1"}


def test_w5_amounts_of_groups_on_one_provider_are_added() -> None:
    world = [
        Provider("cn"),
        Provider("x", "cn", {"VCPU": 8}),
        Provider("y", "cn", {"VCPU": 8}),
    ]
    for policy in ("&group_policy=none", "&group_policy=isolate", ""):
        body = ask(world, "resources=VCPU:2&resources1=VCPU:3" + policy)
        assert amounts(body) == [
            "x(VCPU:2) y(VCPU:3)",
            "x(VCPU:3) y(VCPU:2)",
            "x(VCPU:5)",
            "y(VCPU:5)",
        ]
        assert mapping(body, "", "1") == {("x", "x"), ("x", "y"), ("y", "x"), ("y", "y")}


def test_w6_a_sum_may_not_exceed_max_unit() -> None:
    world = [
        Provider("narrow", None, {"VGPU": Inventory(8, max_unit=2)}),
        Provider("wide", None, {"VGPU": 8}),
    ]
    body = ask(world, "resources=VGPU:1&resources1=VGPU:1&resources2=VGPU:1&group_policy=none")
    assert amounts(body) == ["wide(VGPU:3)"]
