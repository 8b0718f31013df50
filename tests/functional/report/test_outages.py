"""Placement does not answer, or only with internal errors: what is tried again, what is left."""

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Response
from tests.functional.report.failing_answers import OURS_ALONE, answering, explained, refused
from tests.functional.report.layouts import large, small

pytestmark = OURS_ALONE


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
            return Response(answers.pop(), {"retry-after": "3"}, b"<html>") if answers else None

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

        class Kill(BaseException):
            pass

        def hook(method, path, body):
            left[0] -= 1
            if left[0] < 0:
                raise Kill

        host.transport.before = hook
        with pytest.raises(Kill):
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
        host.restart(connections=1)

        def about_traits(method, path):
            return method == "PUT" and path.endswith("/traits")

        answering(host, 500, explained(500, "boom"), about_traits)
        with pytest.raises(errors.PlacementUnavailable, match="boom"):
            host.report(large(host.name, host.tag))
        assert len({write for write in host.writes if write.endswith("/traits")}) == 3

    def test_a_reshaper_that_crashes_is_gone_around(self, host, other):
        answering(host, 500, explained(500, "boom"), lambda _, path: path == "/reshaper")
        host.report(large(host.name, host.tag))
        assert host.tally.by_call["PUT /resource_providers/*/inventories"] == 43
        tree = other.get_provider_tree(host.root)
        assert sum(tree.has_inventory(uuid) for uuid in tree.get_provider_uuids()) == 43
