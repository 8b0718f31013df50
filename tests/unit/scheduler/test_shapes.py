"""Shapes of one request for flat and nested hosts, and which requests are split."""

from __future__ import annotations

import pytest

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.guest_numa import GuestNode, GuestNuma, guest_numa, policies
from compute_agent.request.spec import RequestedGroup, RequestSpec
from compute_agent.scheduler.search import layout_queries
from tests.unit.scheduler.specs import request_of, spec
from tests.unit.scheduler.trees import answered, candidate, summary

AGGREGATE = "11111111-1111-1111-1111-111111111111"
ROOT = "22222222-2222-2222-2222-222222222222"


def numa_of(
    request_spec: RequestSpec, request: CandidateRequest, known: tuple[str, ...] = ()
) -> GuestNuma:
    resources = request.group("").resources
    return guest_numa(
        request_spec,
        resources.get("VCPU", 0),
        resources.get("PCPU", 0),
        resources.get("MEMORY_MB", 0),
        known,
    )


def queries(request_spec: RequestSpec, known: tuple[str, ...] = ()) -> dict[str, str]:
    request = request_of(request_spec)
    return {
        shape.name: shape.request.query()
        for shape in layout_queries.shapes(
            request, numa_of(request_spec, request, known), policies_of(request_spec, request)
        )
    }


def policies_of(request_spec: RequestSpec, request: CandidateRequest) -> dict[str, str]:
    classes = {suffix: group.resources for suffix, group in request.groups.items()}
    return policies(request_spec, {}, classes)


def test_a_request_is_asked_as_it_is_for_flat_hosts_and_by_cell_for_nested_ones() -> None:
    assert queries(spec()) == {
        "flat": "resources=DISK_GB:10,MEMORY_MB:512,VCPU:2&required=!HW_NUMA_ROOT",
        "nested": "resources=DISK_GB:10&resources_NUMA0=MEMORY_MB:512,VCPU:2"
        "&required_NUMA0=HW_NUMA_ROOT",
    }


def test_a_request_without_cpus_and_memory_has_one_shape() -> None:
    assert queries(spec({"resources:VGPU": "1"}, vcpus=0, memory_mb=0, root_gb=0)) == {
        "plain": "resources=VGPU:1"
    }


def test_traits_go_where_the_resources_they_describe_go() -> None:
    request_spec = spec(
        {
            "trait:HW_CPU_X86_AVX": "required",
            "trait:STORAGE_DISK_SSD": "required",
            "trait:CUSTOM_RACK7": "required",
            "trait:CUSTOM_OLD": "forbidden",
        }
    )
    assert queries(request_spec)["nested"] == (
        "group_policy=none&same_subtree=_NUMA0,_TRAITS"
        "&resources=DISK_GB:10&required=STORAGE_DISK_SSD,!CUSTOM_OLD"
        "&resources_NUMA0=MEMORY_MB:512,VCPU:2"
        "&required_NUMA0=HW_CPU_X86_AVX,HW_NUMA_ROOT,!CUSTOM_OLD"
        "&required_TRAITS=CUSTOM_RACK7"
    )


def test_the_trait_of_an_encryption_context_stays_with_the_context() -> None:
    request_spec = spec(
        {"hw:mem_encryption": "true"}, properties={"hw_firmware_type": "uefi"}, root_gb=0
    )
    nested = queries(request_spec)["nested"]
    assert nested == (
        "resources=MEM_ENCRYPTION_CONTEXT:1&required=HW_CPU_X86_AMD_SEV"
        "&resources_NUMA0=MEMORY_MB:512,VCPU:2&required_NUMA0=HW_NUMA_ROOT"
    )


def test_an_aggregate_binds_the_host_when_nothing_is_left_of_the_unsuffixed_group() -> None:
    nested = queries(spec({"member_of": AGGREGATE}, root_gb=0))["nested"]
    assert nested == (
        "group_policy=none&same_subtree=_HOST,_NUMA0"
        f"&required_HOST=COMPUTE_NODE&member_of_HOST=in:{AGGREGATE}"
        "&resources_NUMA0=MEMORY_MB:512,VCPU:2&required_NUMA0=HW_NUMA_ROOT"
    )


def test_guest_nodes_are_a_group_each_in_equal_shares() -> None:
    nested = queries(spec({"hw:numa_nodes": "2"}, vcpus=4, memory_mb=1000, root_gb=0))["nested"]
    assert nested == (
        "group_policy=none&resources_NUMA0=MEMORY_MB:500,VCPU:2&required_NUMA0=HW_NUMA_ROOT"
        "&resources_NUMA1=MEMORY_MB:500,VCPU:2&required_NUMA1=HW_NUMA_ROOT"
    )


