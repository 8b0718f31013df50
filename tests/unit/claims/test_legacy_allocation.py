"""Allocations that a host makes by itself, while schedulers do not claim yet."""

import uuid

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.agent import claim_messages
from compute_agent.claims.checks import ClaimRequest
from compute_agent.provider_tree import SHARING_TRAIT
from tests.unit.claims.claiming import ONE, OTHER_HOST, ROOT, TWO


def test_during_an_upgrade_the_host_allocates_what_the_caller_names(host):
    host.claims_by_itself()
    wanted = {host.provider("PCPU"): {"PCPU": 2}}
    claim = host.assigner.claim(ClaimRequest(ONE, wanted, project="p", user="u"))
    assert host.report.held[ONE] == wanted
    assert len(claim.units) == 2
    assert host.report.asked[-1] == f"claim {ONE} p u (1, 38)"
    again = host.assigner.claim(ClaimRequest(ONE, wanted))
    assert again.units == claim.units


def test_during_an_upgrade_the_host_allocates_on_its_root_what_the_flavor_says(host):
    host.claims_by_itself()
    host.tree.update_inventory(ROOT, {"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}})
    flavor = {"vcpus": "2", "memory_mb": 512, "root_gb": 5, "ephemeral_gb": 1, "swap": 1025}
    spec = {"instance_uuid": ONE, "flavor": flavor, "project_id": "p", "user_id": "u"}
    request = claim_messages.request_from(spec, {}, {})
    assert request.needs == {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 8}
    from_volume = claim_messages.request_from({**spec, "is_bfv": True}, {}, {})
    assert from_volume.needs["DISK_GB"] == 3
    host.assigner.claim(request)
    assert host.report.held[ONE] == {ROOT: {"VCPU": 2, "MEMORY_MB": 512}}


def legacy_request(**extra_specs: str) -> ClaimRequest:
    """A claim of an instance that comes without allocation, with extra specs of its flavor."""
    flavor = {"vcpus": 2, "memory_mb": 512, "extra_specs": extra_specs}
    spec = {"instance_uuid": ONE, "flavor": flavor, "project_id": "p", "user_id": "u"}
    return claim_messages.request_from(spec, {}, {})


def test_extra_specs_of_the_flavor_count_in_what_the_host_allocates_by_itself(host):
    host.claims_by_itself()
    host.tree.update_inventory(
        ROOT,
        {"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}, "PCPU": {"total": 2}},
    )
    host.assigner.claim(
        legacy_request(**{"hw:cpu_policy": "dedicated", "resources:MEMORY_MB": "99"})
    )
    assert host.report.held[ONE] == {ROOT: {"PCPU": 2, "MEMORY_MB": 99}}
    with pytest.raises(errors.InvalidInput, match="resources:MEMORY_MB"):
        host.assigner.claim(
            replace(legacy_request(**{"resources:MEMORY_MB": "much"}), instance=TWO)
        )


def test_what_the_root_cannot_give_is_not_left_out_of_what_the_host_allocates(host):
    host.claims_by_itself()
    with pytest.raises(errors.ComputeResourcesUnavailable, match="no MEMORY_MB, VCPU to give"):
        host.assigner.claim(legacy_request())
    assert host.report.held == {}


def test_disk_that_is_shared_is_allocated_on_the_provider_that_shares_it(host):
    host.claims_by_itself()
    pool, aggregate = OTHER_HOST, str(uuid.UUID(int=78))
    host.tree.update_inventory(ROOT, {"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}})
    host.tree.update_aggregates(ROOT, {aggregate})
    for name, rc, shares_with, trait in (
        ("of others", "DISK_GB", str(uuid.UUID(int=79)), SHARING_TRAIT),
        ("host", "DISK_GB", aggregate, "COMPUTE_NODE"),
        ("addresses", "IPV4_ADDRESS", aggregate, SHARING_TRAIT),
        ("pool", "DISK_GB", aggregate, SHARING_TRAIT),
    ):
        host.tree.new_root(name, pool if name == "pool" else str(uuid.uuid4()))
        host.tree.update_inventory(name, {rc: {"total": 100}})
        host.tree.update_aggregates(name, {shares_with})
        host.tree.update_traits(name, {trait})
    request = replace(legacy_request(), needs={"VCPU": 1, "DISK_GB": 5})
    plain = replace(request, spec={})
    host.assigner.claim(plain)
    assert host.report.held[ONE] == {ROOT: {"VCPU": 1}, pool: {"DISK_GB": 5}}


def test_a_host_takes_back_what_it_allocated_by_itself_when_it_refuses_the_instance(host):
    host.claims_by_itself()
    cpus = host.provider("PCPU")
    host.claim(TWO, PCPU=4)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="cannot give"):
        host.assigner.claim(ClaimRequest(ONE, {cpus: {"PCPU": 1}}, project="p", user="u"))
    assert ONE not in host.report.held
    host.report.held[ONE] = {cpus: {"PCPU": 1}}
    with pytest.raises(errors.ComputeResourcesUnavailable, match="cannot give"):
        host.assigner.claim(ClaimRequest(ONE))
    assert host.report.held[ONE], "what a scheduler claimed is the caller's to delete"


def test_during_an_upgrade_too_a_claim_of_the_scheduler_counts(host):
    host.claims_by_itself()
    assert len(host.claim(ONE, PCPU=2)) == 2
    assert not any(asked.startswith("claim") for asked in host.report.asked)


def test_what_cannot_be_allocated_is_refused_during_an_upgrade_too(host):
    host.claims_by_itself()
    with pytest.raises(errors.ComputeResourcesUnavailable, match="neither allocations nor a fla"):
        host.assigner.claim(ClaimRequest(ONE))
    host.report.lacking = "PCPU"
    with pytest.raises(errors.ComputeResourcesUnavailable, match="too little PCPU"):
        host.assigner.claim(ClaimRequest(ONE, {host.provider("PCPU"): {"PCPU": 1}}))
    assert host.book.claims() == []
    with pytest.raises(errors.InvalidInput, match=r"spec\.flavor\.vcpus is 'many'"):
        claim_messages.request_from({"instance_uuid": ONE, "flavor": {"vcpus": "many"}}, {}, {})
