"""A tree that is read and replaced with one request each, where placement offers that."""

import json
import uuid as uuidlib

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Response
from compute_agent.provider_tree import child_uuid
from compute_agent.report.usage import holders_in_tree
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE, answering, explained, lost_after
from tests.functional.report.gpu_move import assert_done, flat, held_by, nested, reshape
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import large, small

pytestmark = OURS_ALONE


@pytest.fixture
def reported(whole):
    whole.report(small(whole.name))
    return whole


def path(host) -> str:
    return f"/provider_trees/{host.root}"


def inventory_of(other, uuid: str):
    return other.find_provider(uuid).inventory


class TestRequests:
    def test_a_first_start_takes_two(self, whole, other):
        whole.pass_at_once(large(whole.name, whole.tag))
        assert whole.requests == [f"GET {path(whole)}", f"PUT {path(whole)}"]
        tree = other.get_provider_tree(whole.root)
        assert len(tree) == 45
        assert sum(tree.has_inventory(uuid) for uuid in tree.get_provider_uuids()) == 43

    def test_a_quiet_pass_takes_one_also_on_a_busy_host(self, reported, other):
        for _ in range(2):
            assert reported.pass_at_once(small(reported.name)).operations == ()
            assert reported.requests == [f"GET {path(reported)}"]
            assert reported.transport.exchanges[-1].response.status == 304
            claim(other, reported.root, {"VCPU": 1})

    def test_a_change_takes_one(self, reported, other):
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert reported.requests == [f"PUT {path(reported)}"]
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert reported.transport.exchanges[-1].response.status == 304

    def test_a_change_on_a_busy_host_takes_one(self, reported, other):
        claim(other, reported.root, {"VCPU": 1})
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert reported.requests == [f"PUT {path(reported)}"]

    def test_a_conflict_takes_three(self, reported, other):
        other.change_traits(reported.root, add=["HW_CPU_X86_AVX"])
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert reported.requests == [
            f"PUT {path(reported)}",
            f"GET {path(reported)}",
            f"PUT {path(reported)}",
        ]
        assert reported.tally.failed == 1
        assert "HW_CPU_X86_AVX" in other.find_provider(reported.root).traits

    def test_a_change_by_others_in_a_quiet_pass_takes_one(self, reported, other):
        other.change_traits(reported.root, add=["HW_CPU_X86_AVX"])
        assert reported.pass_at_once(small(reported.name)).operations == ()
        assert reported.requests == [f"GET {path(reported)}"]
        assert reported.transport.exchanges[-1].response.status == 200

    def test_a_change_by_others_that_is_undone_takes_two(self, reported, other):
        other.change_traits(reported.root, remove=["COMPUTE_NODE"])
        reported.pass_at_once(small(reported.name))
        assert reported.requests == [f"GET {path(reported)}", f"PUT {path(reported)}"]
        assert "COMPUTE_NODE" in other.find_provider(reported.root).traits

    def test_a_restart_with_the_cache_file_takes_one(self, reported):
        reported.restart()
        reported.pass_at_once(small(reported.name))
        assert reported.requests == [f"GET {path(reported)}"]
        assert reported.transport.exchanges[-1].response.status == 304

    def test_a_restart_without_the_cache_file_takes_one(self, reported):
        reported.restart(cache=False)
        reported.pass_at_once(small(reported.name))
        assert reported.requests == [f"GET {path(reported)}"]

    def test_a_reshape_takes_two(self, whole, other):
        flat_layout = large(whole.name, whole.tag, flat=True)
        whole.report(flat_layout)
        consumers = [claim(other, whole.root, {"VGPU": 1, "VCPU": 1}) for _ in range(16)]
        consumers += [claim(other, whole.root, {"DISK_GB": 1}) for _ in range(34)]
        whole.restart()
        client = whole.client
        with client.tracing() as tally:
            base = client.get_provider_tree_and_ensure_root(whole.root, whole.name, fresh=True)
            allocations = client.get_allocations_to_reshape(whole.root)
            original = json.loads(json.dumps(allocations))
            assert set(allocations) == set(consumers)
            new = base.snapshot()
            large(whole.name, whole.tag)(new)
            for number, consumer in enumerate(consumers[:16]):
                numa = f"{whole.name}_NUMA{number % 2}"
                held = allocations[consumer]["allocations"]
                del held[whole.root]
                held[new.data(numa).uuid] = {"resources": {"VCPU": 1}}
                gpu = new.data(f"{numa}_GPU{number // 2 % 4}").uuid
                held[gpu] = {"resources": {"VGPU": 1}}
            client.update_from_provider_tree(
                base, new, allocations=allocations, original_allocations=original
            )
        assert dict(tally.by_call) == {"GET /provider_trees/*": 1, "PUT /provider_trees/*": 1}
        sent = whole.transport.exchanges[-1].request.json
        assert set(sent["allocations"]) == set(consumers[:16])
        whole.pass_at_once(large(whole.name, whole.tag))
        assert whole.tally.requests == 1

    def test_who_holds_what_takes_one_and_the_next_quiet_pass_is_none_the_dearer(
        self, reported, other
    ):
        gpu = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        first = claim(other, reported.root, {"VCPU": 1})
        second = claim(other, gpu, {"VGPU": 2})
        reported.transport.clear()
        holders = holders_in_tree(reported.client, reported.root)
        assert holders == {reported.root: {first: {"VCPU": 1}}, gpu: {second: {"VGPU": 2}}}
        assert holders == holders_in_tree(other, reported.root)
        assert reported.requests == [f"GET {path(reported)}?include=allocations"]
        reported.pass_at_once(small(reported.name))
        assert reported.transport.exchanges[-1].response.status == 304

    def test_a_plan_that_only_keeps_what_others_own_writes_nothing(self, reported, other):
        theirs = str(uuidlib.uuid4())
        other.placement.providers.create(theirs, f"{reported.name}:agent", reported.root)

        def without(tree):
            small(reported.name)(tree)
            if tree.exists(theirs):
                tree.remove(theirs)

        assert [kept.uuid for kept in reported.report(without).kept] == [theirs]
        assert reported.writes == []
        assert other.find_provider(theirs) is not None


