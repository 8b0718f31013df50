"""Slices of a GPU as units: a claim names their uuids, and no guest shows which it has."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import MigDevice
from compute_agent.errors import AssignedResourceNotFound, ComputeResourcesUnavailable
from compute_agent.virt.driver import InstanceDevices
from tests.unit.claims.claiming import ONE, TWO, Host

SMALL, BIG = "CUSTOM_MIG_1G_10GB", "CUSTOM_MIG_3G_40GB"
SLICES = (
    MigDevice("MIG-big", "3g.40gb", 1, 0, start=0, size=4),
    MigDevice("MIG-last", "1g.10gb", 7, 0, start=6, size=1),
    MigDevice("MIG-first", "1g.10gb", 9, 0, start=4, size=1),
)


def cut(host: Host, *slices: MigDevice) -> None:
    gpu = replace(host.driver.machine.gpus[0], mdev_types=(), mig_enabled=True, mig_devices=slices)
    host.driver.machine = replace(host.driver.machine, gpus=(gpu,))
    host.driver.update_provider_tree(host.tree, "h")


@pytest.fixture
def host(tmp_path) -> Host:
    """A host whose GPU is cut into three slices."""
    host = Host(tmp_path)
    gpu = replace(host.driver.options.gpu, mig_classes=True)
    host.driver.options = replace(host.driver.options, gpu=gpu)
    cut(host, *SLICES)
    return host


def test_a_claim_names_the_uuid_of_the_slice(host):
    assert host.claim(ONE, **{SMALL: 1, BIG: 1}) == ["MIG-first", "MIG-big"]
    assert host.claim(TWO, **{SMALL: 1}) == ["MIG-last"]


def test_a_slice_is_given_once(host):
    host.claim(ONE, **{BIG: 1})
    with pytest.raises(ComputeResourcesUnavailable, match="1 CUSTOM_MIG_3G_40GB"):
        host.claim(TWO, **{BIG: 1})


def test_a_guest_that_shows_no_slice_differs_in_nothing(host):
    host.claim(ONE, **{SMALL: 1})
    host.driver.spawn(ONE, devices=InstanceDevices())
    uuid = host.provider(SMALL)
    assert host.book.differences("h", {uuid: {ONE: {SMALL: 1}}}) == {}


def test_slices_that_are_cut_again_in_the_same_places_are_the_same(host):
    host.claim(ONE, **{SMALL: 1})
    ids = (replace(piece, gpu_instance=20 - piece.gpu_instance) for piece in reversed(SLICES))
    cut(host, *ids)
    host.restart()
    host.book.check_assigned("h")
    assert host.claim(TWO, **{SMALL: 1}) == ["MIG-last"]


def test_a_start_without_a_slice_that_was_given_is_refused_with_its_uuid(host):
    host.claim(ONE, **{SMALL: 1})
    cut(host, *SLICES[:2])
    host.restart()
    with pytest.raises(AssignedResourceNotFound, match=r"CUSTOM_MIG_1G_10GB MIG-first of"):
        host.book.check_assigned("h")
