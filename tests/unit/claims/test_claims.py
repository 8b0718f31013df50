"""Claims on a machine with dedicated CPUs, GPUs that make vGPUs, and functions given whole."""

import uuid
from dataclasses import replace

import pytest

from compute_agent import errors
from compute_agent.agent import claim_messages
from compute_agent.claims.request import ClaimRequest
from compute_agent.claims.units import holdings
from compute_agent.provider_tree import SHARING_TRAIT
from compute_agent.state.claim import AssignedUnit
from compute_agent.virt.driver import InstanceDevices, MdevUse
from compute_agent.virt.layout.application import MISSING
from tests.unit.claims.claiming import MOVE, ONE, OTHER_HOST, ROOT, TWO, Host


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


def test_a_claim_gets_certain_cpus_functions_and_places_of_the_providers_allocated(host):
    given = host.claim(ONE, VCPU=2, PCPU=2, VGPU=1, CUSTOM_VF=2)
    cell = host.tree.data(host.provider("PCPU"))
    assert cell.name == "h_NUMA0"
    assert sorted(name for name in given if name.isdecimal()) == ["4", "5"]
    functions = [name for name in given if ":" in name and "/" not in name]
    assert len(functions) == 2
    (place,) = [name for name in given if "/" in name]
    assert place.endswith("/0")


def test_two_instances_never_get_the_same_unit(host):
    assert not set(host.claim(ONE, PCPU=2, VGPU=1)) & set(host.claim(TWO, PCPU=2, VGPU=1))


def test_a_claim_asks_placement_for_the_consumer_and_nothing_else_and_asks_again_gives_the_same(
    host,
):
    first = host.claim(ONE, PCPU=2)
    assert host.report.asked == [f"consumer {ONE}"]
    assert host.claim(ONE, PCPU=2) == first
    assert host.claim(TWO, PCPU=2) == ["6", "7"]


def test_without_allocation_there_is_no_claim(host):
    request = ClaimRequest(ONE, {host.provider("PCPU"): {"PCPU": 1}})
    with pytest.raises(errors.ComputeResourcesUnavailable, match="holds no allocation"):
        host.book.claim(request)
    host.report.held[ONE] = {OTHER_HOST: {"PCPU": 1}}
    with pytest.raises(errors.ComputeResourcesUnavailable, match="on other hosts"):
        host.book.claim(request)
    assert host.book.claims() == []


def test_during_an_upgrade_the_host_allocates_what_the_caller_names(host):
    host.claims_by_itself()
    wanted = {host.provider("PCPU"): {"PCPU": 2}}
    claim = host.book.claim(ClaimRequest(ONE, wanted, project="p", user="u"))
    assert host.report.held[ONE] == wanted
    assert len(claim.units) == 2
    assert host.report.asked[-1] == f"claim {ONE} p u (1, 38)"
    again = host.book.claim(ClaimRequest(ONE, wanted))
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
    host.book.claim(request)
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
    host.book.claim(legacy_request(**{"hw:cpu_policy": "dedicated", "resources:MEMORY_MB": "99"}))
    assert host.report.held[ONE] == {ROOT: {"PCPU": 2, "MEMORY_MB": 99}}
    with pytest.raises(errors.InvalidInput, match="resources:MEMORY_MB"):
        host.book.claim(replace(legacy_request(**{"resources:MEMORY_MB": "much"}), instance=TWO))


def test_what_the_root_cannot_give_is_not_left_out_of_what_the_host_allocates(host):
    host.claims_by_itself()
    with pytest.raises(errors.ComputeResourcesUnavailable, match="no MEMORY_MB, VCPU to give"):
        host.book.claim(legacy_request())
    assert host.report.held == {}


