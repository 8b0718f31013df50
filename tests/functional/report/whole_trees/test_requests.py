"""Requests that a pass takes with whole trees."""

import json
import uuid as uuidlib

from compute_agent.report.usage import holders_in_tree
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE
from tests.functional.report.layouts import large, small

from .interruptions import inventory_of, path

pytestmark = OURS_ALONE


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
        assert reported.tally.failed_count == 1
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

        assert [kept.uuid for kept in reported.report(without).kept_providers] == [theirs]
        assert reported.writes == []
        assert other.find_provider(theirs) is not None
