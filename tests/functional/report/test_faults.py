"""Placement answers wrongly, or not at all; or its answer is lost after the work was done."""

import json

import pytest

from compute_agent import errors
from compute_agent.report.allocations import AlreadyClaimed, Claimed
from compute_agent.report.transport import Response
from tests.functional.report.layouts import large, small
from tests.functional.report.test_request_counts import claim

# What the client makes of broken answers does not depend on who did not break them.
pytestmark = pytest.mark.parametrize("placement", ["ours"], indirect=True)


def lost_after(host, method: str, ending: str, times: int = 1) -> list[str]:
    """The next such requests reach placement, their answers get lost on the way back."""
    lost: list[str] = []

    def hook(sent_method, path, body, response):
        if len(lost) < times and sent_method == method and path.split("?")[0].endswith(ending):
            lost.append(path)
            raise errors.PlacementAPIConnectFailure("connection reset", method=method, path=path)
        return response

    host.transport.after = hook
    return lost


def refused(host, times: int = 10**6) -> None:
    """Nobody listens."""
    left = [times]

    def hook(method, path, body):
        if left[0] > 0:
            left[0] -= 1
            raise errors.PlacementAPIConnectFailure("refused", method=method, path=path)

    host.transport.before = hook


def answering(host, status: int, text: str, when, headers: dict | None = None) -> None:
    """Answer matching requests in placement's place."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None

    def hook(method, path, sent):
        return Response(status, headers or {}, body, text) if when(method, path) else None

    host.transport.before = hook


def explained(status: int, detail: str, code: str = "placement.undefined_code") -> str:
    return json.dumps(
        {"errors": [{"status": status, "title": "x", "detail": detail, "code": code}]}
    )


def content(client, root: str) -> dict:
    tree = client.get_provider_tree(root)
    return {
        p.name: (dict(p.inventory), p.traits) for p in map(tree.data, tree.get_provider_uuids())
    }


class TestLostAnswers:
    def test_a_lost_answer_to_creating_a_provider_creates_it_once(self, host, other):
        lost = lost_after(host, "POST", "/resource_providers", times=2)
        host.report(small(host.name))
        assert len(lost) == 2
        assert len(other.get_provider_tree(host.root, fresh=True)) == 2
        host.report(small(host.name))
        assert host.tally.writes == 0

    @pytest.mark.parametrize("ending", ["/inventories", "/traits", "/aggregates"])
    def test_a_lost_answer_to_replacing_something_is_found_out(self, host, other, ending):
        host.report(small(host.name))
        aggregate = host.root

        def lay_out(tree):
            small(host.name, vcpus=9)(tree)
            tree.add_traits(host.name, "HW_CPU_X86_AVX")
            tree.add_aggregates(host.name, aggregate)

        lost = lost_after(host, "PUT", ending)
        host.report(lay_out)
        assert lost
        held = other.find_provider(host.root)
        assert held.inventory["VCPU"]["total"] == 9
        assert "HW_CPU_X86_AVX" in held.traits
        assert held.aggregates == {aggregate}
        host.report(lay_out)
        assert host.tally.writes == 0

    def test_a_lost_answer_to_bulk_inventories_converges_in_the_next_pass(self, host, other):
        lay_out = large(host.name, host.tag)
        lost = lost_after(host, "POST", "/reshaper")
        with pytest.raises(errors.PlacementUnavailable):
            host.report(lay_out)
        assert lost
        host.report(lay_out)
        host.report(lay_out)
        assert host.tally.requests == 1
        assert len(other.get_provider_tree(host.root, fresh=True)) == 45

    def test_a_lost_answer_to_a_claim_is_still_one_claim(self, host, other):
        host.report(small(host.name))
        lost = lost_after(host, "PUT", "")
        consumer = "c0000000-0000-4000-8000-" + host.root[-12:]
        request = {"allocations": {host.root: {"resources": {"VCPU": 2}}}}
        host.transport.after, hook = None, host.transport.after

        def only_allocations(method, path, body, response):
            return hook("PUT", "", body, response) if path.endswith(consumer) else response

        host.transport.after = only_allocations
        result = host.client.claim_resources(consumer, request, "p", "u", "1.39")
        assert lost
        assert result == Claimed(consumer)
        record = other.get_allocs_for_consumer(consumer)
        assert record["allocations"][host.root]["resources"] == {"VCPU": 2}
        assert record["consumer_generation"] == 1

    def test_a_lost_answer_to_a_move_is_still_one_move(self, host, other):
        host.report(small(host.name))
        source = claim(host.client, host.root, {"VCPU": 1})
        target = source[:-1] + ("0" if source[-1] != "0" else "1")
        lost = lost_after(host, "POST", "/allocations")
        assert host.client.move_allocations(source, target)
        assert lost
        assert other.get_allocs_for_consumer(source) == {"allocations": {}}
        assert host.root in other.get_allocs_for_consumer(target)["allocations"]

    def test_a_lost_answer_to_a_deletion_deletes_once(self, host, other):
        host.report(small(host.name))

        def without(tree):
            small(host.name)(tree)
            tree.remove(f"{host.name}_GPU0")

        gpu = host.client.get_provider_tree(host.root).data(f"{host.name}_GPU0").uuid
        lost = lost_after(host, "DELETE", gpu)
        assert host.report(without).kept == []
        assert lost
        assert other.find_provider(gpu) is None


class TestOutages:
    def test_a_placement_nobody_listens_at_is_unavailable_after_three_tries(self, host, clock):
        host.restart()
        refused(host)
        with pytest.raises(errors.PlacementAPIConnectFailure):
            host.report(small(host.name))
        assert host.tally.requests == 3
        assert [0.375 <= clock.waits[0] <= 0.625, 0.75 <= clock.waits[1] <= 1.25] == [True, True]

    def test_two_failures_in_a_row_are_ridden_out(self, host):
        host.report(small(host.name))
        refused(host, times=2)
        host.report(small(host.name))
        assert host.tally.requests == 3

    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    def test_retry_after_is_waited_for_when_it_is_short(self, host, clock, status):
        host.report(small(host.name))
        clock.waits.clear()
        answers = [status, status]

        def hook(method, path, body):
            return (
                Response(answers.pop(), {"retry-after": "3"}, None, "<html>") if answers else None
            )

        host.transport.before = hook
        host.report(small(host.name))
        assert clock.waits == [3.0, 3.0]

    def test_a_long_retry_after_is_left_to_the_caller(self, host, clock):
        host.report(small(host.name))
        clock.waits.clear()
        answering(host, 503, "busy", lambda *_: True, {"retry-after": "120"})
        with pytest.raises(errors.PlacementUnavailable) as failed:
            host.report(small(host.name))
        assert failed.value.retry_after == 120
        assert clock.waits == []

    def test_an_outage_in_the_middle_ends_the_flush_and_the_next_one_does_the_rest(
        self, host, other
    ):
        lay_out = large(host.name, host.tag)
        host.restart(connections=1)
        done = [0]

        def hook(method, path, body):
            done[0] += 1
            if done[0] > 60:
                raise errors.PlacementAPIConnectFailure("gone", method=method, path=path)

        host.transport.before = hook
        with pytest.raises(errors.PlacementAPIConnectFailure):
            host.report(lay_out)
        assert done[0] <= 66
        host.transport.before = None
        host.report(lay_out)
        host.report(lay_out)
        assert host.tally.requests == 1
        assert len(other.get_provider_tree(host.root, fresh=True)) == 45

    @pytest.mark.parametrize("written", [True, False])
    @pytest.mark.parametrize("cut", [2, 20, 47, 70, 97, 98])
    def test_a_flush_cut_at_any_request_converges_after_a_restart(self, host, other, cut, written):
        """The process dies; the cache file is what it was before the flush, or in the middle."""
        lay_out = large(host.name, host.tag)
        host.restart(connections=1)
        left = [cut]

        class Killed(BaseException):
            pass

        def hook(method, path, body):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        host.transport.before = hook
        with pytest.raises(Killed):
            host.report(lay_out)
        host.transport.before = None
        if not written:
            host.cache_path.unlink(missing_ok=True)
        host.restart()
        host.report(lay_out)
        host.report(lay_out)
        assert host.tally.requests == 1
        wanted = other.get_provider_tree(host.root, fresh=True)
        assert len(wanted) == 45
        assert sum(wanted.has_inventory(uuid) for uuid in wanted.get_provider_uuids()) == 43

    def test_an_internal_error_about_one_provider_does_not_stop_the_others(self, host, other):
        def about_gpu(method, path):
            return method == "PUT" and "/traits" in path and host.root not in path

        answering(host, 500, explained(500, "boom"), about_gpu)
        with pytest.raises(errors.PlacementUnavailable, match="boom"):
            host.report(small(host.name))
        tree = other.get_provider_tree(host.root, fresh=True)
        assert tree.data(host.root).inventory["VCPU"]["total"] == 8
        assert not tree.has_inventory(f"{host.name}_GPU0")
        host.transport.before = None
        host.report(small(host.name))
        assert other.get_provider_tree(host.root, fresh=True).has_inventory(f"{host.name}_GPU0")

    def test_internal_errors_about_everything_are_an_outage_after_three(self, host):
        lay_out = large(host.name, host.tag)
        answering(host, 500, explained(500, "boom"), lambda method, _: method == "PUT")
        with pytest.raises(errors.PlacementUnavailable, match="boom"):
            host.report(lay_out)
        assert host.tally.by_call["PUT /resource_providers/*/traits"] <= 7 * 3

    def test_a_reshaper_that_crashes_is_gone_around(self, host, other):
        answering(host, 500, explained(500, "boom"), lambda _, path: path == "/reshaper")
        host.report(large(host.name, host.tag))
        assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 43
        tree = other.get_provider_tree(host.root)
        assert sum(tree.has_inventory(uuid) for uuid in tree.get_provider_uuids()) == 43


class TestRefusals:
    @pytest.mark.parametrize("status", [401, 403])
    def test_wrong_credentials_end_the_flush_at_once(self, host, status):
        host.report(small(host.name))
        answering(host, status, explained(status, "no"), lambda method, _: method == "PUT")
        with pytest.raises(errors.PlacementUnauthorized) as failed:
            host.report(small(host.name, vcpus=9))
        assert failed.value.status == status
        assert host.tally.requests == 2

    def test_a_too_old_placement_is_named_with_both_versions(self, host):
        text = json.dumps(
            {
                "errors": [
                    {
                        "status": 406,
                        "detail": "Unacceptable version header: 1.30",
                        "min_version": "1.0",
                        "max_version": "1.29",
                    }
                ]
            }
        )
        host.restart()
        answering(host, 406, text, lambda *_: True)
        with pytest.raises(errors.PlacementTooOld, match=r"1\.30, placement offers 1\.0 to 1\.29"):
            host.report(small(host.name))

    def test_the_version_document_of_a_too_old_placement_is_refused(self, host):
        host.restart()
        document = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.29"}]}
        refused(host, times=3)
        with pytest.raises(errors.PlacementUnavailable):
            host.report(small(host.name))
        answering(host, 200, json.dumps(document), lambda *_: True)
        with pytest.raises(errors.PlacementTooOld, match=r"1\.0 to 1\.29, at least 1\.30"):
            host.client.connect()

    @pytest.mark.parametrize(
        "text",
        [
            "<html>login</html>",
            "",
            "[]",
            '{"versions": []}',
            '{"resource_providers": null}',
            '{"resource_providers": [{"uuid": "x"}]}',
        ],
    )
    def test_a_login_page_is_not_taken_for_an_empty_placement(self, host, text):
        host.restart()
        answering(host, 200, text, lambda *_: True)
        with pytest.raises(errors.ResourceProviderRetrievalFailed, match="URL of placement"):
            host.report(small(host.name))
        assert host.tally.writes == 0

    def test_a_proxys_404_does_not_make_a_provider_vanish(self, host, other):
        host.report(small(host.name))
        answering(host, 404, "<html>no such page</html>", lambda method, _: method == "PUT")
        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            host.report(small(host.name, vcpus=9))
        assert "no such page" in str(failed.value)
        assert type(failed.value.failures[0].error) is errors.PlacementError

    def test_a_proxys_500_is_an_outage(self, host):
        host.restart()
        answering(host, 500, "<html>oops</html>", lambda *_: True)
        with pytest.raises(errors.PlacementUnavailable, match="oops"):
            host.report(small(host.name))

    def test_a_refused_inventory_is_named_and_the_others_are_written(self, host, other):
        def lay_out(tree):
            small(host.name)(tree)
            tree.update_inventory(host.name, {"VCPU": {"total": 4, "reserved": 9}})

        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            host.report(lay_out)
        assert [(f.name, f.aspect) for f in failed.value.failures] == [(host.name, "inventories")]
        assert isinstance(failed.value.failures[0].error, errors.InvalidInventory)
        assert "reserved value" in str(failed.value)
        assert failed.value.request_id.startswith("req-")
        assert other.get_provider_tree(host.root, fresh=True).has_inventory(f"{host.name}_GPU0")

    def test_a_class_in_use_cannot_go(self, host, other):
        host.report(small(host.name))
        claim(other, host.root, {"VCPU": 1})

        def lay_out(tree):
            small(host.name)(tree)
            tree.update_inventory(host.name, {"MEMORY_MB": {"total": 1024}})

        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            host.report(lay_out)
        assert isinstance(failed.value.failures[0].error, errors.InventoryInUse)
        assert "VCPU" in str(failed.value)

    def test_a_user_that_may_not_reshape_writes_inventories_one_by_one(self, host, other):
        answering(host, 403, explained(403, "policy"), lambda _, path: path == "/reshaper")
        host.report(large(host.name, host.tag))
        assert host.tally.requests == 141
        assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 43

        def grown(tree):
            large(host.name, host.tag)(tree)
            for uuid in tree.get_provider_uuids():
                inventory = {rc: {"total": 99} for rc in tree.data(uuid).inventory}
                tree.update_inventory(uuid, inventory)

        host.report(grown)
        assert host.tally.by_call["POST /reshaper"] == 0
        assert (
            other.get_provider_tree(host.root, fresh=True)
            .data(host.root)
            .inventory["DISK_GB"]["total"]
            == 99
        )

    def test_a_conflict_in_bulk_inventories_falls_back_to_single_writes(self, host, other):
        lay_out = large(host.name, host.tag)

        def hook(method, path, body):
            if path == "/reshaper":
                host.transport.before = None
                uuid = list(body["inventories"])[7]
                other.change_traits(uuid, add=["HW_CPU_X86_AVX"])

        host.transport.before = hook
        host.report(lay_out)
        assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 44
        host.report(lay_out)
        assert host.tally.writes == 0

    def test_names_placement_refuses_are_left_out_and_said_once(self, host, other, caplog):
        def lay_out(tree):
            small(host.name)(tree)
            tree.add_traits(host.name, "HW_NOT_A_TRAIT", f"CUSTOM_FINE_{host.tag}", "CUSTOM_bad")
            tree.update_inventory(
                f"{host.name}_GPU0", {"VGPU": {"total": 4}, "NOT_A_CLASS": {"total": 1}}
            )

        host.report(lay_out)
        tree = other.get_provider_tree(host.root, fresh=True)
        assert tree.data(host.root).traits == {
            "OWNER_NOVA",
            "COMPUTE_NODE",
            f"CUSTOM_FINE_{host.tag}",
        }
        assert set(tree.data(f"{host.name}_GPU0").inventory) == {"VGPU"}
        refused = {"HW_NOT_A_TRAIT", "CUSTOM_bad", "NOT_A_CLASS"}
        assert host.client.refused_names == refused
        errors_said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
        assert len([said for said in errors_said if any(n in said for n in refused)]) == 3
        caplog.clear()
        host.report(lay_out)
        assert host.tally.requests == 1
        assert not [r for r in caplog.records if r.levelname == "ERROR"]

    def test_a_trait_somebody_deleted_is_made_again(self, host, other):
        custom = f"CUSTOM_GONE_{host.tag}"
        host.client.names.ensure_traits([custom])
        host.transport.inner.request("DELETE", f"/traits/{custom}", (1, 30))

        def lay_out(tree):
            small(host.name)(tree)
            tree.add_traits(host.name, custom)

        host.report(lay_out)
        assert custom in other.find_provider(host.root).traits

    def test_a_class_somebody_deleted_is_made_again(self, host, other):
        custom = f"CUSTOM_GONE_{host.tag}"
        host.client.names.ensure_class(custom)
        host.transport.inner.request("DELETE", f"/resource_classes/{custom}", (1, 30))

        def lay_out(tree):
            small(host.name)(tree)
            tree.update_inventory(f"{host.name}_GPU0", {custom: {"total": 1}})

        host.report(lay_out)
        assert (
            custom
            in other.get_provider_tree(host.root, fresh=True).data(f"{host.name}_GPU0").inventory
        )


class TestTracing:
    def test_every_request_of_a_pass_carries_one_global_request_id(self, host):
        with host.client.tracing("req-11111111-2222-4333-8444-555555555555"):
            host.client.get_provider_tree_and_ensure_root(host.root, host.name)
        ids = {exchange.global_request_id for exchange in host.transport.exchanges}
        assert ids == {"req-11111111-2222-4333-8444-555555555555"}

    def test_requests_made_on_other_threads_are_counted_with_the_pass(self, host):
        host.report(large(host.name, host.tag))
        assert host.tally.requests == len(host.requests)
        ids = {exchange.global_request_id for exchange in host.transport.exchanges}
        assert ids == {host.tally.global_request_id}

    def test_two_passes_have_different_ids(self, host):
        host.report(small(host.name))
        first = host.tally.global_request_id
        host.report(small(host.name))
        assert first != host.tally.global_request_id

    def test_an_error_carries_placements_own_request_id(self, host):
        host.report(small(host.name))
        with pytest.raises(errors.PlacementError) as failed:
            host.client.providers.create_trait("HW_WRONG")
        assert failed.value.request_id.startswith("req-")
        assert failed.value.request_id in str(failed.value)


def test_a_second_different_claim_for_a_consumer_is_told_apart_from_a_lost_answer(host, other):
    host.report(small(host.name))
    consumer = claim(other, host.root, {"VCPU": 1})
    request = {"allocations": {host.root: {"resources": {"VCPU": 2}}}}
    result = host.client.claim_resources(consumer, request, "project", "user", "1.39")
    assert isinstance(result, AlreadyClaimed)
    assert result.record["allocations"][host.root]["resources"] == {"VCPU": 1}