def test_guest_nodes_are_sized_as_given() -> None:
    request_spec = spec(
        {
            "hw:numa_nodes": "2",
            "hw:numa_cpus.0": "0-2",
            "hw:numa_cpus.1": "3",
            "hw:numa_mem.0": "3072",
            "hw:numa_mem.1": "1024",
            "hw:cpu_policy": "mixed",
            "hw:cpu_dedicated_mask": "0,3",
        },
        vcpus=4,
        memory_mb=4096,
    )
    assert numa_of(request_spec, request_of(request_spec)).nodes == (
        GuestNode(vcpu=2, pcpu=1, memory_mb=3072),
        GuestNode(vcpu=0, pcpu=1, memory_mb=1024),
    )


NODES = {
    "hw:numa_nodes": "2",
    "hw:numa_cpus.0": "0-1",
    "hw:numa_cpus.1": "2-3",
    "hw:numa_mem.0": "2048",
    "hw:numa_mem.1": "2048",
}


@pytest.mark.parametrize(
    ("extra_specs", "message"),
    [
        ({"hw:numa_nodes": "0"}, "at least 1"),
        ({"hw:numa_nodes": "5"}, "a number that divides 4 CPUs and 4096 MiB"),
        (NODES | {"hw:numa_mem.0": "1"}, "a sum of 4096"),
        (NODES | {"hw:numa_cpus.1": "1-3"}, "CPUs once"),
        (NODES | {"hw:numa_cpus.0": "x"}, "expected CPU numbers"),
        ({"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-2"}, "of each of 2 nodes"),
        (NODES | {"hw:numa_mem.2": "512"}, "hw:numa_mem.2 is '512': expected 2 nodes, from 0 on"),
        ({"hw:cpu_policy": "dedicated", "hw:numa_mem.0": "4096"}, "hw:numa_cpus.0 is None"),
        ({"hw:mem_page_size": "2048", "hw:numa_cpus.0": "0-3"}, "hw:numa_mem.0 is None"),
        ({"hw:pmem": "a", "hw:numa_cpus.0": "0-2", "hw:numa_mem.0": "4096"}, "CPUs once"),
        ({"hw:mem_page_size": "huge"}, "small, large, any"),
        ({"hw:mem_page_size": "2" * 5000}, "small, large, any"),
    ],
)
def test_guest_nodes_that_do_not_add_up_are_refused(
    extra_specs: dict[str, str], message: str
) -> None:
    request_spec = spec(extra_specs, vcpus=4, memory_mb=4096)
    with pytest.raises(InvalidRequest, match=message):
        numa_of(request_spec, request_of(request_spec))


@pytest.mark.parametrize("size", ["2048", "2048KB", "2MB", "2 MiB"])
def test_memory_on_huge_pages_is_a_group_of_its_own_beside_its_cpus(size: str) -> None:
    assert queries(spec({"hw:mem_page_size": size}, root_gb=0))["nested"] == (
        "group_policy=none&same_subtree=_NUMA0,_PAGES0"
        "&resources_NUMA0=VCPU:2&required_NUMA0=HW_NUMA_ROOT"
        "&resources_PAGES0=MEMORY_MB:512&required_PAGES0=CUSTOM_MEMORY_PAGE_SIZE_2048"
    )


def test_large_pages_are_any_size_that_placement_knows() -> None:
    known = ("CUSTOM_MEMORY_PAGE_SIZE_2048", "CUSTOM_MEMORY_PAGE_SIZE_1048576")
    nested = queries(spec({"hw:mem_page_size": "large"}), known)["nested"]
    assert (
        "required_PAGES0=in:CUSTOM_MEMORY_PAGE_SIZE_1048576,CUSTOM_MEMORY_PAGE_SIZE_2048" in nested
    )


def test_devices_with_affinity_are_below_the_guests_cell() -> None:
    request_spec = spec(
        {"hw:pci_numa_affinity_policy": "required", "resources_GPU:VGPU": "1"}, root_gb=0
    )
    found = queries(request_spec)
    assert "same_subtree=_GPU,_NUMA0" in found["nested"]
    assert "same_subtree" not in found["flat"]


def test_bandwidth_and_parts_of_the_host_are_not_bound_to_a_cell() -> None:
    bandwidth = RequestedGroup("port", RequestGroup({"NET_BW_EGR_KILOBIT_PER_SEC": 1}))
    request_spec = spec(
        {"hw:pci_numa_affinity_policy": "required", "resources_SCRATCH:DISK_GB": "1"},
        requested_groups=(bandwidth,),
    )
    assert "same_subtree" not in queries(request_spec)["nested"]


