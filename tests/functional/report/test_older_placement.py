"""Placements that offer less than the newest microversion, down to the oldest that can reshape."""

import uuid as uuidlib

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Microversion
from compute_agent.testing.transports import RecordingTransport
from tests.functional.either_placement import OlderPlacement
from tests.functional.report.claims import held_by
from tests.functional.report.gpu_move import assert_done, guests_of, reshape
from tests.functional.report.layouts import small


@pytest.fixture(params=[(1, 30), (1, 36), (1, 37)], ids=lambda newest: f"1.{newest[1]}")
def newest(request) -> Microversion:
    return request.param


@pytest.fixture
def old_host(new_host, placement, newest):
    host = new_host()
    host.transport = RecordingTransport(OlderPlacement(placement, newest))
    return host


def test_it_is_reported_to_and_asked_once_in_a_quiet_pass(old_host, newest):
    old_host.report(small(old_host.name))
    assert old_host.client.offered_versions.maximum == newest
    assert old_host.tally.failed_count == 0
    old_host.report(small(old_host.name))
    assert old_host.tally.requests == 1


def test_a_reshape_moves_the_allocations(old_host, other):
    guests = guests_of(old_host, other)
    reshape(old_host, guests)
    assert_done(old_host, other, guests)


def test_claims_moves_and_removals_work(old_host):
    old_host.report(small(old_host.name))
    client = old_host.client
    consumer, migration = str(uuidlib.uuid4()), str(uuidlib.uuid4())
    request = {"allocations": {old_host.root: {"resources": {"VCPU": 2}}}}
    client.placement.allocations.claim_resources(consumer, request, "p", "u", "1.28")
    assert client.placement.allocations.move_allocations(consumer, migration)
    assert held_by(client, migration) == {old_host.root: {"VCPU": 2}}
    client.placement.allocations.remove_resources(migration, {old_host.root: {"VCPU": 1}})
    assert held_by(client, migration) == {old_host.root: {"VCPU": 1}}
    assert client.placement.allocations.delete_allocation(migration)
    assert held_by(client, migration) == {}


def test_moving_a_provider_below_another_works_from_1_37_on_and_is_explained_before(
    old_host, newest
):
    def move(tree):
        small(old_host.name)(tree)
        if not tree.exists(f"{old_host.name}_NUMA0"):
            tree.new_child(f"{old_host.name}_NUMA0", old_host.name)
        tree.move(f"{old_host.name}_GPU0", f"{old_host.name}_NUMA0")

    old_host.report(small(old_host.name))
    if newest >= (1, 37):
        old_host.report(move)
        old_host.report(move)
        assert old_host.tally.requests == 1
        return
    with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
        old_host.report(move)
    (failure,) = failed.value.failures
    assert (failure.aspect, type(failure.error)) == ("reparent", errors.PlacementTooOld)
    assert "1.37" in str(failure.error)