def test_disk_that_is_shared_is_allocated_on_the_provider_that_shares_it(host):
    host.claims_by_itself()
    pool, aggregate = OTHER_HOST, str(uuid.UUID(int=78))
    host.tree.update_inventory(ROOT, {"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}})
    host.tree.update_aggregates(ROOT, {aggregate})
    host.tree.new_root("pool", pool)
    host.tree.update_inventory(pool, {"DISK_GB": {"total": 100}})
    host.tree.update_aggregates(pool, {aggregate})
    host.tree.update_traits(pool, {SHARING_TRAIT})
    request = replace(legacy_request(), needs={"VCPU": 1, "DISK_GB": 5})
    plain = replace(request, spec={})
    host.book.claim(plain)
    assert host.report.held[ONE] == {ROOT: {"VCPU": 1}, pool: {"DISK_GB": 5}}


def test_a_host_takes_back_what_it_allocated_by_itself_when_it_refuses_the_instance(host):
    host.claims_by_itself()
    cpus = host.provider("PCPU")
    host.claim(TWO, PCPU=4)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="cannot give"):
        host.book.claim(ClaimRequest(ONE, {cpus: {"PCPU": 1}}, project="p", user="u"))
    assert ONE not in host.report.held
    host.report.held[ONE] = {cpus: {"PCPU": 1}}
    with pytest.raises(errors.ComputeResourcesUnavailable, match="cannot give"):
        host.book.claim(ClaimRequest(ONE))
    assert host.report.held[ONE], "what a scheduler claimed is the caller's to delete"


def test_during_an_upgrade_too_a_claim_of_the_scheduler_counts(host):
    host.claims_by_itself()
    assert len(host.claim(ONE, PCPU=2)) == 2
    assert not any(asked.startswith("claim") for asked in host.report.asked)


def test_what_cannot_be_allocated_is_refused_during_an_upgrade_too(host):
    host.claims_by_itself()
    with pytest.raises(errors.ComputeResourcesUnavailable, match="neither allocations nor a fla"):
        host.book.claim(ClaimRequest(ONE))
    host.report.lacking = "PCPU"
    with pytest.raises(errors.ComputeResourcesUnavailable, match="too little PCPU"):
        host.book.claim(ClaimRequest(ONE, {host.provider("PCPU"): {"PCPU": 1}}))
    assert host.book.claims() == []
    with pytest.raises(errors.InvalidInput, match=r"spec\.flavor\.vcpus is 'many'"):
        claim_messages.request_from({"instance_uuid": ONE, "flavor": {"vcpus": "many"}}, {}, {})


def test_an_allocation_smaller_than_the_host_was_told_is_refused(host):
    host.allocate(ONE, PCPU=1)
    request = ClaimRequest(ONE, {host.provider("PCPU"): {"PCPU": 2}})
    with pytest.raises(errors.ComputeResourcesUnavailable, match="2 PCPU on provider"):
        host.book.claim(request)


def test_what_an_instance_holds_elsewhere_is_no_matter_of_this_host(host):
    host.allocate(ONE, VCPU=1)
    host.report.held[ONE][OTHER_HOST] = {"DISK_GB": 5}
    claim = host.book.claim(ClaimRequest(ONE, host.report.held[ONE]))
    assert set(claim.amounts) == {host.provider("VCPU")}


def test_a_host_without_free_units_refuses_and_says_how_many_there_are(host):
    host.claim(ONE, PCPU=3)
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"2 PCPU .* 1 of 4 are free"):
        host.claim(TWO, PCPU=2)


def test_units_of_guests_that_run_without_a_claim_are_taken(host):
    gpu = next(g.address for g in host.driver.machine.gpus)
    host.driver.spawn(TWO, devices=InstanceDevices(pinned_cpus=(4, 6), mdevs=(MdevUse(TWO, gpu),)))
    assert set(host.claim(ONE, PCPU=2, VGPU=1)) == {"5", "7", f"{gpu}/1"}


def test_a_guest_that_runs_on_what_it_was_given_counts_once(host):
    given = host.claim(ONE, PCPU=2, VGPU=1)
    gpu = next(g.address for g in host.driver.machine.gpus)
    cpus = tuple(int(name) for name in given if name.isdecimal())
    host.driver.spawn(ONE, devices=InstanceDevices(pinned_cpus=cpus, mdevs=(MdevUse(ONE, gpu),)))
    assert set(host.claim(TWO, PCPU=2, VGPU=1)) == {"6", "7", f"{gpu}/1"}


def test_two_guests_without_claims_take_two_places_of_one_gpu():
    parent = "0000:42:00.0"
    units = [AssignedUnit(ROOT, "VGPU", f"{parent}/{n}") for n in range(3)]
    guest = InstanceDevices(mdevs=(MdevUse(None, parent),))
    held = holdings({}, {ONE: guest, TWO: guest}, units)
    assert len(held[ONE] | held[TWO]) == 2


