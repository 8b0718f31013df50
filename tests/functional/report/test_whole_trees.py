"""Trees that are read with one request, where placement offers that, and written as all are."""

import json
import uuid as uuidlib

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Response
from compute_agent.report.usage import holders_in_tree
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE, explained
from tests.functional.report.gpu_move import assert_done, guests_of, nested, reshape
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import also, large, small

pytestmark = OURS_ALONE


@pytest.fixture
def reported(whole):
    """A host that was reported, and read since."""
    for _ in range(2):
        whole.report(small(whole.name))
    return whole


def path(host) -> str:
    return f"/provider_trees/{host.root}?include=sharing"


def read(host) -> str:
    return f"GET {path(host)}"


def status_of_last(host) -> int:
    return host.transport.exchanges[-1].response.status


def write_of(host, aspect: str, method: str = "PUT") -> str:
    return f"{method} /resource_providers/{host.root}/{aspect}"


def older(host, *, release: str | None = "1.0") -> None:
    """Another placement answers from now on: one of an older release, or without extensions."""
    versions = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}
    if release is not None:
        entry = {"id": "placement-ext", "min_version": "1.0", "max_version": release}
        versions["extensions"] = [entry]

    def hook(_method, sent, _body):
        if sent == "/":
            return Response(200, {}, json.dumps(versions).encode())
        if not sent.startswith("/provider_trees/"):
            return None
        if release is None:
            headers = {"openstack-api-version": "placement 1.38"}
            text = explained(404, "The resource could not be found.")
            return Response(404, headers, text.encode())
        error = {"status": 406, "title": "x", "detail": "x", "min_version": "1.0"}
        document = {"errors": [error | {"max_version": "1.39"}]}
        return Response(406, {}, json.dumps(document).encode())

    host.transport.before = hook


