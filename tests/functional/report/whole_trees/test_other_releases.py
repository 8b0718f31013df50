"""Placement that loses or gains whole trees while an agent runs."""

import pytest

from tests.functional.report.failing_answers import OURS_ALONE
from tests.functional.report.layouts import small

from .interruptions import inventory_of, older, path

pytestmark = OURS_ALONE


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