def test_a_dropped_claim_is_free_again_and_dropping_nothing_says_so(host):
    host.claim(ONE, PCPU=4)
    assert host.book.drop(ONE)
    assert not host.book.drop(ONE)
    assert len(host.claim(TWO, PCPU=4)) == 4


def test_claims_survive_a_restart(host):
    given = host.claim(ONE, PCPU=2)
    host.restart()
    (claim,) = host.book.claims()
    assert [unit.name for unit in claim.units] == given
    assert not set(host.claim(TWO, PCPU=2)) & set(given)


def test_leaving_the_context_with_an_error_drops_the_claim(host):
    host.allocate(ONE, PCPU=1)

    def start_a_guest_that_does_not_start() -> None:
        with host.book.claiming(ClaimRequest(ONE)):
            assert host.book.claims()
            raise RuntimeError("the guest did not start")

    with pytest.raises(RuntimeError):
        start_a_guest_that_does_not_start()
    assert host.book.claims() == []
    with host.book.claiming(ClaimRequest(ONE)):
        pass
    assert [claim.consumer for claim in host.book.claims()] == [ONE]


def test_a_device_that_is_missing_cannot_be_claimed(host):
    host.tree.add_traits(host.provider("VGPU"), MISSING)
    with pytest.raises(errors.AssignedResourceNotFound, match="does not have it any more"):
        host.claim(ONE, VGPU=1)


def test_a_group_must_be_served_by_a_provider_that_is_held_or_of_this_host(host):
    host.allocate(ONE, VCPU=1, VGPU=1)
    gpu = host.provider("VGPU")
    served = {"": [host.provider("VCPU")], "_gpu": [gpu], "_no_resources": [ROOT]}
    claim = host.book.claim(ClaimRequest(ONE, host.report.held[ONE], served))
    assert claim.providers_of["_gpu"] == (gpu,)
    with pytest.raises(errors.AssignedResourceNotFound, match="group '_x'"):
        host.book.claim(ClaimRequest(ONE, host.report.held[ONE], {"_x": [OTHER_HOST]}))


def test_a_provider_or_a_node_of_somebody_else_is_told(host):
    with pytest.raises(errors.ComputeHostNotFound, match="No node of this agent"):
        host.book.claim(ClaimRequest(ONE, {OTHER_HOST: {"VCPU": 1}}))
    with pytest.raises(errors.ComputeHostNotFound, match="not managed by this agent"):
        host.book.claim(ClaimRequest(ONE, node="elsewhere"))


def test_a_move_holds_old_and_new_until_it_is_confirmed(host):
    old = host.claim(ONE, PCPU=2)
    new = host.claim(ONE, migration=MOVE, PCPU=2)
    assert not set(old) & set(new)
    assert host.claim(ONE, migration=MOVE, PCPU=2) == new, "the answer was lost, asked again"
    with pytest.raises(errors.ComputeResourcesUnavailable):
        host.claim(TWO, PCPU=1)
    assert host.book.drop(MOVE)
    (claim,) = host.book.claims()
    assert [unit.name for unit in claim.units] == new
    assert host.claim(TWO, PCPU=2) == old


def test_a_move_that_is_reverted_gives_the_instance_what_it_had(host):
    old = host.claim(ONE, PCPU=2)
    host.claim(ONE, migration=MOVE, PCPU=2)
    assert host.book.drop(ONE)
    (claim,) = host.book.claims()
    assert claim.consumer == ONE
    assert [unit.name for unit in claim.units] == old


def test_a_start_with_a_unit_that_is_gone_is_refused_with_unit_and_instance(host):
    host.claim(ONE, PCPU=4)
    host.driver.spawn(ONE)
    host.book.check_assigned("h")
    host.tree.update_resources(host.provider("PCPU"), {})
    with pytest.raises(errors.AssignedResourceNotFound, match=rf"PCPU 4 of {ONE}.*drop-claim"):
        host.book.check_assigned("h")


def test_a_claim_behind_which_nobody_stands_is_dropped_at_a_start(host):
    host.claim(ONE, PCPU=1)
    del host.report.held[ONE]
    host.tree.update_resources(host.provider("PCPU"), {})
    host.book.check_assigned("h")
    assert host.book.claims() == []


