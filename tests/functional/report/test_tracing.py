"""The ids by which the requests of a pass are found in the logs."""

import pytest

from compute_agent import errors
from tests.functional.report.failing_answers import OURS_ALONE
from tests.functional.report.layouts import large, small

pytestmark = OURS_ALONE


class TestTracing:
    def test_every_request_of_a_pass_carries_one_global_request_id(self, host):
        with host.client.tracing("req-11111111-2222-4333-8444-555555555555"):
            host.client.get_provider_tree_and_ensure_root(host.root, host.name)
        ids = {exchange.request.global_request_id for exchange in host.transport.exchanges}
        assert ids == {"req-11111111-2222-4333-8444-555555555555"}

    def test_requests_made_on_other_threads_are_counted_with_the_pass(self, host):
        host.report(large(host.name, host.tag))
        assert host.tally.requests == len(host.requests)
        ids = {exchange.request.global_request_id for exchange in host.transport.exchanges}
        assert ids == {host.tally.global_request_id}

    def test_two_passes_have_different_ids(self, host):
        host.report(small(host.name))
        first = host.tally.global_request_id
        host.report(small(host.name))
        assert first != host.tally.global_request_id

    def test_an_error_carries_placements_own_request_id(self, host):
        host.report(small(host.name))
        with pytest.raises(errors.PlacementError) as failed:
            host.client.placement.providers.create_trait("HW_WRONG")
        assert failed.value.request_id.startswith("req-")
        assert failed.value.request_id in str(failed.value)
