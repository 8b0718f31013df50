"""Rebuilding an instance where it is, over real HTTP: nothing is claimed, the image is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.conftest import Cloud
from tests.functional.scheduler.schedulers import scheduler
from tests.unit.scheduler.specs import spec


def rebuilding(**fields: Any) -> RequestSpec:
    return spec(scheduler_hints={"_nova_check_type": ("rebuild",)}, **fields)


@pytest.fixture
def instance(cloud: Cloud, config: Path) -> str:
    """An instance on a host whose root gives nothing, disabled since it came there."""
    root, _ = cloud.nested_host(4, root_traits=("COMPUTE_NODE",))
    new = new_uuid()
    asked = spec({"root_required": cloud.mark}, memory_mb=64, root_gb=0)
    scheduler(config)[0].select_destinations(asked, [new])
    traits = [cloud.mark, "COMPUTE_NODE", "COMPUTE_STATUS_DISABLED"]
    path = f"/resource_providers/{root}/traits"
    generation = cloud.call("GET", path)["resource_provider_generation"]
    cloud.call("PUT", path, json={"resource_provider_generation": generation, "traits": traits})
    return new


def test_a_rebuild_claims_nothing_and_stays_on_a_disabled_host(
    cloud: Cloud, config: Path, instance: str
) -> None:
    before = cloud.held(instance)
    chooser, transport = scheduler(config)
    [[selection]] = chooser.select_destinations(rebuilding(), [instance])
    assert cloud.held(instance) == before
    assert transport.writes == []
    assert not any("allocation_candidates" in path for path in transport.requests)
    assert selection.nodename == f"p-{selection.compute_node_uuid}"
    assert set(before) == set(json.loads(selection.allocation_request)["allocations"])


@pytest.mark.parametrize(
    ("trait", "fits"), [("HW_NUMA_ROOT", True), ("COMPUTE_NODE", True), ("HW_CPU_X86_AVX", False)]
)
def test_a_trait_of_the_new_image_must_be_on_a_provider_in_use(
    config: Path, instance: str, trait: str, fits: bool
) -> None:
    asked = rebuilding(properties={f"trait:{trait}": "required"})
    chooser, _ = scheduler(config)
    if fits:
        assert chooser.select_destinations(asked, [instance])
        return
    with pytest.raises(NoValidHost, match=f"lack the traits {trait}"):
        chooser.select_destinations(asked, [instance])


def test_only_filters_that_are_for_rebuilds_run(config: Path, instance: str) -> None:
    chooser, _ = scheduler(config)
    announcements = Announcements()
    chooser._search._announcements = announcements
    [[selection]] = chooser.select_destinations(rebuilding(), [instance])
    node = {
        "uuid": selection.compute_node_uuid,
        # ComputeFilter would drop it, and is not for rebuilds
        "enabled": False,
        "supported_instances": [["x86_64", "kvm", "hvm"]],
    }
    announcements.receive({"host": "h", "nodes": [node]})
    assert chooser.select_destinations(rebuilding(), [instance])
    with pytest.raises(NoValidHost, match="ImagePropertiesFilter dropped"):
        chooser.select_destinations(rebuilding(properties={"img_hv_type": "xen"}), [instance])


def test_an_instance_that_is_nowhere_cannot_be_rebuilt(config: Path) -> None:
    with pytest.raises(MoveRefused, match="on 0 hosts"):
        scheduler(config)[0].select_destinations(rebuilding(), [new_uuid()])