class TestRequests:
    def test_the_first_start_of_a_large_host_takes_99(self, whole, other):
        whole.report(large(whole.name, whole.tag))
        assert whole.requests[0] == read(whole)
        assert whole.tally.requests == 99
        assert len(other.get_provider_tree(whole.root)) == 45

    def test_a_quiet_pass_takes_one_also_on_a_busy_host(self, reported, other):
        for _ in range(2):
            assert reported.report(small(reported.name)).steps == ()
            assert reported.requests == [read(reported)]
            assert status_of_last(reported) == 304
            claim(other, reported.root, {"VCPU": 1})

    def test_a_change_takes_two_and_the_read_after_it_is_a_whole_one(self, reported):
        for status in (200, 304):
            reported.report(small(reported.name, vcpus=9))
            if status == 200:
                assert reported.requests == [read(reported), write_of(reported, "inventories")]
                reported.report(small(reported.name, vcpus=9))
            assert (reported.requests, status_of_last(reported)) == ([read(reported)], status)

    def test_one_change_on_a_busy_host_takes_four(self, reported, other):
        claim(other, reported.root, {"VCPU": 1})
        reported.report(small(reported.name, vcpus=9))
        again = [write_of(reported, "inventories", method) for method in ("GET", "PUT")]
        assert reported.requests == [read(reported), write_of(reported, "inventories"), *again]
        assert other.find_provider(reported.root).inventory["VCPU"]["total"] == 9

    def test_several_changes_on_a_busy_host_take_one_more_than_they_are(self, reported, other):
        claim(other, reported.root, {"VCPU": 1})

        def with_avx(tree):
            tree.add_traits(reported.name, "HW_CPU_X86_AVX")

        reported.client.names.ensure_traits(["HW_CPU_X86_AVX"])
        reported.report(also(small(reported.name, vcpus=9), with_avx))
        assert reported.requests == [
            *[read(reported)] * 2,
            write_of(reported, "inventories"),
            write_of(reported, "traits"),
        ]
        assert reported.tally.failed_count == 0

    def test_many_inventories_are_changed_with_one_more_on_a_busy_host(self, whole, other):
        for _ in range(2):
            whole.report(large(whole.name, whole.tag))
        cell = other.get_provider_tree(whole.root).data(f"{whole.name}_NUMA0").uuid
        claim(other, cell, {"VCPU": 1})

        def grown(tree):
            large(whole.name, whole.tag)(tree)
            for uuid in tree.get_provider_uuids():
                totals = {rc: {"total": 99} for rc in tree.data(uuid).inventory}
                tree.update_inventory(uuid, totals)

        whole.report(grown)
        assert [sent.split("?")[0] for sent in whole.requests] == [
            *[read(whole).split("?")[0]] * 2,
            "POST /reshaper",
            "GET /resource_providers",
        ]
        assert whole.tally.failed_count == 0

    def test_a_change_by_others_that_is_undone_takes_two(self, reported, other):
        other.change_traits(reported.root, remove=["COMPUTE_NODE"])
        reported.report(small(reported.name))
        assert reported.requests == [read(reported), write_of(reported, "traits")]
        assert "COMPUTE_NODE" in other.find_provider(reported.root).traits

    def test_a_tree_that_others_deleted_is_made_again_with_its_uuid(self, reported, other):
        other.delete_resource_provider(reported.root)
        reported.report(small(reported.name))
        assert other.find_provider(reported.root).name == reported.name

    @pytest.mark.parametrize(("cache", "status"), [(True, 304), (False, 200)])
    def test_a_restart_takes_one(self, reported, cache, status):
        reported.restart(cache=cache)
        reported.report(small(reported.name))
        assert (reported.requests, status_of_last(reported)) == ([read(reported)], status)

    def test_a_reshape_reads_with_one_and_is_one(self, whole, other):
        guests = guests_of(whole, other)
        reshape(whole, guests)
        assert whole.requests[0] == f"{read(whole)},allocations"
        assert not [sent for sent in whole.requests if "/allocations/" in sent]
        assert whole.tally.by_call["POST /reshaper"] == 1
        assert_done(whole, other, guests)

    def test_a_reshape_may_change_a_shared_provider_too(self, whole, other):
        guests = guests_of(whole, other)
        storage, aggregate = (str(uuidlib.uuid4()) for _ in range(2))
        providers = other.placement.providers
        providers.create(storage, f"storage-{storage}", None)
        providers.put_traits(storage, storage, 0, ["MISC_SHARES_VIA_AGGREGATE"])
        providers.put_aggregates(storage, storage, 1, [aggregate])
        other.change_aggregates(whole.root, add=[aggregate])
        whole.restart(cache=False)

        with_avx = also(nested(whole.name), lambda tree: tree.add_traits(storage, "HW_CPU_X86_AVX"))
        reshape(whole, guests, lay_out=with_avx)
        assert_done(whole, other, guests)
        assert "HW_CPU_X86_AVX" in providers.traits(storage, storage).content

    def test_who_holds_what_takes_one_and_the_next_quiet_pass_is_none_the_dearer(
        self, reported, other, new_host
    ):
        elsewhere = new_host()
        elsewhere.report(small(elsewhere.name))
        gpu = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        first = claim(other, reported.root, {"VCPU": 1})
        second = claim(other, gpu, {"VGPU": 2})
        other.placement.allocations.add_resources(second, {elsewhere.root: {"VCPU": 1}})
        reported.transport.clear()
        holders = holders_in_tree(reported.client, reported.root)
        assert holders == {reported.root: {first: {"VCPU": 1}}, gpu: {second: {"VGPU": 2}}}
        assert holders == holders_in_tree(other, reported.root)
        assert holders_in_tree(other, "5" * 8 + reported.root[8:]) == {}
        assert reported.requests == [f"{read(reported)},allocations"]
        reported.report(small(reported.name))
        assert status_of_last(reported) == 304

    def test_a_plan_that_only_keeps_what_others_own_leaves_the_tag(self, reported, other):
        theirs = other.placement.providers
        theirs.create("5" * 8 + reported.root[8:], f"{reported.name}:agent", reported.root)

        def without(tree):
            small(reported.name)(tree)
            if tree.exists(f"{reported.name}:agent"):
                tree.remove(f"{reported.name}:agent")

        for status in (200, 304):
            (kept,) = reported.report(without).kept_providers
            assert kept.name == f"{reported.name}:agent"
            assert (reported.requests, status_of_last(reported)) == ([read(reported)], status)