@pytest.mark.parametrize(
    "stands",
    ["it runs here", "it holds it", "a migration that nobody told of holds it"],
)
def test_a_claim_stays_while_somebody_stands_behind_it(host, stands):
    host.claim(ONE, PCPU=1)
    held = host.report.held.pop(ONE)
    if stands == "it runs here":
        host.driver.spawn(ONE)
    elif stands == "it holds it":
        host.report.held[ONE] = held
    else:
        host.report.held[MOVE] = held
    assert host.book.forget_stale("h") == []
    assert len(host.book.claims()) == 1


@pytest.mark.parametrize(
    ("holds", "kept"),
    [
        ({}, True),
        ({OTHER_HOST: {"PCPU": 1, "MEMORY_MB": 64}}, False),
        ({OTHER_HOST: {"DISK_GB": 10}}, True),
        ({OTHER_HOST: {"PCPU": 1}, ROOT: {"DISK_GB": 1}}, True),
    ],
    ids=["nothing", "on another host", "shared disk", "here as well"],
)
def test_where_the_driver_cannot_tell_what_runs_a_claim_goes_only_when_its_instance_has_moved(
    host, holds, kept
):
    unit = host.claim(ONE, PCPU=1)
    host.driver.list_instance_uuids = lambda: None
    host.report.held[ONE] = holds
    assert [claim.instance for claim in host.book.unfounded("h")] == [ONE]
    assert host.book.forget_stale("h") == ([] if kept else [ONE])
    assert (host.claim(TWO, PCPU=1) != unit) is kept, "what may be in use is given to nobody else"


def test_a_driver_that_changes_its_mind_is_asked_for_its_guests_once_to_drop_a_claim(host):
    """It comes back from a loss of its hypervisor with the guest that it could not tell of."""
    host.claim(ONE, PCPU=1)
    del host.report.held[ONE]
    answers = [None, [ONE]]
    host.driver.list_instance_uuids = lambda: answers.pop(0)
    assert host.book.forget_stale("h") == []
    assert answers == [[ONE]]


def test_where_the_driver_cannot_tell_what_runs_a_claim_is_compared_with_what_is_held(host):
    host.claim(ONE, PCPU=2)
    host.driver.list_instance_uuids = lambda: None
    provider = host.provider("PCPU")
    assert host.book.differences("h", {provider: {ONE: {"PCPU": 2}}}) == {}
    found = host.book.differences("h", {provider: {ONE: {"PCPU": 1}}})
    assert "it was given 2 PCPU" in found[ONE]


def test_another_instance_with_the_same_amounts_does_not_keep_a_stale_claim(host):
    host.claim(ONE, PCPU=1)
    host.claim(TWO, PCPU=1)
    del host.report.held[ONE]
    assert host.book.forget_stale("h") == [ONE]


@pytest.mark.parametrize(
    ("spec", "allocations", "mappings", "said"),
    [
        (None, {}, {}, "spec.instance_uuid"),
        ("x", {}, {}, "spec is 'x'"),
        ({"instance_uuid": "x"}, {}, {}, "UUID was expected"),
        ({"instance_uuid": ONE}, {"x": {}}, {}, "allocations is 'x'"),
        ({"instance_uuid": ONE}, {TWO: {}}, {}, "resources is None"),
        ({"instance_uuid": ONE}, {TWO: {"resources": {}}}, {}, "at least one class"),
        ({"instance_uuid": ONE}, {TWO: {"resources": {"VCPU": "1"}}}, {}, "whole number"),
        ({"instance_uuid": ONE}, {TWO: {"resources": {"VCPU": True}}}, {}, "whole number"),
        ({"instance_uuid": ONE}, {}, {"": ONE}, "a list was expected"),
    ],
)
def test_a_claim_that_cannot_be_read_names_the_argument(spec, allocations, mappings, said):
    with pytest.raises(errors.InvalidInput, match=said):
        claim_messages.request_from(spec, allocations, mappings)


def test_a_claim_is_read_from_what_placement_gave():
    request = claim_messages.request_from(
        {"instance_uuid": ONE.upper(), "migration_uuid": MOVE, "flavor": {"vcpus": 1}},
        {TWO: {"resources": {"VCPU": 1}, "generation": 4}},
        {"": [TWO]},
    )
    assert request == ClaimRequest(
        ONE, {TWO: {"VCPU": 1}}, {"": [TWO]}, migration=MOVE, needs={"VCPU": 1}
    )


