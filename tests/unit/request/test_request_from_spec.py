"""Parts of a request specification, and what each becomes in the question to placement."""

from __future__ import annotations

import pytest

from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.ports import binding_allocation, groups_of_port
from compute_agent.request.spec import PciRequest, RequestedGroup
from tests.unit.scheduler.specs import query_of, request_of, spec

AGGREGATE = "11111111-1111-1111-1111-111111111111"
OTHER_AGGREGATE = "22222222-2222-2222-2222-222222222222"
TREE = "33333333-3333-3333-3333-333333333333"
PORT = "44444444-4444-4444-4444-444444444444"

BASE = "resources=DISK_GB:10,MEMORY_MB:512,VCPU:2"
PINNED = "resources=DISK_GB:10,MEMORY_MB:512,PCPU:2"


@pytest.mark.parametrize(
    ("extra_specs", "expected"),
    [
        ({}, BASE),
        (
            {"resources1:SRIOV_NET_VF": "1", "trait1:CUSTOM_PHYSNET_A": "required"},
            f"{BASE}&resources1=SRIOV_NET_VF:1&required1=CUSTOM_PHYSNET_A",
        ),
        (
            {"resources_GPU:VGPU": "1", "trait_GPU:CUSTOM_SLOW": "forbidden"},
            f"{BASE}&resources_GPU=VGPU:1&required_GPU=!CUSTOM_SLOW",
        ),
        (
            {"resources_A:VGPU": "1", "trait_A:COMPUTE_X": "required"},
            f"{BASE}&resources_A=VGPU:1&required_A=COMPUTE_X",
        ),
        (
            {"trait:HW_CPU_X86_AVX2": "required", "trait:CUSTOM_OLD": "forbidden"},
            f"{BASE}&required=HW_CPU_X86_AVX2,!CUSTOM_OLD",
        ),
        (
            {"member_of": f"in:{AGGREGATE},{OTHER_AGGREGATE}"},
            f"{BASE}&member_of=in:{AGGREGATE},{OTHER_AGGREGATE}",
        ),
        ({"member_of": f"!{AGGREGATE}"}, f"{BASE}&member_of=!in:{AGGREGATE}"),
        ({"in_tree": TREE}, f"{BASE}&in_tree={TREE}"),
        (
            {"root_required": "COMPUTE_NODE,!CUSTOM_OLD"},
            f"root_required=COMPUTE_NODE,!CUSTOM_OLD&{BASE}",
        ),
        (
            {"resources_A:VGPU": "1", "resources_B:SRIOV_NET_VF": "1", "same_subtree1": "_B,_A"},
            f"group_policy=none&same_subtree=_A,_B&{BASE}&resources_A=VGPU:1"
            "&resources_B=SRIOV_NET_VF:1",
        ),
        (
            {"resources_A:VGPU": "1", "resources_B:VGPU": "1", "group_policy": "isolate"},
            f"group_policy=isolate&{BASE}&resources_A=VGPU:1&resources_B=VGPU:1",
        ),
        ({"resources:VCPU": "4"}, "resources=DISK_GB:10,MEMORY_MB:512,VCPU:4"),
        ({"resources:PCPU": "2"}, "resources=DISK_GB:10,MEMORY_MB:512,PCPU:2"),
        ({"resources1:VCPU": "4"}, "resources=DISK_GB:10,MEMORY_MB:512&resources1=VCPU:4"),
        ({"resources:MEMORY_MB": "64"}, "resources=DISK_GB:10,MEMORY_MB:64,VCPU:2"),
        ({"resources:VCPU": "0"}, "resources=DISK_GB:10,MEMORY_MB:512"),
        (
            {
                "resources:CUSTOM_BAREMETAL": "1",
                "resources:VCPU": "0",
                "resources:MEMORY_MB": "0",
                "resources:DISK_GB": "0",
            },
            "resources=CUSTOM_BAREMETAL:1",
        ),
        ({"resources1:VGPU": "0"}, BASE),
        ({"hw:cpu_policy": "dedicated"}, "resources=DISK_GB:10,MEMORY_MB:512,PCPU:2"),
        (
            {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
            "resources=DISK_GB:10,MEMORY_MB:512,PCPU:3",
        ),
        (
            {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"},
            "resources=DISK_GB:10,MEMORY_MB:512,PCPU:1,VCPU:1",
        ),
        (
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
            f"{PINNED}&required=HW_CPU_HYPERTHREADING",
        ),
        (
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
            f"{PINNED}&required=!HW_CPU_HYPERTHREADING",
        ),
        ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "prefer"}, PINNED),
        (
            {"hw:mem_encryption": "True"},
            "resources=DISK_GB:10,MEMORY_MB:512,MEM_ENCRYPTION_CONTEXT:1,VCPU:2"
            "&required=HW_CPU_X86_AMD_SEV",
        ),
        (
            {"hw:mem_encryption": "1", "hw:mem_encryption_model": "intel-tdx"},
            "resources=DISK_GB:10,MEMORY_MB:512,MEM_ENCRYPTION_CONTEXT:1,VCPU:2"
            "&required=HW_CPU_X86_INTEL_TDX",
        ),
        ({"hw:mem_encryption": "no"}, BASE),
        (
            {"hw:pmem": "6GB,SMALL,6GB"},
            "resources=CUSTOM_PMEM_NAMESPACE_6GB:2,CUSTOM_PMEM_NAMESPACE_SMALL:1,DISK_GB:10,"
            "MEMORY_MB:512,VCPU:2",
        ),
        (
            {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
            "root_required=COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_TPM_CRB,"
            f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER&{BASE}",
        ),
        (
            {"hw:tpm_version": "1.2"},
            "root_required=COMPUTE_SECURITY_TPM_1_2,COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,"
            f"COMPUTE_SECURITY_TPM_TIS&{BASE}",
        ),
        ({"hw:tpm_model": "tpm-tis", "hw:tpm_secret_security": "host"}, BASE),
        (
            {"hw:tpm_version": "2.0", "hw:tpm_secret_security": "host"},
            "root_required=COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,"
            f"COMPUTE_SECURITY_TPM_TIS&{BASE}",
        ),
        (
            {"os:secure_boot": "required"},
            f"root_required=COMPUTE_SECURITY_UEFI_SECURE_BOOT&{BASE}",
        ),
        ({"os:secure_boot": "optional"}, BASE),
        (
            {"hw:pci_numa_affinity_policy": "socket"},
            f"root_required=COMPUTE_SOCKET_PCI_NUMA_AFFINITY&{BASE}",
        ),
        (
            {"hw:maxphysaddr_mode": "passthrough"},
            f"root_required=COMPUTE_ADDRESS_SPACE_PASSTHROUGH&{BASE}",
        ),
        (
            {"hw:maxphysaddr_mode": "emulate"},
            f"root_required=COMPUTE_ADDRESS_SPACE_EMULATED&{BASE}",
        ),
        ({"quota:cpu_shares": "10", "capabilities:x": "y", "hw:unknown": "z"}, BASE),
    ],
)
def test_an_extra_spec_becomes_its_part_of_the_query(
    extra_specs: dict[str, str], expected: str
) -> None:
    # encrypted memory needs an image of this kind
    assert query_of(spec(extra_specs, properties={"hw_firmware_type": "uefi"})) == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"trait:HW_CPU_X86_AVX": "required"}, f"{BASE}&required=HW_CPU_X86_AVX"),
        ({"traits_required": "CUSTOM_A, CUSTOM_B"}, f"{BASE}&required=CUSTOM_A,CUSTOM_B"),
        (
            {"hw_firmware_stateless": "true", "hw_firmware_type": "uefi"},
            f"root_required=COMPUTE_SECURITY_STATELESS_FIRMWARE&{BASE}",
        ),
        ({"hw_cpu_policy": "dedicated"}, "resources=DISK_GB:10,MEMORY_MB:512,PCPU:2"),
        ({"os_secure_boot": "required"}, f"root_required=COMPUTE_SECURITY_UEFI_SECURE_BOOT&{BASE}"),
    ],
)
def test_an_image_property_becomes_its_part_of_the_query(
    properties: dict[str, str], expected: str
) -> None:
    assert query_of(spec(properties=properties)) == expected