class TestOwnership:
    def test_what_others_write_during_the_pass_survives(self, reported, other):
        custom, aggregate = f"CUSTOM_OPERATOR_{reported.tag}", str(uuidlib.uuid4())

        def interfere():
            other.names.ensure_traits([custom])
            other.change_traits(reported.root, add=[custom, "COMPUTE_STATUS_DISABLED"])
            other.change_aggregates(reported.root, add=[aggregate])
            held = other.find_provider(reported.root)
            inventory = {rc: dict(record) for rc, record in held.inventory.items()}
            inventory["VCPU"]["allocation_ratio"] = 16.0
            inventory["DISK_GB"] = {"total": 7}
            other.placement.providers.put_inventories(
                held.uuid, held.name, held.generation, inventory
            )

        before_next(reported, "PUT", path(reported), interfere)

        def lay_out(tree):
            small(reported.name, vcpus=9)(tree)
            tree.remove_traits(reported.name, "COMPUTE_NODE")

        reported.report(lay_out)
        held = other.find_provider(reported.root)
        assert held.traits == {"OWNER_NOVA", "COMPUTE_STATUS_DISABLED", custom}
        assert held.aggregates == {aggregate}
        assert held.inventory["VCPU"]["total"] == 9
        assert held.inventory["VCPU"]["allocation_ratio"] == 16.0
        assert held.inventory["DISK_GB"]["total"] == 7

    def test_a_provider_of_ours_that_is_in_use_is_kept_and_reserved(self, reported, other):
        uuid = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        consumer = claim(other, uuid, {"VGPU": 1})

        def without(tree):
            small(reported.name)(tree)
            tree.remove(uuid)

        report = reported.report(without)
        assert [(kept.uuid, "in use" in kept.reason) for kept in report.kept] == [(uuid, True)]
        record = inventory_of(other, uuid)["VGPU"]
        assert record["reserved"] == record["total"] == 4
        other.placement.allocations.delete_allocation(consumer)
        assert reported.report(without).kept == []
        assert other.find_provider(uuid) is None

    def test_one_child_whose_name_is_taken_does_not_stop_the_others(self, whole, other):
        holder = str(uuidlib.uuid4())
        other.placement.providers.create(holder, f"{whole.name}_GPU0", None)
        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            whole.report(small(whole.name))
        assert [f.aspect for f in failed.value.failures] == ["create"]
        assert failed.value.failures[0].error.name_conflict_uuid == holder
        assert inventory_of(other, whole.root)["VCPU"]["total"] == 8

    def test_a_root_whose_name_is_taken_names_the_holder(self, whole, other):
        holder = str(uuidlib.uuid4())
        other.placement.providers.create(holder, whole.name, None)
        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            whole.report(small(whole.name))
        failure = failed.value.failures[0]
        assert (failure.uuid, failure.aspect) == (whole.root, "create")
        assert failure.error.name_conflict_uuid == holder

    def test_a_provider_of_another_tree_is_not_taken_over(self, reported, other, new_host):
        elsewhere = new_host()
        elsewhere.report(small(elsewhere.name))
        theirs = child_uuid(elsewhere.root, f"{elsewhere.name}_GPU0")
        theirs = other.get_provider_tree(elsewhere.root).data(f"{elsewhere.name}_GPU0").uuid

        def lay_out(tree):
            small(reported.name, vcpus=9)(tree)
            tree.new_child(f"{reported.name}_GPU1", reported.name, theirs)

        with pytest.raises(errors.ResourceProviderSyncFailed, match="has a provider of this uuid"):
            reported.report(lay_out)
        assert other.find_provider(theirs).parent_uuid == elsewhere.root
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9

    def test_a_class_in_use_cannot_go_and_the_rest_is_written(self, reported, other):
        claim(other, reported.root, {"VCPU": 1})

        def lay_out(tree):
            small(reported.name)(tree)
            tree.update_inventory(reported.name, {"MEMORY_MB": {"total": 1024}})
            tree.update_inventory(f"{reported.name}_GPU0", {"VGPU": {"total": 5}})

        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            reported.report(lay_out)
        assert isinstance(failed.value.failures[0].error, errors.InventoryInUse)
        tree = other.get_provider_tree(reported.root, fresh=True)
        assert tree.data(f"{reported.name}_GPU0").inventory["VGPU"]["total"] == 5

    def test_names_placement_refuses_are_left_out_and_logged_once(self, whole, other, caplog):
        def lay_out(tree):
            small(whole.name)(tree)
            tree.add_traits(whole.name, "HW_NOT_A_TRAIT", f"CUSTOM_FINE_{whole.tag}", "CUSTOM_bad")
            tree.update_inventory(
                f"{whole.name}_GPU0", {"VGPU": {"total": 4}, "NOT_A_CLASS": {"total": 1}}
            )

        whole.report(lay_out)
        tree = other.get_provider_tree(whole.root, fresh=True)
        fine = {"OWNER_NOVA", "COMPUTE_NODE", f"CUSTOM_FINE_{whole.tag}"}
        assert tree.data(whole.root).traits == fine
        assert set(tree.data(f"{whole.name}_GPU0").inventory) == {"VGPU"}
        assert whole.client.refused_names == {"HW_NOT_A_TRAIT", "CUSTOM_bad", "NOT_A_CLASS"}
        assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 3
        caplog.clear()
        whole.report(lay_out)
        assert whole.tally.requests == 1
        assert not [r for r in caplog.records if r.levelname == "ERROR"]

    def test_two_devices_that_swap_slots_swap_names(self, reported, other):
        def two(tree):
            small(reported.name)(tree)
            if not tree.exists(f"{reported.name}_GPU1"):
                tree.new_child(f"{reported.name}_GPU1", reported.name)

        reported.report(two)
        tree = other.get_provider_tree(reported.root)
        zero = tree.data(f"{reported.name}_GPU0").uuid
        one = tree.data(f"{reported.name}_GPU1").uuid

        def swap(tree):
            tree.rename(zero, "interim")
            tree.rename(one, f"{reported.name}_GPU0")
            tree.rename(zero, f"{reported.name}_GPU1")

        reported.report(swap)
        assert reported.writes == [f"PUT {path(reported)}"]
        assert other.find_provider(zero).name == f"{reported.name}_GPU1"
        assert other.find_provider(one).name == f"{reported.name}_GPU0"

    def test_a_new_device_in_the_slot_of_a_removed_one_takes_its_name(self, reported, other):
        old = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        new_uuid = str(uuidlib.uuid4())

        def replaced(tree):
            if tree.exists(old):
                tree.remove(old)
                tree.new_child(f"{reported.name}_GPU0", reported.name, new_uuid)

        reported.report(replaced)
        assert reported.writes == [f"PUT {path(reported)}"]
        assert other.find_provider(old) is None
        assert other.find_provider(new_uuid).name == f"{reported.name}_GPU0"


