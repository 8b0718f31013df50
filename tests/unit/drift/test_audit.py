"""Instances and allocations that disagree: suspected late, told once, never touched."""

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.drift.audit import Auditor, Drift, DriftAudit
from compute_agent.placement.allocations.allocations import ConsumerNature
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.status import StatusBoard

OLD = ConsumerNature("INSTANCE", 86400.0)
OF_NO_KIND = ConsumerNature()
HELD = {"resources": {"VCPU": 1}}


class Book:
    """A claim book without a claim."""

    def __init__(self, moving=()):
        self._moving = list(moving)

    def claims(self):
        return []

    def moving(self):
        return self._moving

    def differences(self, _node, _holders):
        return {}

    def forget_stale(self, _node):
        return []


def auditor_of(
    driver: Any,
    board: StatusBoard,
    tree: ProviderTree,
    holders: dict[str, Any] | None = None,
    nature: ConsumerNature = OF_NO_KIND,
    moving: tuple[str, ...] = (),
) -> Auditor:
    """Return an auditor without grace, of a node of which these consumers hold something."""
    allocations = SimpleNamespace(read_consumer=lambda _consumer: ({}, nature))
    report = SimpleNamespace(
        tracing=nullcontext,
        allocations_with_tree=lambda _root: None,
        get_provider_tree=lambda _root, **_fresh: tree,
        get_allocations_for_provider=lambda _uuid: holders,
        placement=SimpleNamespace(allocations=allocations, trees=SimpleNamespace(is_offered=False)),
    )
    return Auditor(
        report,
        driver,
        board,
        Book(moving),
        interval=lambda: 10.0,
        grace=lambda: 0.0,
        clock=iter(range(0, 1000, 20)).__next__,
    )


def tree_of_vcpus() -> tuple[ProviderTree, str]:
    tree = ProviderTree()
    root = tree.new_root("host1", "00000000-0000-4000-8000-00000000aaaa", 1)
    tree.update_inventory(root, {"VCPU": {"total": 8}})
    return tree, root


@pytest.fixture
def audit() -> DriftAudit:
    return DriftAudit("host1", lambda: 3600.0, lambda: 300.0, started_at=0.0)


def test_the_first_audit_is_one_interval_after_the_start_and_never_without_one(audit):
    assert not audit.is_due(3599.0)
    assert audit.is_due(3600.0)
    audit.run(3600.0, [], {})
    assert not audit.is_due(7199.0)
    assert not DriftAudit("h", lambda: 0.0, lambda: 0.0, 0.0).is_due(10**9)


def test_a_consumer_that_runs_here_agrees(audit):
    assert audit.run(0.0, ["a"], {"root": ["a"], "gpu": ["a"]}) == Drift()


def test_a_consumer_on_its_way_is_suspected_only_after_the_time_of_grace(audit):
    assert not audit.run(0.0, [], {"root": ["a"]}).orphans
    assert not audit.run(299.0, [], {"root": ["a"]}).orphans
    assert audit.run(300.0, [], {"gpu": ["a"]}).orphans == {"a"}


def test_a_consumer_that_went_and_came_has_its_time_of_grace_again(audit):
    audit.run(0.0, [], {"root": ["a"]})
    audit.run(200.0, [], {})
    assert not audit.run(400.0, [], {"root": ["a"]}).orphans


@pytest.mark.parametrize(("age", "suspected"), [(299.0, False), (300.0, True), (86400.0, True)])
def test_the_age_of_a_consumer_is_that_of_its_allocations_where_placement_tells_it(
    audit, age, suspected
):
    nature = {"a": ConsumerNature("INSTANCE", age)}
    found = audit.run(0.0, [], {"root": ["a"]}, strangers=nature)
    assert bool(found.orphans) is suspected, "seen for the first time, however old it is"


@pytest.mark.parametrize(
    ("kind", "suspected"),
    [("INSTANCE", True), ("MIGRATION", True), (None, True), ("VOLUME", False)],
)
def test_only_consumers_that_belong_to_hosts_are_suspected(audit, kind, suspected):
    nature = {"a": ConsumerNature(kind, 1000.0)}
    found = audit.run(0.0, [], {"root": ["a"]}, strangers=nature)
    assert bool(found.orphans) is suspected