def test_disk_is_root_and_ephemeral_and_swap_rounded_up() -> None:
    sized = spec(root_gb=10, flavor_fields={"ephemeral_gb": 5, "swap": 1025})
    assert request_of(sized).resources["DISK_GB"] == 17


def test_an_instance_booted_from_a_volume_needs_no_root_disk() -> None:
    assert "DISK_GB" not in request_of(spec(root_gb=10, is_bfv=True)).resources


@pytest.mark.parametrize(
    ("extra_specs", "message"),
    [
        ({"resources:VCPU": "two"}, "resources:VCPU is 'two': expected a whole number"),
        ({"resources:VCPU": "-1"}, "expected a whole number"),
        ({"resources:vcpu": "1"}, "expected a resource class"),
        ({"trait:HW_X": "maybe"}, "trait:HW_X is 'maybe': expected required or forbidden"),
        ({"member_of": "rack1"}, "member_of is 'rack1': expected a uuid"),
        ({"in_tree": "host"}, "in_tree is 'host': expected a uuid"),
        ({"group_policy": "some"}, "expected none or isolate"),
        ({"root_required": "A,!A"}, "expected A either required or forbidden"),
        ({"trait:A": "required", "trait1:B": "required"}, "resources of group 1 is {}"),
        ({"resources_A:VGPU": "1", "same_subtree": "_A,_B"}, "same_subtree is '_B'"),
        ({"resources_A:VGPU": "1", "same_subtree": "_A,!_B"}, "same_subtree is '_B'"),
        ({"resources_A:VGPU": "1", "same_subtree": "!_A"}, "outside of it"),
        ({"resources_A:VGPU": "1", "same_subtree": "_A,!_A"}, "outside of it"),
        ({"hw:cpu_policy": "exclusive"}, "expected shared or dedicated or mixed"),
        ({"hw:cpu_policy": "mixed"}, "hw:cpu_dedicated_mask"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"}, "not all"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "7"}, "below 2"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": f"0-{10**15}"}, "below 2"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "7" * 5000}, "below 2"),
        ({"hw:mem_encryption": "perhaps"}, "expected true or false"),
        ({"hw:mem_encryption": "1", "hw:mem_encryption_model": "sgx"}, "amd-sev or"),
        ({"hw:tpm_version": "3.0"}, "expected 1.2 or 2.0"),
        ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, "tpm-tis with hw:tpm_version 1.2"),
        ({"os:secure_boot": "yes"}, "required or optional or disabled"),
        ({"hw:pmem": "A,,B"}, "labels separated by commas"),
        ({"pci_passthrough:alias": "gpu:1"}, "pci_in_placement is off"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    extra_specs: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message.replace("(", r"\(")):
        request_of(spec(extra_specs, properties={"hw_firmware_type": "uefi"}))


