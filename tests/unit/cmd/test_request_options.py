"""The options of `compute-scheduler claim`, and the specification read by `select`."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.request import spec_reader
from compute_agent.request.errors import InvalidRequest
from tests.fixtures.claim_options import spec_of_options
from tests.unit.scheduler.specs import query_of

AGGREGATE = "11111111-1111-1111-1111-111111111111"
INSTANCE = "22222222-2222-2222-2222-222222222222"


def query(**words: Any) -> str:
    return query_of(spec_of_options(**words))


def test_options_become_the_groups_they_name() -> None:
    assert query(
        resources=["VCPU=2,MEMORY_MB=512", "DISK_GB=1"],
        group=["GPU:VGPU=1", "_NIC:SRIOV_NET_VF=2"],
        required=["HW_CPU_X86_AVX", "GPU:in:CUSTOM_A,CUSTOM_B", "GPU:CUSTOM_C"],
        forbidden=["_NIC:CUSTOM_OLD"],
        member_of=[AGGREGATE, f"GPU:!{AGGREGATE}"],
        in_tree=[f"GPU:{INSTANCE}"],
        root_required=["COMPUTE_NODE,!CUSTOM_RACK"],
        same_subtree=["GPU,_NIC"],
        group_policy="isolate",
    ) == (
        "group_policy=isolate&root_required=COMPUTE_NODE,!CUSTOM_RACK&same_subtree=GPU,_NIC"
        "&resources=DISK_GB:1,MEMORY_MB:512,VCPU:2&required=HW_CPU_X86_AVX"
        f"&member_of=in:{AGGREGATE}"
        "&resourcesGPU=VGPU:1&requiredGPU=CUSTOM_C&requiredGPU=in:CUSTOM_A,CUSTOM_B"
        f"&member_ofGPU=!in:{AGGREGATE}&in_treeGPU={INSTANCE}"
        "&resources_NIC=SRIOV_NET_VF:2&required_NIC=!CUSTOM_OLD"
    )


def test_amounts_may_be_written_as_in_a_query() -> None:
    in_one, in_other = (
        query(
            resources=[f"VCPU{sign}2,MEMORY_MB{sign}512"],
            group=[f"GPU:VGPU{sign}1"],
        )
        for sign in "=:"
    )
    assert in_one == in_other


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "--resources is ''"),
        ({"resources": ["VCPU"]}, "--resources is 'VCPU': expected CLASS=AMOUNT"),
        ({"resources": ["VCPU=two"]}, "--resources is 'VCPU=two'"),
        ({"resources": ["VCPU=0"]}, "--resources is 'VCPU=0'"),
        ({"resources": ["VCPU=-1"]}, "--resources is 'VCPU=-1'"),
        ({"resources": ["vcpu=1"]}, "--resources is 'vcpu=1'"),
        ({"resources": ["VCPU=1,VCPU=2"]}, "expected VCPU once"),
        ({"group": ["VGPU=1"]}, "--group is 'VGPU=1': expected SUFFIX:CLASS=AMOUNT"),
        ({"group": ["G P:VGPU=1"]}, "--group is 'G P:VGPU=1': expected SUFFIX:VALUE"),
        ({"resources": ["VCPU=1"], "required": ["avx"]}, "--required is 'avx'"),
        ({"resources": ["VCPU=1"], "forbidden": ["A,,B"]}, "--forbidden is 'A,,B'"),
        (
            {"resources": ["VCPU=1"], "member_of": ["rack"]},
            "--member-of is 'rack': expected a uuid",
        ),
        ({"resources": ["VCPU=1"], "in_tree": ["host"]}, "--in-tree is 'host': expected a uuid"),
        ({"resources": ["VCPU=1"], "root_required": ["!"]}, "--root-required"),
        ({"resources": ["VCPU=1"], "same_subtree": ["A,"]}, "--same-subtree is 'A,'"),
        ({"resources": ["VCPU=1"], "type": "vm"}, "--type is 'vm'"),
        ({"resources": ["VCPU=1"], "host": ""}, "--host is '': expected the name of a host"),
    ],
)
def test_bad_input_names_option_value_and_what_was_expected(
    words: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        spec_of_options(**words)
    assert message in str(caught.value)


def test_a_group_that_is_only_named_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequest, match=r"resources of group GPV is \{\}"):
        query(resources=["VCPU=1"], group=["GPU:VGPU=1"], required=["GPV:CUSTOM_A"])


SPEC = {
    "instance_uuid": INSTANCE,
    "project_id": "p",
    "user_id": "u",
    "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {"resources:VGPU": 1}},
}


def test_a_specification_is_read_field_by_field() -> None:
    read = spec_reader.read_spec(
        {
            **SPEC,
            "image": {"id": "i", "properties": {"hw_cpu_policy": "dedicated"}},
            "availability_zone": "az",
            "requested_destination": {"host": "h", "aggregates": [f"{AGGREGATE},{INSTANCE}"]},
            "ignore_hosts": ["a"],
            "retry": {"num_attempts": 1, "hosts": [["h", "n"]]},
            "instance_group": {"policy": "affinity", "hosts": ["x"], "members": [INSTANCE]},
            "requested_resources": [
                {
                    "requester_id": "dev",
                    "resources": {"FPGA": 1},
                    "required_traits": ["CUSTOM_A", ["CUSTOM_B", "CUSTOM_C"]],
                    "forbidden_traits": ["CUSTOM_D"],
                }
            ],
            "request_level_params": {"root_required": ["COMPUTE_NODE"], "same_subtree": [["dev"]]},
            "requested_networks": [
                {"port_id": "port", "resource_request": {"resources": {"NET_PACKETS": 3}}}
            ],
            "scheduler_hints": {"same_host": INSTANCE, "query": ["[]"]},
            "unknown_to_us": {"x": 1},
        }
    )
    assert read.destination.aggregates == {frozenset({AGGREGATE, INSTANCE})}
    assert read.retried_hosts == {"n"}
    assert read.hint("same_host") == (INSTANCE,)
    assert read.instance_group is not None
    assert read.instance_group.members == {INSTANCE}
    assert query_of(read) == (
        "group_policy=none&root_required=COMPUTE_NODE&same_subtree=dev"
        "&resources=MEMORY_MB:64,PCPU:1,VGPU:1"
        "&resourcesdev=FPGA:1&requireddev=CUSTOM_A,!CUSTOM_D&requireddev=in:CUSTOM_B,CUSTOM_C"
        "&resourcesport=NET_PACKETS:3"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"project_id": None}, "project_id is None"),
        ({"flavor": {"vcpus": "many"}}, "flavor.vcpus is 'many': expected a whole number"),
        ({"flavor": {"vcpus": True}}, "flavor.vcpus is True"),
        ({"flavor": {"extra_specs": ["a"]}}, "flavor.extra_specs is ['a']"),
        ({"flavor": []}, "flavor is []: expected an object"),
        ({"is_bfv": "yes"}, "is_bfv is 'yes': expected true or false"),
        ({"ignore_hosts": "a"}, "ignore_hosts is 'a': expected a list"),
        (
            {"requested_resources": [{"resources": {"fpga": 1}}]},
            "requested_resources[0].resources.fpga",
        ),
        (
            {"requested_destination": {"aggregates": ["rack"]}},
            "requested_destination.aggregates is 'rack': expected a uuid",
        ),
        (
            {"requested_networks": [{"port_id": "x", "resource_request": {"a": 1}}]},
            "resource_request of port x",
        ),
        (
            {
                "requested_networks": [
                    {"port_id": "x", "resource_request": {"resources": {"VCPU": "many"}}}
                ]
            },
            "resource_request of port x: VCPU is 'many'",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_named_by_its_path(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        spec_reader.read_spec({**SPEC, **change})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "instance_uuid is None"),
        ({"instance_uuid": "x"}, "expected a uuid"),
        ({"instance_uuids": [INSTANCE, INSTANCE]}, "each instance once"),
        ({"instance_uuid": INSTANCE, "num_instances": 2}, "num_instances is 2: expected 1"),
    ],
)
def test_instances_are_named_once_each(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        spec_reader.instances_of(body)
