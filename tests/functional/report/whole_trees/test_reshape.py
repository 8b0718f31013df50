"""Reshapes as whole trees."""

import uuid as uuidlib

import pytest

from compute_agent import errors
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE, answering, explained, lost_after
from tests.functional.report.gpu_move import assert_done, flat, held_by, nested, reshape
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import small

from .interruptions import Killed, kill_at, older, path

pytestmark = OURS_ALONE


class TestReshape:
    @pytest.fixture
    def guests(self, whole, other):
        whole.report(flat(whole.name))
        return [
            claim(other, whole.root, {"VCPU": 1, "VGPU": 1}),
            claim(other, whole.root, {"VCPU": 1, "VGPU": 1}),
            claim(other, whole.root, {"VCPU": 1}),
        ]

    def test_a_flat_host_becomes_nested(self, whole, other, guests):
        reshape(whole, guests)
        assert dict(whole.tally.by_call) == {
            "GET /provider_trees/*": 1,
            "PUT /provider_trees/*": 1,
        }
        assert_done(whole, other, guests)

    def test_claims_of_guests_that_do_not_move_are_no_conflict(self, whole, other, guests):
        before_next(
            whole, "PUT", path(whole), lambda: claim(other, whole.root, {"VCPU": 1, "DISK_GB": 1})
        )
        reshape(whole, guests)
        assert whole.tally.failed_count == 0
        assert_done(whole, other, guests)

    def test_a_guest_that_moves_and_changes_is_a_conflict_and_the_next_round_works(
        self, whole, other, guests
    ):
        def grow():
            other.placement.allocations.add_resources(guests[0], {whole.root: {"DISK_GB": 1}})

        before_next(whole, "PUT", path(whole), grow)
        with pytest.raises(errors.PlacementReshapeConflict):
            reshape(whole, guests)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1
        other.placement.allocations.remove_resources(guests[0], {whole.root: {"DISK_GB": 1}})
        reshape(whole, guests)
        assert_done(whole, other, guests)

    def test_a_change_of_the_tree_is_a_conflict_and_the_next_round_works(
        self, whole, other, guests
    ):
        before_next(
            whole,
            "PUT",
            path(whole),
            lambda: other.change_traits(whole.root, add=["HW_CPU_X86_AVX"]),
        )
        with pytest.raises(errors.PlacementReshapeConflict):
            reshape(whole, guests)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1
        reshape(whole, guests)
        assert_done(whole, other, guests)

    def test_a_lost_answer_is_settled_by_reading_the_new_layout(self, whole, other, guests):
        lost = lost_after(whole, "PUT", path(whole))
        reshape(whole, guests)
        assert lost
        assert_done(whole, other, guests)

    def test_one_that_never_arrives_is_an_outage_and_no_conflict(self, whole, other, guests):
        def lost():
            raise errors.PlacementAPIConnectFailure("reset", method="PUT", path=path(whole))

        before_next(whole, "PUT", path(whole), lost)
        with pytest.raises(errors.PlacementUnavailable, match="did not happen"):
            reshape(whole, guests)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1
        reshape(whole, guests)
        assert_done(whole, other, guests)

    @pytest.mark.parametrize("step", [1, 2])
    @pytest.mark.parametrize("done", [True, False])
    def test_one_killed_at_any_request_is_done_or_not(self, whole, other, guests, step, done):
        kill_at(whole, step, done=done)
        with pytest.raises(Killed):
            reshape(whole, guests)
        whole.transport.before = whole.transport.after = None
        whole.restart()
        providers = len(other.get_provider_tree(whole.root, fresh=True))
        assert providers == (3 if step == 2 and done else 1)
        if providers == 1:
            reshape(whole, guests)
        else:
            whole.report(nested(whole.name))
        assert_done(whole, other, guests)

    def test_a_user_without_role_service_is_named_in_the_error(self, whole, other, guests):
        answering(whole, 403, explained(403, "policy"), lambda method, _: method == "PUT")
        with pytest.raises(errors.ReshapeFailed, match="the placement user needs role service"):
            reshape(whole, guests)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1

    def test_one_that_placement_refuses_fails_with_its_reason_and_changes_nothing(
        self, whole, other, guests
    ):
        def edit(allocations, new):
            allocations[guests[0]]["allocations"][whole.root]["resources"]["VCPU"] = 99

        with pytest.raises(errors.ReshapeFailed, match=guests[0]):
            reshape(whole, guests, edit=edit)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1

    def test_a_trait_placement_refuses_does_not_stop_it(self, whole, other, guests):
        def lay_out(tree):
            nested(whole.name)(tree)
            tree.add_traits(whole.name, "HW_NOT_A_TRAIT")

        reshape(whole, guests, lay_out=lay_out)
        assert_done(whole, other, guests)

    def test_what_guests_have_elsewhere_and_their_types_stay(self, whole, other, new_host):
        elsewhere = new_host()
        elsewhere.report(small(elsewhere.name))
        whole.report(flat(whole.name))
        guest = str(uuidlib.uuid4())
        allocations = {
            whole.root: {"resources": {"VCPU": 1, "VGPU": 1}},
            elsewhere.root: {"resources": {"VCPU": 1}},
        }
        other.placement.allocations.claim_resources(
            guest, {"allocations": allocations}, "p", "u", "1.39", consumer_type="MIGRATION"
        )
        reshape(whole, [guest])
        gpu = other.get_provider_tree(whole.root).data(f"{whole.name}_GPU0").uuid
        assert held_by(other, guest) == {
            whole.root: {"VCPU": 1},
            gpu: {"VGPU": 1},
            elsewhere.root: {"VCPU": 1},
        }
        record = other.placement.allocations.get_allocs_for_consumer(guest)
        assert record["consumer_type"] == "MIGRATION"

    def test_placement_that_lost_whole_trees_meanwhile_begins_it_again(self, whole, other, guests):
        older(whole, from_method="PUT")
        with pytest.raises(errors.PlacementReshapeConflict, match="begin again"):
            reshape(whole, guests)
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 1
        older(whole)
        reshape(whole, guests)
        assert whole.tally.by_call["POST /reshaper"] == 1
        assert_done_plainly(whole, other, guests)