# -- anti-affinity ---------------------------------------------------------------------------------


def comes(host, consumer, *members, most=1, **more):
    """A member of an anti-affinity group whom the scheduler has sent here."""
    host.allocate(consumer, VCPU=1)
    group = {"policy": "anti-affinity", "members": list(members)}
    group["rules"] = {"max_server_per_host": most}
    spec = {"instance_uuid": consumer, "instance_group": group, **more}
    return host.book.claim(claim_messages.request_from(spec, {}, {}))


def test_of_two_members_who_may_not_be_together_the_later_one_is_refused(host):
    # both hold something of this host in placement before either comes
    for consumer in (ONE, TWO):
        host.allocate(consumer, VCPU=1)
    comes(host, TWO, ONE, TWO)
    with pytest.raises(errors.ComputeResourcesUnavailable, match=f"cannot be with {TWO}"):
        comes(host, ONE, ONE, TWO)
    assert [claim.instance for claim in host.book.claims()] == [TWO]
    comes(host, TWO, ONE, TWO)


def test_a_member_that_runs_here_without_a_claim_is_met_too(host):
    host.allocate(TWO, VCPU=1)
    host.driver.list_instance_uuids = lambda: [TWO]
    with pytest.raises(errors.ComputeResourcesUnavailable, match=TWO):
        comes(host, ONE, ONE, TWO)


def test_a_member_that_has_moved_away_or_was_deleted_is_no_obstacle(host):
    comes(host, TWO, TWO)
    host.report.held[TWO] = {OTHER_HOST: {"VCPU": 1}}
    comes(host, ONE, ONE, TWO)


@pytest.mark.parametrize(
    "more",
    [{"most": 2}, {"force_hosts": ["h"]}, {"instance_group": {"policy": "soft-anti-affinity"}}],
)
def test_members_who_may_be_together_are(host, more):
    comes(host, TWO, ONE, TWO)
    comes(host, ONE, ONE, TWO, **more)
    assert len(host.book.claims()) == 2


@pytest.mark.parametrize("rules", [None, {}, {"max_server_per_host": None}])
def test_a_group_without_a_number_keeps_its_members_one_to_a_host(rules):
    group = {"policy": "anti-affinity", "members": [TWO], "rules": rules}
    spec = {"instance_uuid": ONE, "instance_group": group}
    assert claim_messages.request_from(spec, {}, {}).together == 1


def test_a_member_that_changes_on_its_host_is_not_sent_away(host):
    comes(host, ONE, ONE, TWO, most=2)
    comes(host, TWO, ONE, TWO, most=2)
    comes(host, ONE, ONE, TWO, migration_uuid=MOVE)


@pytest.mark.parametrize(
    "group",
    [
        {"policy": "anti-affinity", "members": "x"},
        {"policy": "anti-affinity", "members": ["x"]},
        {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}},
        ["anti-affinity"],
    ],
)
def test_a_group_that_cannot_be_read_is_named(group):
    with pytest.raises(errors.InvalidInput, match=r"spec\.instance_group"):
        claim_messages.request_from({"instance_uuid": ONE, "instance_group": group}, {}, {})


@pytest.mark.parametrize(("tags", "managed"), [(', "managed": "no"', False), ("", None)])
def test_whoever_starts_the_guest_is_told_which_functions_keep_their_driver(
    tmp_path, tags, managed
):
    host = Host(tmp_path, tags=tags)
    host.allocate(ONE, CUSTOM_VF=1, PCPU=1)
    claim = host.book.claim(ClaimRequest(ONE))
    answer = claim_messages.answer_of(claim, host.tree)
    told = {unit["resource_class"]: unit.get("managed") for unit in answer["units"]}
    assert told == {"CUSTOM_VF": managed, "PCPU": None}


def test_a_claim_is_answered_for_even_if_its_device_leaves_the_tree_at_that_moment(tmp_path):
    host = Host(tmp_path)
    host.allocate(ONE, CUSTOM_VF=1)
    claim = host.book.claim(ClaimRequest(ONE))
    [unit] = claim.units
    tree = host.tree.snapshot()
    tree.remove(unit.provider_uuid)
    assert claim_messages.answer_of(claim, tree)["units"][0]["name"] == unit.name
