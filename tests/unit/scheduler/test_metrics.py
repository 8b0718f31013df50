"""Counters of a scheduler for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from compute_agent.errors import AllocationUpdateFailed, PlacementUnavailable
from compute_agent.request.errors import InvalidRequest
from compute_agent.scheduler.claiming.claims import GiveBack
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.filters import registry as filters
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.moves.move import MoveKind
from compute_agent.scheduler.outcomes import MoveState
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.scheduler.service.metrics import CountedCalls, JournalCollector, result_of
from compute_agent.scheduler.weighers import order
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import candidate, summary

ASKED = spec(vcpus=2, memory_mb=0, root_gb=0)


class CountedTime:
    """A scheduler over hosts that each have so many VCPU left, and what it counts."""

    def __init__(self, journal: Path, **free: int) -> None:
        self.registry = CollectorRegistry()
        self.calls = CountedCalls(self.registry)
        self.bank = Bank(
            [candidate({name: {"VCPU": 2}}) for name in free],
            {name: summary(name, {"VCPU": (amount, 0)}) for name, amount in free.items()},
        )
        options = HostSearchOptions(filters=filters.make(["ComputeFilter", "IsolatedHostsFilter"]))
        self.scheduler = Scheduler(
            self.bank.client,
            HostSearch(self.bank.client, options, observer=self.calls),
            SelectionOptions(weighers=order.make([order.ALL_WEIGHERS])),
            GiveBack(self.bank.client, Journal(journal)),
            observer=self.calls,
        )

    def claim(self, instance: str) -> None:
        with self.calls.answering("select_destinations"):
            self.scheduler.select_destinations(ASKED, [instance])

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"compute_scheduler_{name}", labels) or 0.0


def test_calls_candidates_and_claims_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    counted = CountedTime(tmp_path / "journal", a=4, b=8)
    counted.claim("i1")
    assert counted.value("requests_total", method="select_destinations", result="answered") == 1
    assert counted.value("request_duration_seconds_count", method="select_destinations") == 1
    assert counted.value("claims_total", outcome="won") == 1
    assert counted.value("candidates_sum") == 2
    assert counted.value("claim_retries_total") == 0


def test_a_lost_claim_counts_by_its_cause_and_the_next_one_as_a_retry(tmp_path: Path) -> None:
    counted = CountedTime(tmp_path / "journal", a=4, b=8)
    neighbour = {"neighbour": {"b": {"VCPU": 8}}}
    counted.bank.before_claim = lambda _consumer: counted.bank.held.update(neighbour)
    counted.claim("i1")
    assert counted.value("claims_total", outcome="shortage") == 1
    assert counted.value("claims_total", outcome="won") == 1
    assert counted.value("claim_retries_total") == 1
    counted.bank.held["i2"] = {"a": {"VCPU": 2}}
    with pytest.raises(AllocationUpdateFailed):
        counted.claim("i2")
    assert counted.value("claims_total", outcome="consumer") == 1
    assert counted.value("requests_total", method="select_destinations", result="conflict") == 1


def test_a_request_without_a_host_and_one_without_placement_differ(tmp_path: Path) -> None:
    counted = CountedTime(tmp_path / "journal")
    with pytest.raises(NoValidHost):
        counted.claim("i1")
    counted.bank.down = True
    with pytest.raises(PlacementUnavailable):
        counted.claim("i1")
    for result in ("no_valid_host", "placement_unavailable"):
        assert counted.value("requests_total", method="select_destinations", result=result) == 1
    assert counted.value("requests_in_progress") == 0


def test_hosts_that_a_filter_rejects_are_counted_by_filter(tmp_path: Path) -> None:
    counted = CountedTime(tmp_path / "journal", a=4, b=8)
    counted.bank.summaries["a"]["traits"] = ["COMPUTE_STATUS_DISABLED"]
    counted.claim("i1")
    assert counted.value("filter_rejected_hosts_total", filter="ComputeFilter") == 1
    assert counted.value("filter_rejected_hosts_total", filter="IsolatedHostsFilter") == 0


def test_moves_are_counted_by_kind_and_state() -> None:
    registry = CollectorRegistry()
    CountedCalls(registry).on_move(MoveKind.LIVE, MoveState.BEGUN)
    labels = {"kind": "live", "state": "begun"}
    assert registry.get_sample_value("compute_scheduler_moves_total", labels) == 1


def test_every_kind_of_end_has_a_result() -> None:
    assert result_of(None) == "answered"
    assert result_of(InvalidRequest("field", 1, "2")) == "invalid"
    assert result_of(ValueError()) == "defect"


def test_the_journal_is_counted_by_operation_and_one_that_is_damaged_is_shown(
    tmp_path: Path,
) -> None:
    registry = CollectorRegistry()
    journal = Journal(tmp_path / "journal")
    registry.register(JournalCollector(journal))
    journal.open({"op": "give_back"})
    text = generate_latest(registry).decode()
    assert 'compute_scheduler_journal_entries{operation="give_back"} 1.0' in text
    assert "compute_scheduler_journal_usable 1.0" in text
    journal.path.write_text('{"id": 5}\n')
    assert "compute_scheduler_journal_usable 0.0" in generate_latest(registry).decode()