def test_an_accelerator_is_bound_to_the_node_that_the_flavor_names_and_no_other() -> None:
    request_spec = spec(
        {
            "hw:numa_nodes": "2",
            "hw:pci_numa_affinity_policy": "required",
            "same_subtree_accel": "_NUMA1,device_profile_0",
        },
        requested_groups=(RequestedGroup("device_profile_0", RequestGroup({"FPGA": 1})),),
    )
    assert "same_subtree=_NUMA1,device_profile_0" in queries(request_spec)["nested"]
    assert "_NUMA0,device" not in queries(request_spec)["nested"]


def test_a_flavor_may_name_the_guests_node_in_same_subtree() -> None:
    request_spec = spec({"resources_GPU:VGPU": "1", "same_subtree": "_GPU,_NUMA0"}, root_gb=0)
    found = queries(request_spec)
    assert "same_subtree=_GPU,_NUMA0" in found["nested"]
    assert "same_subtree" not in found["flat"]


def test_a_guest_node_that_there_is_not_is_refused() -> None:
    request_spec = spec({"resources_GPU:VGPU": "1", "same_subtree": "_GPU,_NUMA1"})
    with pytest.raises(InvalidRequest, match="_NUMA1"):
        queries(request_spec)


def test_a_group_may_not_take_a_name_that_shapes_need() -> None:
    request_spec = spec(requested_groups=(RequestedGroup("_NUMA0", RequestGroup({"VGPU": 1})),))
    with pytest.raises(InvalidRequest, match="a name that is not reserved"):
        queries(request_spec)


def test_a_target_binds_cpus_but_not_the_disk_that_may_be_shared() -> None:
    request_spec = spec({"trait:STORAGE_DISK_SSD": "required"})
    bound = layout_queries.on_target(request_of(request_spec), ROOT)
    assert bound.query() == (
        f"resources=MEMORY_MB:512,VCPU:2&in_tree={ROOT}"
        "&resources_DISK=DISK_GB:10&required_DISK=STORAGE_DISK_SSD"
    )


def test_a_target_binds_every_group_where_all_have_suffixes() -> None:
    request_spec = spec({"resources_A:VGPU": "1"}, vcpus=0, memory_mb=0, root_gb=0)
    assert (
        layout_queries.on_target(request_of(request_spec), ROOT).query()
        == f"resources_A=VGPU:1&in_tree_A={ROOT}"
    )


def test_a_nested_tree_is_left_out_of_the_flat_shape() -> None:
    found = answered(
        [candidate({"nested": {"MEMORY_MB": 1}}), candidate({"flat": {"MEMORY_MB": 1}})],
        {
            "nested": summary("nested", {"MEMORY_MB": (9, 0)}),
            "cell": summary("nested", None, "HW_NUMA_ROOT", parent="nested"),
            "flat": summary("flat", {"MEMORY_MB": (9, 0)}),
        },
    )
    shape = layout_queries.LayoutQuery("flat", CandidateRequest())
    assert shape.kept(found).candidates == found.candidates[1:]


def test_two_guest_nodes_on_one_cell_are_dropped() -> None:
    cells = {
        name: summary("host", {"VCPU": (9, 0)}, "HW_NUMA_ROOT", parent="host") for name in "ab"
    }
    found = answered(
        [
            candidate({"a": {"VCPU": 2}}, _NUMA0=["a"], _NUMA1=["a"]),
            candidate({"a": {"VCPU": 1}, "b": {"VCPU": 1}}, _NUMA0=["a"], _NUMA1=["b"]),
        ],
        {"host": summary("host"), **cells},
        "nested",
    )
    shape = layout_queries.LayoutQuery("nested", CandidateRequest())
    assert shape.kept(found).candidates == found.candidates[1:]


def split_of(asked: RequestSpec) -> layout_queries.LayoutQuery | None:
    request = request_of(asked)
    numa = numa_of(asked, request)
    return layout_queries.split_shape(request, numa)


@pytest.mark.parametrize(
    "extra_specs",
    [
        {"same_subtree": "_GPU,_NUMA0"},
        {"same_subtree": "_GPU,!_NUMA0"},
        {"hw:numa_nodes": "1"},
    ],
)
def test_a_guest_whose_cell_something_else_depends_on_is_not_split(
    extra_specs: dict[str, str],
) -> None:
    assert split_of(spec({"resources_GPU:VGPU": "1", **extra_specs})) is None
    assert split_of(spec({"resources_GPU:VGPU": "1", "trait:CUSTOM_RACK7": "required"}))


def test_a_specification_that_holds_a_group_at_the_guests_cell_is_not_split() -> None:
    port = RequestedGroup("port", RequestGroup({"NET_BW_EGR_KILOBIT_PER_SEC": 1}))
    held_together = frozenset({frozenset({"port", "_NUMA0"})})
    assert split_of(spec(requested_groups=(port,), same_subtree=held_together)) is None
    assert split_of(spec(requested_groups=(port,))) is not None