def test_a_group_to_be_kept_out_of_a_subtree_is_said_in_the_extended_api_only() -> None:
    asked = {"resources_A:VGPU": "1", "resources_B:FPGA": "1", "resources_C:PGPU": "1"}
    request = request_of(spec({**asked, "same_subtree": "_B,_A,!_C", "same_subtree2": "_A,!_C"}))
    extended = [value for name, value in request.parameters(is_extended=True) if "subtree" in name]
    assert extended == ["_A,!_C", "_A,_B,!_C"]
    plain = [value for name, value in request.parameters() if "subtree" in name]
    assert plain == ["_A,_B"]


def test_a_request_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="resources of the request"):
        request_of(spec(vcpus=0, memory_mb=0, root_gb=0))


def test_traits_of_the_host_go_to_the_root_and_others_stay() -> None:
    asked = spec(
        {
            "trait:COMPUTE_VOLUME_ATTACH": "required",
            "trait:HW_ARCH_X86_64": "required",
            "trait:HW_CPU_X86_AVX": "required",
            "trait:OWNER_CYBORG": "forbidden",
            "trait:MISC_SHARES_VIA_AGGREGATE": "forbidden",
        }
    )
    assert query_of(asked) == (
        "root_required=COMPUTE_VOLUME_ATTACH,HW_ARCH_X86_64,!MISC_SHARES_VIA_AGGREGATE,"
        f"!OWNER_CYBORG&{BASE}&required=HW_CPU_X86_AVX"
    )