def test_what_differs_is_said_when_it_begins_changes_and_ends(audit, caplog):
    caplog.set_level(logging.INFO)
    held = {"root": ["a"]}
    for what in ("it has 1 and holds 2", "it has 1 and holds 2", "it has 3 and holds 2"):
        assert audit.run(0.0, ["a"], held, differences={"a": what}).differences == {"a": what}
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "it has 3 and holds 2" in caplog.text
    assert not audit.run(0.0, ["a"], held).differences
    assert "agree again" in caplog.records[-1].getMessage()


def test_an_instance_without_allocation_is_missing_it(audit):
    assert audit.run(0.0, ["a", "b"], {"root": ["b"]}).missing_consumers == {"a"}


def test_a_driver_that_cannot_tell_names_no_orphans_and_is_not_one_without_guests(audit, caplog):
    held = {"root": ["a", "b"]}
    assert audit.run(0.0, [], held, strangers=dict.fromkeys("ab", OLD)).orphans == {"a", "b"}
    caplog.clear()
    found = audit.run(
        400.0, None, held, unfounded_consumers=["c"], differences={"b": "it holds less"}
    )
    assert found.as_lists() == {"missing": ["c"], "differing": ["b"]}
    assert "does not run here" not in caplog.text
    assert "drop-claim c" in caplog.text
    assert audit.without(frozenset({"c"})).as_lists() == {"missing": [], "differing": ["b"]}


def test_what_was_claimed_here_is_no_orphan_and_not_missing_either(audit):
    found = audit.run(0.0, [], {"root": ["a"]}, claiming_consumers=["a", "c"], strangers={"a": OLD})
    assert found == Drift()


def test_instances_of_other_nodes_are_not_taken_for_missing(audit):
    assert not audit.run(0.0, ["a"], {}, all_run_here=False).missing_consumers


def test_what_disagrees_is_logged_when_it_begins_and_when_it_ends(audit, caplog):
    caplog.set_level(logging.INFO)
    for now in (0.0, 400.0, 800.0):
        audit.run(now, ["m"], {"root": ["o"]})
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    audit.run(1200.0, [], {})
    assert [r.levelname for r in caplog.records[2:]] == ["INFO", "INFO"]


def test_an_audit_that_fails_however_does_no_harm_and_is_told_once(caplog):
    class Driver:
        several_nodes = False
        trouble: Exception | None = RuntimeError("the hypervisor's library broke")

        def list_instance_uuids(self):
            if self.trouble is not None:
                raise self.trouble
            return []

    driver, board = Driver(), StatusBoard("h")
    auditor = auditor_of(driver, board, ProviderTree())
    for _ in range(3):
        auditor.after_pass("host1", "root")
    (told,) = caplog.records
    assert "were not compared" in told.message
    assert told.exc_info, "it is a defect of the driver, so its traceback is logged"
    driver.trouble = None
    auditor.after_pass("host1", "root")
    assert board.node("host1").drift == {"orphaned": [], "missing": [], "differing": []}


def test_a_move_that_the_host_knows_of_is_no_orphan():
    tree, root = tree_of_vcpus()
    holders = {"migration": HELD, "stranger": HELD}
    driver = SimpleNamespace(several_nodes=False, list_instance_uuids=list)
    board, nature = StatusBoard("h"), ConsumerNature("MIGRATION", 1.0)
    auditor_of(driver, board, tree, holders, nature, moving=("migration",)).after_pass(
        "host1", root
    )
    assert board.node("host1").drift["orphaned"] == ["stranger"]


def test_what_an_audit_finds_is_handed_on_and_what_is_healed_is_no_drift_any_more():
    tree, root = tree_of_vcpus()
    holders = {"gone": HELD, "other": HELD}
    board, found = StatusBoard("h"), []
    driver = SimpleNamespace(several_nodes=False, list_instance_uuids=lambda: ["m"])
    auditor = auditor_of(driver, board, tree, holders)
    auditor.on_drift = lambda *told: found.append(told)
    auditor.record_healed("host1", root, frozenset({"gone"}))
    auditor.after_pass("host1", root)
    drift = Drift(frozenset({"gone", "other"}), frozenset({"m"}))
    assert found == [("host1", root, drift)]
    auditor.record_healed("host1", root, frozenset({"gone", "m"}))
    assert board.node("host1").drift == {"orphaned": ["other"], "missing": [], "differing": []}
    board.forget_node("host1")
    auditor.record_healed("host1", root, frozenset({"other"}))
    assert board.node("host1") is None
