"""Prefilters, which narrow a request before placement is asked."""

from __future__ import annotations

from typing import Any

import os_traits
import pytest
from msgspec.structs import replace

from compute_agent.errors import InvalidConfiguration
from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import (
    Destination,
    Image,
    RequestedGroup,
    RequestedNetwork,
    RequestSpec,
)
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.fleet import aggregates
from compute_agent.scheduler.fleet.aggregates import Aggregate, Aggregates
from compute_agent.scheduler.search import prefilters
from compute_agent.scheduler.search.prefilters import PrefilterContext
from tests.unit.scheduler.specs import request_of, spec

ZONE = "11111111-1111-1111-1111-111111111111"
MINE = "22222222-2222-2222-2222-222222222222"
FAST = "33333333-3333-3333-3333-333333333333"
KNOWN = Aggregates(
    (
        Aggregate(ZONE, metadata={"availability_zone": "az1"}),
        Aggregate(MINE, metadata={"filter_tenant_id2": "project"}),
        Aggregate(FAST, metadata={"trait:CUSTOM_FAST": "required"}),
    )
)
CONTEXT = PrefilterContext(aggregates=KNOWN, known_traits=frozenset(os_traits.get_traits()))
NOT_DISABLED = "root_required=!COMPUTE_STATUS_DISABLED&"
BASE = "resources=DISK_GB:10,MEMORY_MB:512,VCPU:2"


def narrowed(asked: RequestSpec, **options: Any) -> str:
    return prefilters.apply(asked, request_of(asked), replace(CONTEXT, **options)).plain().query()


@pytest.mark.parametrize(("zone", "member_of"), [("az1", "in"), ("nova", "!in")])
def test_a_zone_becomes_its_aggregates_and_the_default_one_none_of_them(
    zone: str, member_of: str
) -> None:
    asked = spec(availability_zone=zone)
    assert narrowed(asked) == f"{NOT_DISABLED}{BASE}&member_of={member_of}:{ZONE}"


def test_a_zone_that_no_aggregate_makes_up_has_no_host() -> None:
    with pytest.raises(NoValidHost, match="availability zone az9"):
        narrowed(spec(availability_zone="az9"))


def test_a_zone_binds_every_group_where_there_is_no_unsuffixed_one() -> None:
    asked = spec(
        vcpus=0,
        memory_mb=0,
        root_gb=0,
        availability_zone="az1",
        requested_groups=(
            RequestedGroup("A", RequestGroup({"VCPU": 1})),
            RequestedGroup("B", RequestGroup({"VGPU": 1})),
        ),
    )
    query = narrowed(asked)
    assert f"member_ofA=in:{ZONE}" in query
    assert f"member_ofB=in:{ZONE}" in query


def test_a_project_is_kept_to_its_aggregates_when_asked_to() -> None:
    assert f"member_of=in:{MINE}" in narrowed(spec(), tenant_aggregates=True)
    assert "member_of" not in narrowed(spec())


def test_a_project_without_aggregate_may_go_everywhere_unless_one_is_required() -> None:
    other = replace(spec(), project_id="other")
    assert "member_of" not in narrowed(other, tenant_aggregates=True)
    with pytest.raises(NoValidHost, match="project other"):
        narrowed(other, tenant_aggregates=True, tenant_aggregate_required=True)


def test_aggregates_for_a_trait_that_is_not_asked_for_are_avoided() -> None:
    assert f"member_of=!in:{FAST}" in narrowed(spec(), isolated_aggregates=True)
    asked = spec({"trait:CUSTOM_FAST": "required"})
    assert "member_of" not in narrowed(asked, isolated_aggregates=True)


def test_a_destination_names_aggregates_to_be_in_and_out_of() -> None:
    asked = spec(
        destination=Destination(
            aggregates=frozenset({frozenset({ZONE})}), forbidden_aggregates=frozenset({FAST})
        )
    )
    query = narrowed(asked)
    assert query.endswith(f"&member_of=in:{ZONE}&member_of=!in:{FAST}")


def test_the_image_type_is_asked_of_the_root_when_asked_to() -> None:
    asked = replace(spec(), image=Image(disk_format="qcow2"))
    assert "COMPUTE_IMAGE_TYPE_QCOW2" in narrowed(asked, image_type=True)
    assert "COMPUTE_IMAGE_TYPE_QCOW2" not in narrowed(asked)
    for other in (replace(asked, is_bfv=True), replace(asked, image=Image(disk_format="cow"))):
        assert "IMAGE_TYPE" not in narrowed(other, image_type=True)


