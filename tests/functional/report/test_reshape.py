"""Inventory and what is allocated of it move together, or not at all."""

import uuid as uuidlib
from functools import partial

import pytest

from compute_agent import errors
from tests.functional.report.claims import claim, held_by
from tests.functional.report.failing_answers import answering, explained, lost_after
from tests.functional.report.gpu_move import assert_done, flat, nested, reshape
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import also, large, small


def assert_not_done(host, other, guests):
    tree = other.get_provider_tree(host.root, fresh=True)
    assert set(tree.data(host.root).inventory) == {"VCPU", "DISK_GB", "VGPU"}
    for consumer in guests[:2]:
        assert held_by(other, consumer) == {host.root: {"VCPU": 1, "VGPU": 1}}


def to_reshaper(_method, path):
    return path == "/reshaper"


def report_large(host):
    host.report(large(host.name, host.tag))


def sent_to_reshaper(host):
    return next(e.request.json for e in host.transport.exchanges if e.request.path == "/reshaper")


def test_a_flat_host_becomes_nested_in_one_atomic_request(host, other, guests):
    reshape(host, guests)
    assert host.tally.by_call["POST /reshaper"] == 1
    assert_done(host, other, guests)


def test_only_consumers_that_hold_what_moves_are_sent(host, guests):
    reshape(host, guests)
    assert set(sent_to_reshaper(host)["allocations"]) == set(guests[:2])


def test_a_claim_of_an_uninvolved_guest_during_the_reshape_is_no_conflict_of_consumers(
    host, other, guests
):
    delete = other.placement.allocations.delete_allocation
    before_next(host, "POST", "/reshaper", lambda: delete(guests[2], force=True))
    reshape(host, guests)
    assert host.tally.failed_count == 0


def test_a_claim_on_the_host_during_the_reshape_is_a_conflict_and_the_next_round_works(
    host, other, guests
):
    before_next(host, "POST", "/reshaper", lambda: claim(other, host.root, {"VCPU": 1}))
    with pytest.raises(errors.PlacementReshapeConflict, match="generation conflict"):
        reshape(host, guests)
    assert_not_done(host, other, guests)
    reshape(host, guests)
    assert_done(host, other, guests)


def test_a_lost_answer_is_settled_by_reading_the_new_layout(host, other, guests):
    lost = lost_after(host, "POST", "/reshaper")
    reshape(host, guests)
    assert lost
    assert_done(host, other, guests)


def test_a_request_that_never_arrived_is_an_outage_and_no_conflict(host, other, guests):
    def fail():
        raise errors.PlacementAPIConnectFailure("reset", method="POST", path="/reshaper")

    before_next(host, "POST", "/reshaper", fail)
    with pytest.raises(errors.PlacementUnavailable, match="did not happen"):
        reshape(host, guests)
    assert_not_done(host, other, guests)
    reshape(host, guests)
    assert_done(host, other, guests)


def test_a_reshaper_that_crashes_ends_the_flush_before_what_stands_on_the_new_layout(
    host, other, guests
):
    lay_out = also(nested(host.name), lambda tree: tree.add_traits(host.name, "HW_CPU_X86_AVX"))
    answering(host, 500, explained(500, "boom"), to_reshaper, {"retry-after": "7"})
    with pytest.raises(errors.PlacementUnavailable, match="boom") as caught:
        reshape(host, guests, lay_out=lay_out)
    assert (caught.value.status, caught.value.retry_after) == (500, 7.0)
    assert "HW_CPU_X86_AVX" not in other.find_provider(host.root).traits
    assert_not_done(host, other, guests)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_layout_that_is_neither_after_a_lost_answer_is_no_success_and_no_outage(
    host, other, guests, arrived
):
    """Another writer changed one of the providers meanwhile; the others are as one layout has."""

    def lose(method, path):
        if path == "/reshaper":
            base = other.get_provider_tree(host.root, fresh=True)
            new = base.snapshot()
            inventory = base.data(host.root).inventory
            new.update_inventory(host.root, {**inventory, "VCPU": {"total": 6}})
            other.update_from_provider_tree(base, new)
            raise errors.PlacementAPIConnectFailure("reset", method=method, path=path)

    if arrived:
        host.transport.after = lambda method, path, _body, answer: lose(method, path) or answer
    else:
        host.transport.before = lambda method, path, _body: lose(method, path)
    with pytest.raises(errors.ReshapeFailed, match="neither the old nor the new layout"):
        reshape(host, guests)


def test_placement_gone_for_good_during_the_reshape_is_unavailable_and_later_converges(
    host, other, guests
):
    def hook(method, path, body, response):
        if path == "/reshaper":
            host.transport.before = away
            raise errors.PlacementAPIConnectFailure("reset", method=method, path=path)
        return response

    def away(method, path, body):
        raise errors.PlacementAPIConnectFailure("refused", method=method, path=path)

    host.transport.after = hook
    with pytest.raises(errors.PlacementUnavailable):
        reshape(host, guests)
    host.transport.before = host.transport.after = None
    tree = host.client.get_provider_tree(host.root, fresh=True)
    assert set(tree.data(host.root).inventory) == {"VCPU", "DISK_GB"}
    assert_done(host, other, guests)


def test_a_death_between_creating_and_reshaping_leaves_the_old_layout(host, other, guests):
    class Kill(BaseException):
        pass

    def kill():
        raise Kill

    before_next(host, "POST", "/reshaper", kill)
    with pytest.raises(Kill):
        reshape(host, guests)
    assert_not_done(host, other, guests)
    host.restart()
    reshape(host, guests)
    assert_done(host, other, guests)


