"""Placement did the work, and its answer got lost on the way back."""

import pytest

from compute_agent import errors
from tests.functional.report.claims import ask, claim
from tests.functional.report.failing_answers import OURS_ALONE, lost_after
from tests.functional.report.layouts import also, large, small

pytestmark = OURS_ALONE


class TestLostAnswers:
    def test_a_lost_answer_to_creating_a_provider_creates_it_once(self, host, other):
        lost = lost_after(host, "POST", "/resource_providers", times=2)
        host.report(small(host.name))
        assert len(lost) == 2
        assert len(other.get_provider_tree(host.root, fresh=True)) == 2
        host.report(small(host.name))
        assert host.tally.writes == 0

    @pytest.mark.parametrize("name", ["{}", "{}_GPU0"])
    def test_what_others_write_to_a_provider_whose_creation_is_not_answered_stays(
        self, host, other, name
    ):
        made = []

        def lose(method, path, body, answer):
            if not made and method == "POST" and (body or {}).get("name") == name.format(host.name):
                made.append(body["uuid"])
                other.change_traits(body["uuid"], add=["HW_CPU_X86_AVX"])
                raise errors.PlacementAPIConnectFailure("reset", method=method, path=path)
            return answer

        host.transport.after = lose
        host.report(small(host.name))
        assert other.find_provider(made[0]).traits > {"HW_CPU_X86_AVX"}

    @pytest.mark.parametrize("ending", ["/inventories", "/traits", "/aggregates"])
    def test_a_lost_answer_to_replacing_something_is_found_out(self, host, other, ending):
        host.report(small(host.name))
        aggregate = host.root

        lay_out = also(
            small(host.name, vcpus=9),
            lambda tree: tree.add_traits(host.name, "HW_CPU_X86_AVX"),
            lambda tree: tree.add_aggregates(host.name, aggregate),
        )
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
        for _ in range(3):
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
        result = ask(host, consumer, request)
        assert lost
        assert result is None
        record = other.placement.allocations.get_allocs_for_consumer(consumer)
        assert record["allocations"][host.root]["resources"] == {"VCPU": 2}
        assert record["consumer_generation"] == 1

    def test_a_lost_answer_to_a_move_is_still_one_move(self, host, other):
        host.report(small(host.name))
        source = claim(host.client, host.root, {"VCPU": 1})
        target = source[:-1] + ("0" if source[-1] != "0" else "1")
        lost = lost_after(host, "POST", "/allocations")
        assert host.allocations.move_allocations(source, target)
        assert lost
        assert other.placement.allocations.get_allocs_for_consumer(source) == {"allocations": {}}
        assert (
            host.root in other.placement.allocations.get_allocs_for_consumer(target)["allocations"]
        )

    def test_a_lost_answer_to_a_deletion_deletes_once(self, host, other):
        host.report(small(host.name))

        without = also(small(host.name), lambda tree: tree.remove(f"{host.name}_GPU0"))
        gpu = host.client.get_provider_tree(host.root).data(f"{host.name}_GPU0").uuid
        lost = lost_after(host, "DELETE", gpu)
        assert host.report(without).kept_providers == []
        assert lost
        assert other.find_provider(gpu) is None


def test_a_second_different_claim_for_a_consumer_is_told_apart_from_a_lost_answer(host, other):
    host.report(small(host.name))
    consumer = claim(other, host.root, {"VCPU": 1})
    request = {"allocations": {host.root: {"resources": {"VCPU": 2}}}}
    with pytest.raises(errors.HoldsAnother) as caught:
        ask(host, consumer, request)
    assert caught.value.record["allocations"][host.root]["resources"] == {"VCPU": 1}
