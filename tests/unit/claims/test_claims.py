"""Claims on a machine with dedicated CPUs, GPUs that make vGPUs, and functions given whole."""

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.agent import claim_messages
from compute_agent.claims.checks import ClaimRequest
from compute_agent.claims.units import holdings
from compute_agent.provider_tree.trait_names import CUSTOM_DEVICE_MISSING
from compute_agent.state.claim import AssignedUnit
from compute_agent.virt.driver import InstanceDevices, MdevUse
from tests.unit.claims.claiming import MOVE, ONE, OTHER_HOST, ROOT, TWO, Host


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
        host.assigner.claim(request)
    host.report.held[ONE] = {OTHER_HOST: {"PCPU": 1}}
    with pytest.raises(errors.ComputeResourcesUnavailable, match="of other hosts"):
        host.assigner.claim(request)
    assert host.book.claims() == []


def test_an_allocation_smaller_than_the_host_was_told_is_refused(host):
    host.allocate(ONE, PCPU=1)
    request = ClaimRequest(ONE, {host.provider("PCPU"): {"PCPU": 2}})
    with pytest.raises(errors.ComputeResourcesUnavailable, match="2 PCPU on provider"):
        host.assigner.claim(request)


def test_what_an_instance_holds_elsewhere_is_no_matter_of_this_host(host):
    host.allocate(ONE, VCPU=1)
    host.report.held[ONE][OTHER_HOST] = {"DISK_GB": 5}
    claim = host.assigner.claim(ClaimRequest(ONE, host.report.held[ONE]))
    assert set(claim.amounts) == {host.provider("VCPU")}


def test_a_host_without_free_units_refuses_and_says_how_many_there_are(host):
    host.claim(ONE, PCPU=3)
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"2 pinned CPUs .* 1 CPUs to pin"):
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


def test_a_device_that_is_missing_cannot_be_claimed(host):
    host.tree.add_traits(host.provider("VGPU"), CUSTOM_DEVICE_MISSING)
    with pytest.raises(errors.AssignedResourceNotFound, match="does not have it any more"):
        host.claim(ONE, VGPU=1)


def test_a_group_must_be_served_by_a_provider_that_is_held_or_of_this_host(host):
    host.allocate(ONE, VCPU=1, VGPU=1)
    gpu = host.provider("VGPU")
    served = {"": [host.provider("VCPU")], "_gpu": [gpu], "_no_resources": [ROOT]}
    claim = host.assigner.claim(ClaimRequest(ONE, host.report.held[ONE], served))
    assert claim.providers_of["_gpu"] == (gpu,)
    with pytest.raises(errors.AssignedResourceNotFound, match="group '_x'"):
        host.assigner.claim(ClaimRequest(ONE, host.report.held[ONE], {"_x": [OTHER_HOST]}))


def test_a_provider_or_a_node_of_somebody_else_is_told(host):
    with pytest.raises(errors.ComputeHostNotFound, match="No node of this agent"):
        host.assigner.claim(ClaimRequest(ONE, {OTHER_HOST: {"VCPU": 1}}))
    with pytest.raises(errors.ComputeHostNotFound, match="not managed by this agent"):
        host.assigner.claim(ClaimRequest(ONE, node="elsewhere"))


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


def test_claims_of_another_node_of_the_agent_are_no_matter_of_this_one(host):
    host.allocate(ONE, PCPU=1)
    claim = host.assigner.claim(ClaimRequest(ONE, host.report.held[ONE], node="h"))
    gone_units = tuple(replace(unit, name="99") for unit in claim.units)
    other = replace(claim, consumer=TWO, instance=TWO, node="other", units=gone_units)
    host.book.ledger.change_claims(add=[other])
    host.book.check_assigned("h")
    assert host.book.claims() == [claim, other]


def test_a_claim_behind_which_nobody_stands_is_dropped_at_a_start(host):
    host.claim(ONE, PCPU=1)
    del host.report.held[ONE]
    host.tree.update_resources(host.provider("PCPU"), {})
    host.book.check_assigned("h")
    assert host.book.claims() == []


@pytest.mark.parametrize(
    "stands",
    ["it runs here", "it holds a part", "a migration that nobody told of holds it"],
)
def test_a_claim_stays_while_somebody_stands_behind_it(host, stands):
    host.claim(ONE, PCPU=1, CUSTOM_VF=1)
    held = host.report.held.pop(ONE)
    if stands == "it runs here":
        host.driver.spawn(ONE)
    elif stands == "it holds a part":
        host.report.held[ONE] = dict([held.popitem()])
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
    assert [claim.instance for claim in host.book.claims_without_guest("h")] == [ONE]
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
    host.claim(ONE, PCPU=1, CUSTOM_VF=1)
    host.claim(TWO, PCPU=1, CUSTOM_VF=1)
    host.report.held[MOVE] = dict([host.report.held.pop(ONE).popitem()])  # a part is another's
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
        ({"instance_uuid": ONE}, {TWO: {"resources": {"VCPU": 2**31}}}, {}, "whole number"),
        ({"instance_uuid": ONE, "flavor": {"vcpus": "9" * 5000}}, {}, {}, "whole number"),
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
        ONE,
        {TWO: {"VCPU": 1}},
        {"": [TWO]},
        migration=MOVE,
        needs={"VCPU": 1},
        spec={"instance_uuid": ONE.upper(), "migration_uuid": MOVE, "flavor": {"vcpus": 1}},
    )


@pytest.mark.parametrize(("tags", "managed"), [(', "managed": "no"', False), ("", None)])
def test_whoever_starts_the_guest_is_told_which_functions_keep_their_driver(
    tmp_path, tags, managed
):
    host = Host(tmp_path, tags=tags)
    host.allocate(ONE, CUSTOM_VF=1, PCPU=1)
    claim = host.assigner.claim(ClaimRequest(ONE))
    answer = claim_messages.answer_of(claim, host.tree)
    told = {unit["resource_class"]: unit.get("managed") for unit in answer["units"]}
    assert told == {"CUSTOM_VF": managed, "PCPU": None}


def test_a_claim_is_answered_for_even_if_its_device_leaves_the_tree_at_that_moment(tmp_path):
    host = Host(tmp_path)
    host.allocate(ONE, CUSTOM_VF=1)
    claim = host.assigner.claim(ClaimRequest(ONE))
    [unit] = claim.units
    tree = host.tree.snapshot()
    tree.remove(unit.provider_uuid)
    assert claim_messages.answer_of(claim, tree)["units"][0]["name"] == unit.name