def test_a_user_without_role_service_is_told_so(host, other, guests):
    text = explained(403, "Policy does not allow placement:reshaper:reshape")
    answering(host, 403, text, to_reshaper)
    with pytest.raises(errors.ReshapeFailed, match="the placement user needs role service"):
        reshape(host, guests)
    assert_not_done(host, other, guests)


@pytest.mark.parametrize("is_reshape", [True, False], ids=["reshape", "many inventories"])
def test_credentials_that_are_refused_for_now_are_no_missing_role(host, other, guests, is_reshape):
    """A start that fails by a reshape is not tried again, and inventories go on one by one."""
    answering(host, 401, explained(401, "expired"), to_reshaper)
    act = partial(reshape, guests=guests) if is_reshape else report_large
    with pytest.raises(errors.PlacementUnauthorized):
        act(host)
    assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 0


def test_a_reshape_placement_refuses_is_failed_with_its_reason(host, other, guests):
    def edit(allocations, new):
        allocations[guests[0]]["allocations"][host.root]["resources"]["VCPU"] = 99

    with pytest.raises(errors.ReshapeFailed, match="exceed the capacity"):
        reshape(host, guests, edit=edit)
    assert_not_done(host, other, guests)


def test_a_class_placement_does_not_know_does_not_stop_it(host, other, guests):
    def lay_out(tree):
        nested(host.name)(tree)
        inventory = tree.data(f"{host.name}_GPU1").inventory
        tree.update_inventory(f"{host.name}_GPU1", {**inventory, "NOT_A_CLASS": {"total": 1}})

    reshape(host, guests, lay_out=lay_out)
    assert_done(host, other, guests)


def test_an_entry_without_resources_is_refused_before_anything_is_sent(host, other, guests):
    def edit(allocations, new):
        allocations[guests[0]]["allocations"][host.root]["resources"] = {}

    with pytest.raises(errors.ReshapeFailed, match=f"consumer {guests[0]} names provider"):
        reshape(host, guests, edit=edit)
    assert host.tally.by_call["POST /reshaper"] == 0


def test_a_new_provider_that_cannot_get_its_traits_stops_the_reshape(host, other, guests):
    def about_new(method, path):
        return method == "PUT" and path.endswith("/traits") and host.root not in path

    answering(host, 400, explained(400, "no"), about_new)
    with pytest.raises(errors.ResourceProviderSyncFailed):
        reshape(host, guests, edit=lambda _, new: new.add_traits(host.name, "HW_CPU_X86_AVX"))
    assert host.tally.by_call["POST /reshaper"] == 0
    assert_not_done(host, other, guests)
    # nor what comes after it
    assert "HW_CPU_X86_AVX" not in other.find_provider(host.root).traits


def test_allocations_on_other_hosts_and_the_types_of_consumers_stay_as_they_are(
    host, new_host, other
):
    elsewhere = new_host()
    elsewhere.report(small(elsewhere.name))
    host.report(flat(host.name))
    typed, untyped = str(uuidlib.uuid4()), str(uuidlib.uuid4())
    allocations = {
        host.root: {"resources": {"VGPU": 1}},
        elsewhere.root: {"resources": {"VCPU": 1}},
    }
    other.placement.allocations.claim_resources(
        typed, {"allocations": allocations}, "p", "u", "1.39", consumer_type="MIGRATION"
    )
    other.placement.allocations.claim_resources(
        untyped, {"allocations": allocations}, "p", "u", "1.36"
    )
    client = host.client
    with client.tracing():
        base = client.get_provider_tree_and_ensure_root(host.root, host.name, fresh=True)
        found = client.get_allocations_for_provider_tree(host.root)
        assert {c: r["consumer_type"] for c, r in found.items()} == {
            typed: "MIGRATION",
            untyped: "unknown",
        }
        new = base.snapshot()
        nested(host.name)(new)
        gpu = new.data(f"{host.name}_GPU0").uuid
        for record in found.values():
            del record["allocations"][host.root]
            record["allocations"][gpu] = {"resources": {"VGPU": 1}}
        client.update_from_provider_tree(base, new, allocations=found)
    for consumer, kind in ((typed, "MIGRATION"), (untyped, "unknown")):
        record = other.placement.allocations.get_allocs_for_consumer(consumer)
        assert record["consumer_type"] == kind
        assert held_by(other, consumer) == {gpu: {"VGPU": 1}, elsewhere.root: {"VCPU": 1}}


def test_a_nested_host_becomes_flat_and_its_children_go(host, other, guests):
    reshape(host, guests)
    client = host.client
    with client.tracing():
        base = client.get_provider_tree_and_ensure_root(host.root, host.name, fresh=True)
        found = client.get_allocations_for_provider_tree(host.root)
        new = base.snapshot()
        for number, consumer in enumerate(guests[:2]):
            held = found[consumer]["allocations"]
            del held[new.data(f"{host.name}_GPU{number}").uuid]
            held[host.root]["resources"]["VGPU"] = 1
        new.remove(f"{host.name}_GPU0")
        new.remove(f"{host.name}_GPU1")
        flat(host.name)(new)
        report = client.update_from_provider_tree(base, new, allocations=found)
    assert report.kept_providers == []
    assert len(other.get_provider_tree(host.root, fresh=True)) == 1
    assert_not_done(host, other, guests)


def test_consumers_that_vanish_while_they_are_read_are_dropped(host, other, guests):
    host.client.get_provider_tree(host.root)
    delete = other.placement.allocations.delete_allocation
    before_next(host, "GET", guests[0], lambda: delete(guests[0], force=True))
    assert set(host.client.get_allocations_for_provider_tree(host.root)) == set(guests[1:])


def test_allocations_of_an_unknown_root_are_an_error(host):
    with pytest.raises(errors.ResourceProviderAllocationRetrievalFailed, match="no such provider"):
        host.client.get_allocations_for_provider_tree(host.root)