@pytest.mark.parametrize(
    ("name", "value", "trait"),
    [
        ("hw_disk_bus", "virtio", "COMPUTE_STORAGE_BUS_VIRTIO"),
        ("hw_cdrom_bus", "sata", "COMPUTE_STORAGE_BUS_SATA"),
        ("hw_vif_model", "e1000e", "COMPUTE_NET_VIF_MODEL_E1000E"),
        ("hw_vif_model", "spapr-vlan", "COMPUTE_NET_VIF_MODEL_SPAPR_VLAN"),
        ("hw_video_model", "qxl", "COMPUTE_GRAPHICS_MODEL_QXL"),
        ("hw_architecture", "aarch64", "HW_ARCH_AARCH64"),
        ("hw_emulation_architecture", "aarch64", "COMPUTE_ARCH_AARCH64"),
        ("hw_viommu_model", "intel", "COMPUTE_VIOMMU_MODEL_INTEL"),
    ],
)
def test_an_image_property_is_asked_of_the_root_when_asked_to(
    name: str, value: str, trait: str
) -> None:
    asked = spec(properties={name: value})
    assert trait in narrowed(asked, image_metadata=True)
    assert trait not in narrowed(asked)


def test_a_property_without_a_trait_does_not_cost_the_others() -> None:
    asked = spec(properties={"hw_disk_bus": "virtio", "hw_viommu_model": "unheard-of"})
    query = narrowed(asked, image_metadata=True)
    assert "COMPUTE_STORAGE_BUS_VIRTIO" in query
    assert "UNHEARD" not in query


@pytest.mark.parametrize(
    ("extra_specs", "traits"),
    [
        ({"accel:device_profile": "fpga"}, ["COMPUTE_ACCELERATORS"]),
        ({"hw:virtio_packed_ring": "true"}, ["COMPUTE_NET_VIRTIO_PACKED"]),
        ({"hw:ephemeral_encryption": "true"}, ["COMPUTE_EPHEMERAL_ENCRYPTION"]),
        (
            {"hw:ephemeral_encryption": "true", "hw:ephemeral_encryption_format": "luks"},
            ["COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"],
        ),
        ({"hw:sound_model": "virtio"}, ["COMPUTE_SOUND_MODEL_VIRTIO"]),
    ],
)
def test_an_ability_that_the_flavor_implies_is_asked_of_the_root(
    extra_specs: dict[str, str], traits: list[str]
) -> None:
    wanted = ",".join([*traits, "!COMPUTE_STATUS_DISABLED"])
    assert narrowed(spec(extra_specs)).startswith(f"root_required={wanted}&")


def test_a_remote_managed_port_needs_a_host_that_has_them() -> None:
    asked = spec(requested_networks=(RequestedNetwork(remote_managed=True),))
    assert "COMPUTE_REMOTE_MANAGED_PORTS" in narrowed(asked)


def test_a_routed_network_keeps_to_the_aggregates_of_its_segments() -> None:
    asked = spec(requested_networks=(RequestedNetwork(), RequestedNetwork(frozenset({ZONE}))))
    assert narrowed(asked, routed_networks=True).endswith(f"&member_of=in:{ZONE}")
    assert "member_of" not in narrowed(asked)


def test_an_encryption_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="plain or luks"):
        narrowed(spec({"hw:ephemeral_encryption": "1", "hw:ephemeral_encryption_format": "rot13"}))


def test_aggregates_are_read_from_a_file(tmp_path: Any) -> None:
    file = tmp_path / "aggregates.yaml"
    file.write_text(
        f"- uuid: {ZONE}\n  name: rack1\n  hosts: [h1, h2]\n  metadata: {{availability_zone: a}}\n"
    )
    loaded = aggregates.load(str(file))
    assert loaded.where("availability_zone", "a") == {ZONE}
    assert [aggregate.name for aggregate in loaded.of_host("h1")] == ["rack1"]
    assert loaded.of_host("h3") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uuid: a", "expected a list of aggregates"),
        ("- name: rack1", "aggregate 0"),
        ("- uuid: rack1", "expected a uuid"),
        ("- [", "is not YAML, line 1"),
        ("- 2024-02-30", "cannot be read: day is out of range"),
        ("- !!bool perhaps", "cannot be read: 'perhaps'"),
    ],
)
def test_a_file_of_aggregates_that_cannot_be_used_is_named(
    tmp_path: Any, text: str, message: str
) -> None:
    file = tmp_path / "aggregates.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfiguration, match=message) as caught:
        aggregates.load(str(file))
    assert str(file) in str(caught.value)
    assert "aggregate_source" in str(caught.value)
