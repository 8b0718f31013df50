"""Numbers of requests of a pass, which are the load that a fleet puts on placement."""

import uuid as uuidlib

import pytest

from tests.functional.report.claims import claim
from tests.functional.report.layouts import large, small

# Whatever depends on the client alone is not repeated against the slow published server.
only_ours = pytest.mark.parametrize("placement", ["ours"], indirect=True)


def test_the_first_start_of_a_large_host_takes_99_requests(host):
    host.report(large(host.name, host.tag))
    assert host.tally.requests == 99
    assert host.tally.failed_count == 0
    assert host.tally.by_call["POST /reshaper"] == 1


@only_ours
def test_the_first_start_without_bulk_inventories_takes_140_requests(host):
    host.restart(bulk_inventories=False)
    host.report(large(host.name, host.tag))
    assert host.tally.requests == 140
    assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 43


def test_a_quiet_pass_is_one_request_and_no_write(host):
    lay_out = large(host.name, host.tag)
    host.report(lay_out)
    for _ in range(3):
        assert host.report(lay_out).steps == ()
        assert host.requests == [f"GET /resource_providers?in_tree={host.root}"]


def test_one_changed_inventory_takes_two_requests(host):
    host.report(large(host.name, host.tag))
    host.report(large(host.name, host.tag, disk=101))
    assert [request.split("?")[0] for request in host.requests] == [
        "GET /resource_providers",
        f"PUT /resource_providers/{host.root}/inventories",
    ]


def test_a_busy_host_costs_one_request_more_in_every_second_pass(host, other):
    """Its root may have joined an aggregate."""
    host.report(small(host.name))
    requests = []
    for _ in range(4):
        claim(other, host.root, {"VCPU": 1})
        host.report(small(host.name))
        requests.append(host.tally.requests)
    assert sorted(requests) == [1, 1, 2, 2]


@only_ours
def test_a_restart_with_nothing_changed_takes_one_request(host):
    lay_out = large(host.name, host.tag)
    host.report(lay_out)
    host.restart()
    host.report(lay_out)
    assert host.tally.requests == 1


@only_ours
def test_a_restart_without_the_cache_reads_each_provider_once(host):
    lay_out = large(host.name, host.tag)
    host.report(lay_out)
    host.restart(cache=False)
    host.report(lay_out)
    assert host.tally.requests == 136
    assert host.tally.writes == 0


@only_ours
def test_a_restart_reads_only_what_moved_meanwhile(host, other):
    lay_out = large(host.name, host.tag)
    host.report(lay_out)
    claim(other, host.root, {"DISK_GB": 1})
    host.restart()
    host.report(lay_out)
    assert host.tally.requests == 1 + 3


@only_ours
def test_an_association_refresh_reads_only_what_moved(host, other, clock):
    lay_out = large(host.name, host.tag)
    host.report(lay_out)
    clock.now += 400
    host.report(lay_out)
    assert host.tally.requests == 1
    claim(other, host.root, {"DISK_GB": 1})
    clock.now += 400
    host.report(lay_out)
    assert host.tally.requests == 1 + 3
    host.report(lay_out)
    assert host.tally.requests == 1


@only_ours
def test_no_refresh_happens_when_the_interval_is_zero(host, other, clock):
    host.restart(association_refresh=0)
    host.report(small(host.name))
    claim(other, host.root, {"VCPU": 1})
    clock.now += 1e6
    host.report(small(host.name))
    assert host.tally.requests == 1


@only_ours
def test_a_refresh_of_a_tree_in_aggregates_takes_one_request_more(host, other, clock):
    host.report(small(host.name))
    other.change_aggregates(host.root, add=[str(uuidlib.uuid4())])
    clock.now += 400
    host.report(small(host.name))
    assert host.tally.requests == 1 + 3 + 1
    clock.now += 400
    host.report(small(host.name))
    assert host.tally.requests == 1 + 1


@only_ours
def test_every_twelfth_refresh_reads_the_aggregates_of_all(host, clock):
    host.report(small(host.name))
    counts = []
    for _ in range(12):
        clock.now += 400
        host.report(small(host.name))
        counts.append(host.tally.requests)
    assert sum(counts) == 12 + 2
    assert set(counts) == {1, 3}


def test_one_conflict_with_a_claim_costs_two_requests(host, other):
    host.report(small(host.name))

    def claim_before_write(method, path, body):
        if method == "PUT" and path.endswith("/inventories") and host.transport.before:
            host.transport.before = None
            claim(other, host.root, {"VCPU": 1})

    host.transport.before = claim_before_write
    host.report(small(host.name, vcpus=9))
    assert [request.split("/")[-1].split("?")[0] for request in host.requests] == [
        "resource_providers",
        "inventories",
        "inventories",
        "inventories",
    ]
    assert host.tally.failed_count == 1


def test_starting_with_a_reshape_of_a_large_host_takes_149_requests(host, other):
    flat = large(host.name, host.tag, flat=True)
    host.report(flat)
    consumers = [claim(other, host.root, {"VGPU": 1, "VCPU": 1}) for _ in range(16)]
    consumers += [claim(other, host.root, {"DISK_GB": 1}) for _ in range(34)]
    host.report(flat, fresh=True)
    host.restart()
    lay_out = large(host.name, host.tag)
    with host.client.tracing() as tally:
        base = host.client.get_provider_tree_and_ensure_root(host.root, host.name, fresh=True)
        allocations = host.client.get_allocations_for_provider_tree(host.root)
        assert set(allocations) == set(consumers)
        new = base.snapshot()
        lay_out(new)
        for number, consumer in enumerate(consumers[:16]):
            cell, gpu = number % 2, number // 2 % 4
            numa = new.data(f"{host.name}_NUMA{cell}").uuid
            held = allocations[consumer]["allocations"]
            del held[host.root]
            held[numa] = {"resources": {"VCPU": 1}}
            held[new.data(f"{host.name}_NUMA{cell}_GPU{gpu}").uuid] = {"resources": {"VGPU": 1}}
        host.client.update_from_provider_tree(base, new, allocations=allocations)
    sent = next(e for e in host.transport.exchanges if e.request.path == "/reshaper")
    assert set(sent.request.json["allocations"]) == set(consumers[:16])
    assert tally.requests == 149
    assert tally.failed_count == 0
    host.report(lay_out)
    assert host.tally.requests == 1