class TestOtherReleases:
    @pytest.mark.parametrize("release", ["1.0", None])
    def test_a_placement_that_goes_back_is_spoken_to_plainly_without_a_restart(
        self, reported, other, release
    ):
        older(reported, release=release)
        assert reported.report(small(reported.name)).steps == ()
        reported.report(small(reported.name, vcpus=9))
        assert other.find_provider(reported.root).inventory["VCPU"]["total"] == 9
        assert not [r for r in reported.requests if "/provider_trees/" in r]

    def test_one_that_goes_back_before_the_allocations_are_read_reshapes_plainly(
        self, whole, other
    ):
        guests = guests_of(whole, other)
        older(whole)
        reshape(whole, guests)
        assert_done(whole, other, guests)

    def test_one_that_gains_whole_trees_is_asked_for_them_after_its_versions_are_read(
        self, reported
    ):
        older(reported)
        reported.report(small(reported.name))
        reported.transport.before = None
        reported.client.reconnect()
        reported.report(small(reported.name))
        assert reported.requests == [read(reported)]

    def test_never_means_never(self, whole):
        whole.whole_trees = False
        whole.report(small(whole.name))
        assert not [r for r in whole.requests if "/provider_trees/" in r]


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
def test_an_answer_that_is_none_is_not_believed(whole, other, status, headers, text):
    whole.report(small(whole.name))
    whole.restart(cache=False)

    def lie(_method, sent, _body, answer):
        if sent != path(whole):
            return answer
        return Response(status, headers, answer.content if text is None else text.encode())

    whole.transport.after = lie
    with pytest.raises(errors.ResourceProviderRetrievalFailed):
        whole.report(small(whole.name))
    assert whole.writes == []
    whole.transport.after = None
    assert whole.report(small(whole.name)).steps == ()


def test_what_others_write_between_the_read_and_several_writes_survives(reported, other):
    before_next(
        reported,
        "PUT",
        "/inventories",
        lambda: other.change_traits(reported.root, add=["COMPUTE_STATUS_DISABLED"]),
    )

    reported.report(
        also(
            small(reported.name, vcpus=9),
            lambda tree: tree.remove_traits(reported.name, "COMPUTE_NODE"),
        )
    )
    held = other.find_provider(reported.root)
    assert held.traits == {"OWNER_NOVA", "COMPUTE_STATUS_DISABLED"}
    assert held.inventory["VCPU"]["total"] == 9


def test_a_trait_that_is_added_alone_and_removed_by_others_is_not_believed_to_be_there(
    reported, other
):
    reported.client.change_traits(reported.root, add=["COMPUTE_STATUS_DISABLED"])
    other.change_traits(reported.root, remove=["COMPUTE_STATUS_DISABLED"])
    reported.report(small(reported.name))
    tree = reported.client.known_tree(reported.root)
    assert "COMPUTE_STATUS_DISABLED" not in tree.data(reported.root).traits


@pytest.mark.parametrize("many", [False, True], ids=["each by itself", "all at once"])
def test_a_provider_that_others_delete_before_several_writes_ends_the_pass_and_comes_back(
    whole, other, many
):
    """Generations may have risen unseen, so the flush reads first, and learns of it there."""
    lay_out = large(whole.name, whole.tag) if many else small(whole.name)
    for _ in range(2):
        whole.report(lay_out)
    tree = whole.client.get_provider_tree(whole.root)
    gone = next(data for u in tree.get_provider_uuids() if "GPU" in (data := tree.data(u)).name)

    def grown(tree):
        for uuid in tree.get_provider_uuids(whole.root):
            inventory = tree.data(uuid).inventory
            tree.update_inventory(uuid, {rc: {**n, "total": 7} for rc, n in inventory.items()})

    def deleted(_tree):
        other.delete_resource_provider(gone.uuid)

    with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
        whole.report(also(lay_out, grown, deleted))
    whole.report(also(lay_out, grown))
    assert other.find_provider(gone.uuid).inventory["VGPU"]["total"] == 7
