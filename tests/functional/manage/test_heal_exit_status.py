"""Exit status of `heal_allocations` when not everything was healed, one for each reason."""

import json
import uuid
from collections.abc import Callable

import pytest

from tests.functional.manage.conftest import Answer, Operator, refusing
from tests.functional.manage.described_instances import (
    FLAVOR,
    NEED,
    described,
    flat_host,
    instance,
    nested_host,
)

pytestmark = pytest.mark.waiting


def test_1_when_the_bound_is_reached_and_there_is_more(offline: Operator) -> None:
    flat_host(offline.placement)
    file = described(offline, *(instance("flat") for _ in range(3)))
    healed = [offline.run("heal_allocations", file, "--max-count=1").status for _ in range(4)]
    assert healed == [1, 1, 0, 4]


def test_2_for_an_instance_without_compute_node_and_the_others_are_healed(
    offline: Operator,
) -> None:
    root = flat_host(offline.placement)
    lost, fine = instance("nowhere"), instance("flat")
    result = offline.run("heal_allocations", described(offline, lost, fine), status=2)
    assert lost["uuid"] in result.err
    assert "nowhere" in result.err
    assert offline.placement.held(fine["uuid"]) == {root: NEED}


def test_3_names_provider_and_class_when_the_host_is_full(offline: Operator) -> None:
    root = flat_host(offline.placement, VCPU=4)
    offline.placement.claim({root: {"VCPU": 3}})
    guest = instance("flat")
    result = offline.run("heal_allocations", described(offline, guest), status=3)
    assert "flat" in result.err
    assert "1 of 4 VCPU left, and 2 are needed" in result.err
    assert offline.placement.held(guest["uuid"]) == {}


def test_3_also_when_placement_is_asked_all_the_same_for_it_raises_no_ratio(
    offline: Operator,
) -> None:
    root = flat_host(offline.placement, VCPU=4)
    offline.placement.claim({root: {"VCPU": 3}})
    guest = instance("flat")
    result = offline.run("heal_allocations", described(offline, guest), "--force-overcommit")
    assert result.status == 3
    assert "no room for VCPU on flat" in result.err
    assert root in result.err
    assert offline.placement.held(guest["uuid"]) == {}


def test_3_when_the_cell_that_the_guest_is_on_is_full_though_another_is_not(
    offline: Operator,
) -> None:
    _root, zero, _one = nested_host(offline.placement)
    offline.placement.claim({zero: {"VCPU": 4}})
    guest = instance("nested", devices={"cells": [{"cell": 0, "vcpus": 2, "memory_mib": 512}]})
    result = offline.run("heal_allocations", described(offline, guest), status=3)
    assert "VCPU" in result.err
    assert "nested_NUMA0" in result.err
    assert offline.placement.held(guest["uuid"]) == {}


def test_3_when_placement_refuses_to_write(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    flat_host(offline.placement)
    answering(refusing("PUT", "", 403))
    assert offline.run("heal_allocations", described(offline, instance("flat"))).status == 3


def test_3_when_placement_goes_away_and_what_was_healed_is_said(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    flat_host(offline.placement)
    first, second = instance("flat"), instance("flat")
    answering(refusing("GET", f"/allocations/{second['uuid']}", 503))
    result = offline.run("heal_allocations", described(offline, first, second), "--json", status=3)
    assert [outcome["instance"] for outcome in result.document["outcomes"]] == [first["uuid"]]
    assert "503" in result.document["failure"]


def test_8_for_accelerators_and_never_for_a_vgpu(offline: Operator) -> None:
    root = flat_host(offline.placement)
    card = offline.placement.new_provider("card", {"VGPU": 1}, (), root)
    profile = FLAVOR | {"extra_specs": {"accel:device_profile": "fpga"}}
    result = offline.run("heal_allocations", described(offline, instance("flat", flavor=profile)))
    assert result.status == 8
    vgpu = instance("flat", flavor=FLAVOR | {"extra_specs": {"resources:VGPU": "1"}})
    assert offline.run("heal_allocations", described(offline, vgpu)).status == 0
    assert offline.placement.held(vgpu["uuid"])[card] == {"VGPU": 1}


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "no uuid",
        json.dumps({"uuid": str(uuid.uuid4()), "host": "flat"}),
        json.dumps(instance("flat", flavor={"vcpus": "many"})),
        json.dumps(instance("flat", devices={"pci_addresses": ["nowhere"]})),
    ],
    ids=["no uuid", "no JSON", "no owner", "wrong flavor", "wrong address"],
)
def test_127_for_a_line_that_is_not_understood_and_nothing_is_changed(
    offline: Operator, line: str
) -> None:
    flat_host(offline.placement)
    before = offline.dump()
    result = offline.run("heal_allocations", described(offline, instance("flat"), line), status=127)
    assert "line 2" in result.err
    assert offline.dump() == before


@pytest.mark.parametrize("source", ["agents", "file"])
def test_127_with_a_way_out_when_nobody_knows_the_flavors(offline: Operator, source: str) -> None:
    offline.configure(compute_agent={"instance_source": source})
    result = offline.run("heal_allocations", status=127)
    assert "--instances" in result.err