def test_a_group_from_outside_keeps_its_id_as_suffix() -> None:
    group = RequestGroup(
        {"NET_BW_EGR_KILOBIT_PER_SEC": 1000},
        required=frozenset({frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_B", "CUSTOM_C"})}),
        member_of=frozenset({frozenset({AGGREGATE})}),
        in_tree=TREE,
    )
    request = request_of(spec(requested_groups=(RequestedGroup(PORT, group),)))
    assert request.query() == (
        f"{BASE}&resources{PORT}=NET_BW_EGR_KILOBIT_PER_SEC:1000&required{PORT}=CUSTOM_A"
        f"&required{PORT}=in:CUSTOM_B,CUSTOM_C&member_of{PORT}=in:{AGGREGATE}&in_tree{PORT}={TREE}"
    )
    assert request.microversion == (1, 39)


def test_a_group_from_outside_without_id_gets_a_suffix_and_two_of_one_id_are_refused() -> None:
    group = RequestedGroup("", RequestGroup({"FPGA": 1}))
    assert query_of(spec(requested_groups=(group,))) == f"{BASE}&resources_requested_0=FPGA:1"
    group = group._replace(requester_id="a")
    with pytest.raises(InvalidRequest, match="a name that no other group has"):
        request_of(spec(requested_groups=(group, group)))


def test_an_alias_asks_for_one_group_per_device() -> None:
    asked = spec(pci_requests=(PciRequest("req", "gpu", 2),))
    aliases = {"gpu": PciAlias("CUSTOM_PCI_10DE_1DB6", frozenset({"CUSTOM_BIG"}))}
    assert query_of(asked, pci_aliases=aliases) == (
        f"group_policy=none&{BASE}&resourcesreq-0=CUSTOM_PCI_10DE_1DB6:1&requiredreq-0=CUSTOM_BIG"
        "&resourcesreq-1=CUSTOM_PCI_10DE_1DB6:1&requiredreq-1=CUSTOM_BIG"
    )


def test_an_alias_of_the_flavor_asks_the_same_every_time() -> None:
    asked = spec({"pci_passthrough:alias": "gpu:2,nic"})
    aliases = {"gpu": PciAlias("PGPU"), "nic": PciAlias("SRIOV_NET_VF")}
    assert query_of(asked, pci_aliases=aliases) == query_of(asked, pci_aliases=aliases)
    assert request_of(asked, pci_aliases=aliases).total("PGPU") == 2


def test_an_unknown_alias_is_refused_with_those_there_are() -> None:
    asked = spec({"pci_passthrough:alias": "gpu"})
    with pytest.raises(InvalidRequest, match="big, small"):
        request_of(asked, pci_aliases={"small": PciAlias("A"), "big": PciAlias("B")})


def test_a_port_of_the_old_form_is_one_group_named_after_it() -> None:
    groups, subtrees = groups_of_port(
        PORT, {"resources": {"NET_BW_IGR_KILOBIT_PER_SEC": 5}, "required": ["CUSTOM_PHYSNET"]}
    )
    assert [group.requester_id for group in groups] == [PORT]
    assert not subtrees
    assert binding_allocation(PORT, {"resources": {}}, {PORT: ["rp"]}) == "rp"


def test_a_port_of_the_extended_form_is_a_group_per_id_in_one_subtree() -> None:
    request = {
        "request_groups": [
            {"id": "bw", "resources": {"NET_BW_IGR_KILOBIT_PER_SEC": 5}, "required": []},
            {"id": "pps", "resources": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 1}},
        ],
        "same_subtree": ["bw", "pps"],
    }
    groups, subtrees = groups_of_port(PORT, request)
    assert [group.requester_id for group in groups] == ["bw", "pps"]
    assert subtrees == {frozenset({"bw", "pps"})}
    assert binding_allocation(PORT, request, {"bw": ["a"], "pps": ["b"]}) == {"bw": "a", "pps": "b"}


def test_a_claim_that_lacks_a_group_of_the_port_is_no_binding() -> None:
    with pytest.raises(InvalidRequest, match="a provider for every group of port"):
        binding_allocation(PORT, {"resources": {}}, {"other": ["rp"]})


def test_equal_requests_give_equal_strings_whatever_the_order() -> None:
    asked = {"resources_B:VGPU": "1", "resources_A:FPGA": "1"}
    asked |= {"trait:B": "required", "trait:A": "required"}
    assert query_of(spec(asked)) == query_of(spec(dict(reversed(asked.items()))))