class TestFailures:
    @pytest.mark.parametrize("times", [1, 2])
    def test_a_lost_answer_to_the_first_start_is_found_out(self, whole, other, times):
        lost = lost_after(whole, "PUT", path(whole), times=times)
        whole.report(small(whole.name))
        assert len(lost) == times
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 2
        whole.report(small(whole.name))
        assert whole.tally.writes == 0

    def test_a_lost_answer_to_a_change_is_found_out(self, reported, other):
        lost = lost_after(reported, "PUT", path(reported))
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert lost
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert reported.tally.writes == 0

    @pytest.mark.parametrize("step", [1, 2])
    @pytest.mark.parametrize("done", [True, False])
    def test_a_start_killed_at_any_request_converges(self, whole, other, step, done):
        kill_at(whole, step, done=done)
        with pytest.raises(Killed):
            whole.report(large(whole.name, whole.tag))
        whole.transport.before = whole.transport.after = None
        whole.restart()
        whole.report(large(whole.name, whole.tag))
        whole.report(large(whole.name, whole.tag))
        assert whole.tally.requests == 1
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 45

    @pytest.mark.parametrize("step", [1, 2, 3])
    @pytest.mark.parametrize("done", [True, False])
    def test_a_conflict_killed_at_any_request_converges(self, reported, other, step, done):
        other.change_traits(reported.root, add=["HW_CPU_X86_AVX"])
        kill_at(reported, step, done=done)
        with pytest.raises(Killed):
            reported.pass_at_once(small(reported.name, vcpus=9))
        reported.transport.before = reported.transport.after = None
        reported.restart()
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9
        assert "HW_CPU_X86_AVX" in other.find_provider(reported.root).traits

    def test_a_user_that_may_not_replace_trees_writes_provider_by_provider(self, whole, other):
        may_not_replace_trees(whole)
        whole.report(small(whole.name))
        assert len(other.get_provider_tree(whole.root)) == 2
        whole.report(small(whole.name, vcpus=9))
        assert f"PUT {path(whole)}" not in whole.requests
        assert inventory_of(other, whole.root)["VCPU"]["total"] == 9

    def test_a_user_that_may_not_replace_trees_reads_before_every_pass(self, whole, other):
        may_not_replace_trees(whole)
        whole.report(small(whole.name))
        gpu = other.get_provider_tree(whole.root).data(f"{whole.name}_GPU0").uuid
        other.delete_resource_provider(gpu)
        whole.pass_at_once(small(whole.name, vcpus=9))
        assert whole.requests[0] == f"GET {path(whole)}"
        assert len(other.get_provider_tree(whole.root)) == 2

    def test_a_request_that_crashes_is_gone_around(self, reported, other):
        answering(
            reported,
            500,
            explained(500, "boom"),
            lambda method, sent: (method, sent) == ("PUT", path(reported)),
        )
        reported.report(small(reported.name, vcpus=9))
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9

    def test_four_conflicts_in_a_row_are_a_conflict_of_the_pass(self, reported, other, clock):
        traits = iter(["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "HW_CPU_X86_SSE2"])

        def always(method, sent, body):
            if method == "PUT" and sent == path(reported):
                other.change_traits(reported.root, add=[next(traits)])

        reported.transport.before = always
        with pytest.raises(errors.ResourceProviderUpdateConflict):
            reported.report(small(reported.name, vcpus=9))
        assert len(reported.writes) == 4
        assert len(clock.waits) == 2

    def test_a_provider_deleted_under_the_agent_is_created_again_with_its_uuid(
        self, reported, other
    ):
        uuid = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid

        def lay_out(tree):
            small(reported.name)(tree)
            tree.update_inventory(f"{reported.name}_GPU0", {"VGPU": {"total": 5}})

        other.delete_resource_provider(uuid)
        with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
            reported.pass_at_once(lay_out)
        reported.pass_at_once(lay_out)
        assert inventory_of(other, uuid)["VGPU"]["total"] == 5

    @pytest.mark.parametrize(
        ("status", "headers", "text"),
        [
            (200, {"etag": '"x"'}, "<html>welcome</html>"),
            (200, {"etag": '"x"'}, '{"providers": []}'),
            (200, {"etag": '"x"'}, '{"providers": 5}'),
            (200, {}, None),
            (304, {}, ""),
            (204, {}, ""),
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "PUT"])
    def test_an_answer_that_is_none_is_not_believed(
        self, whole, other, method, status, headers, text
    ):
        """To a read it is an error; to a write, what was not confirmed is written again."""
        whole.restart()

        def lie(sent_method, sent, body, answer):
            if (sent_method, sent) != (method, path(whole)):
                return answer
            content = answer.text if text is None else text
            try:
                document = json.loads(content)
            except ValueError:
                document = None
            return Response(status, headers, document, content)

        whole.transport.after = lie
        if method == "GET":
            with pytest.raises(errors.ResourceProviderRetrievalFailed):
                whole.report(small(whole.name))
            assert whole.writes == []
        else:
            whole.report(small(whole.name))
        whole.transport.after = None
        whole.report(small(whole.name))
        assert len(other.get_provider_tree(whole.root, fresh=True)) == 2
        whole.report(small(whole.name))
        assert whole.tally.requests == 1


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
        assert whole.tally.failed == 0
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


class TestOtherVersions:
    @pytest.mark.parametrize("release", ["1.0", None])
    def test_a_placement_that_goes_back_is_spoken_to_plainly_without_a_restart(
        self, reported, other, release
    ):
        older(reported, release=release)
        reported.pass_at_once(small(reported.name))
        assert reported.tally.writes == 0
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9
        assert not [r for r in reported.requests if "/provider_trees/" in r]

    def test_one_that_goes_back_between_a_plan_and_its_flush_is_written_to_plainly(
        self, reported, other
    ):
        older(reported)
        reported.pass_at_once(small(reported.name, vcpus=9))
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9

    def test_one_that_gains_whole_trees_is_asked_for_them_after_its_versions_are_read(
        self, reported, other
    ):
        older(reported)
        reported.report(small(reported.name, vcpus=9))
        reported.transport.before = None
        reported.client.reconnect()
        reported.report(small(reported.name, vcpus=10))
        assert reported.requests == [f"GET {path(reported)}", f"PUT {path(reported)}"]
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 10

    def test_never_means_never(self, whole, other):
        whole.whole_trees = False
        whole.report(small(whole.name))
        assert not [r for r in whole.requests if "/provider_trees/" in r]


def test_a_trait_that_is_added_alone_and_removed_by_others_is_not_believed_to_be_there(
    reported, other
):
    reported.client.change_traits(reported.root, add=["COMPUTE_STATUS_DISABLED"])
    other.change_traits(reported.root, remove=["COMPUTE_STATUS_DISABLED"])
    reported.report(small(reported.name))
    tree = reported.client.known_tree(reported.root)
    assert "COMPUTE_STATUS_DISABLED" not in tree.data(reported.root).traits


def may_not_replace_trees(host) -> None:
    answering(host, 403, explained(403, "policy"), lambda *sent: sent == ("PUT", path(host)))


class Killed(BaseException):
    """The process ends."""


def kill_at(host, step: int, *, done: bool) -> None:
    """End the process at a request: before it is sent, or after placement carried it out."""
    host.client  # noqa: B018 - asks for the versions first
    left = [step]

    def hook(*_sent):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return _sent[3] if done else None

    if done:
        host.transport.after = hook
    else:
        host.transport.before = hook


def older(host, *, release: str | None = "1.0", from_method: str = "") -> None:
    """Another placement answers from now on: one of an older release, or without extensions."""
    versions = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}
    if release is not None:
        entry = {"id": "placement-ext", "min_version": "1.0", "max_version": release}
        versions["extensions"] = [entry]
    seen = [not from_method]

    def hook(method, sent, body):
        seen[0] = seen[0] or method == from_method
        if not seen[0]:
            return None
        if sent == "/":
            return Response(200, {}, versions, json.dumps(versions))
        if not sent.startswith("/provider_trees/"):
            return None
        if release is None:
            headers = {"openstack-api-version": "placement 1.38"}
            text = explained(404, "The resource could not be found.")
            return Response(404, headers, json.loads(text), text)
        error = {"status": 406, "title": "x", "detail": "x", "min_version": "1.0"}
        document = {"errors": [error | {"max_version": "1.39"}]}
        return Response(406, {}, document, json.dumps(document))

    host.transport.before = hook


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