def assert_done_plainly(host, other, guests) -> None:
    tree = other.get_provider_tree(host.root, fresh=True)
    for number, consumer in enumerate(guests[:2]):
        gpu = tree.data(f"{host.name}_GPU{number}")
        assert held_by(other, consumer) == {host.root: {"VCPU": 1}, gpu.uuid: {"VGPU": 1}}


def test_a_reshape_that_changes_a_shared_provider_too_begins_again_provider_by_provider(
    whole, other
):
    whole.report(flat(whole.name))
    guests = [claim(other, whole.root, {"VCPU": 1, "VGPU": 1}) for _ in range(2)]
    guests.append(claim(other, whole.root, {"VCPU": 1}))
    storage, aggregate = (str(uuidlib.uuid4()) for _ in range(2))
    providers = other.placement.providers
    providers.create(storage, f"storage-{storage}", None)
    providers.put_traits(storage, storage, 0, ["MISC_SHARES_VIA_AGGREGATE"])
    providers.put_aggregates(storage, storage, 1, [aggregate])
    other.change_aggregates(whole.root, add=[aggregate])
    whole.restart(cache=False)

    def lay_out(tree):
        nested(whole.name)(tree)
        tree.add_traits(storage, "HW_CPU_X86_AVX")

    with pytest.raises(errors.PlacementReshapeConflict):
        reshape(whole, guests, lay_out=lay_out)
    reshape(whole, guests, lay_out=lay_out)
    assert_done(whole, other, guests)
    assert "HW_CPU_X86_AVX" in providers.traits(storage, storage).content
