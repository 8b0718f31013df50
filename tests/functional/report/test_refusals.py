"""Placement, or somebody in its place, answers that it will not."""

import json

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Request
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE, answering, explained, refused
from tests.functional.report.layouts import also, large, small

pytestmark = OURS_ALONE


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
        def contradict(tree):
            tree.update_inventory(host.name, {"VCPU": {"total": 4, "reserved": 9}})

        lay_out = also(small(host.name), contradict)
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
        tree = other.get_provider_tree(host.root, fresh=True)
        assert tree.data(host.root).inventory["DISK_GB"]["total"] == 99

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
        errors_said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
        assert len([said for said in errors_said if any(n in said for n in refused)]) == 3
        caplog.clear()
        assert host.report(lay_out).steps == ()
        assert host.tally.requests == 1
        assert not [r for r in caplog.records if r.levelname == "ERROR"]

    def test_a_trait_somebody_deleted_is_made_again(self, host, other):
        custom = f"CUSTOM_GONE_{host.tag}"
        host.client.names.ensure_traits([custom])
        host.transport.inner.send(Request("DELETE", f"/traits/{custom}", (1, 30)))

        host.report(also(small(host.name), lambda tree: tree.add_traits(host.name, custom)))
        assert custom in other.find_provider(host.root).traits

    def test_a_class_somebody_deleted_is_made_again(self, host, other):
        custom = f"CUSTOM_GONE_{host.tag}"
        host.client.names.ensure_class(custom)
        host.transport.inner.send(Request("DELETE", f"/resource_classes/{custom}", (1, 30)))

        def lay_out(tree):
            small(host.name)(tree)
            tree.update_inventory(f"{host.name}_GPU0", {custom: {"total": 1}})

        host.report(lay_out)
        tree = other.get_provider_tree(host.root, fresh=True)
        assert custom in tree.data(f"{host.name}_GPU0").inventory
