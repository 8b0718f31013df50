"""Conflicts, outages and refusals of whole trees, and the end of the process."""

import json

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Response
from tests.functional.report.failing_answers import OURS_ALONE, answering, explained, lost_after
from tests.functional.report.layouts import large, small

from .interruptions import Killed, inventory_of, kill_at, may_not_replace_trees, path

pytestmark = OURS_ALONE


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
