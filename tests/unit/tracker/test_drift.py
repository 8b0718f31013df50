"""Instances and allocations that disagree: suspected late, told once, never touched."""

import logging

import pytest

from compute_agent.tracker.drift import Drift, DriftAudit


@pytest.fixture
def audit() -> DriftAudit:
    return DriftAudit("host1", lambda: 3600.0, lambda: 300.0, started_at=0.0)


def test_the_first_audit_is_one_interval_after_the_start_and_never_without_one(audit):
    assert not audit.due(3599.0)
    assert audit.due(3600.0)
    audit.run(3600.0, [], {})
    assert not audit.due(7199.0)
    assert not DriftAudit("h", lambda: 0.0, lambda: 0.0, 0.0).due(10**9)


def test_a_consumer_that_runs_here_agrees(audit):
    assert audit.run(0.0, ["a"], {"root": ["a"], "gpu": ["a"]}) == Drift()


def test_a_consumer_on_its_way_is_suspected_only_after_the_time_of_grace(audit):
    assert not audit.run(0.0, [], {"root": ["a"]}).orphaned
    assert not audit.run(299.0, [], {"root": ["a"]}).orphaned
    assert audit.run(300.0, [], {"gpu": ["a"]}).orphaned == {"a"}


def test_a_consumer_that_went_and_came_has_its_time_of_grace_again(audit):
    audit.run(0.0, [], {"root": ["a"]})
    audit.run(200.0, [], {})
    assert not audit.run(400.0, [], {"root": ["a"]}).orphaned


def test_an_instance_without_allocation_is_missing_it(audit):
    assert audit.run(0.0, ["a", "b"], {"root": ["b"]}).missing == {"a"}


def test_instances_of_other_nodes_are_not_taken_for_missing(audit):
    assert not audit.run(0.0, ["a"], {}, all_run_here=False).missing


def test_what_disagrees_is_logged_when_it_begins_and_when_it_ends(audit, caplog):
    caplog.set_level(logging.INFO)
    for now in (0.0, 400.0, 800.0):
        audit.run(now, ["m"], {"root": ["o"]})
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    audit.run(1200.0, [], {})
    assert [r.levelname for r in caplog.records[2:]] == ["INFO", "INFO"]
