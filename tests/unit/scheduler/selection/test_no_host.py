"""Reasons that are given when no host fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from compute_agent.scheduler.errors import NoValidHost

from .clouds import ONE, chosen, flat_hosts, scheduler_on


def test_no_host_says_that_placement_has_no_candidate(journal: Path) -> None:
    bank = flat_hosts()
    with pytest.raises(NoValidHost, match="Placement has no candidate") as caught:
        chosen(scheduler_on(bank, journal), ONE)
    causes = caught.value.as_dict()["causes"]
    assert [query["shape"] for query in causes["queries"]] == ["flat", "nested", "split"]
    assert causes["queries"][0]["query"].endswith("resources=VCPU:2&required=!HW_NUMA_ROOT")
    json.dumps(causes)


def test_no_host_says_which_filter_dropped_the_last(journal: Path) -> None:
    bank = flat_hosts(a=9, b=9)
    for summary in bank.summaries.values():
        summary["traits"] = ["COMPUTE_STATUS_DISABLED"]
    with pytest.raises(NoValidHost, match=r"ComputeFilter dropped the last 2 host\(s\)") as caught:
        chosen(scheduler_on(bank, journal), ONE)
    [dropped] = caught.value.causes.filters
    assert (dropped.hosts_before, dropped.hosts_left, dropped.names_left) == (2, 0, ())
    rejected = dropped.rejected[0]
    assert f"2 host(s), such as {rejected.host} ({rejected.reason})." in caught.value.reason


def test_no_host_says_that_the_limit_was_reached(journal: Path) -> None:
    bank = flat_hosts(a=9, b=9)
    for summary in bank.summaries.values():
        summary["traits"] = ["COMPUTE_STATUS_DISABLED"]
    with pytest.raises(NoValidHost, match="max_placement_results"):
        chosen(scheduler_on(bank, journal, limit=2), ONE)


def test_no_host_says_which_claims_were_lost(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.held["neighbour"] = {"a": {"VCPU": 9}}
    with pytest.raises(NoValidHost, match="Provider a had less than 2 VCPU left"):
        chosen(scheduler_on(bank, journal), ONE)


def test_no_host_says_that_placement_does_not_know_a_name(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.unknown_name = "trait CUSTOM_X"
    with pytest.raises(NoValidHost, match="knows no such trait CUSTOM_X"):
        chosen(scheduler_on(bank, journal), ONE)


def test_no_host_is_logged_once_with_the_id_that_placement_logs_too(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), pytest.raises(NoValidHost) as caught:
        scheduler_on(flat_hosts(), journal).select_destinations(ONE, ["i1"], request_id="req-mine")
    assert caught.value.causes.request_id == "req-mine"
    [record] = [entry for entry in caplog.records if "No valid host" in entry.message]
    assert record.levelname == "INFO"
    assert "[req-mine]" in record.message
    assert "i1" in record.message


def test_a_zone_that_does_not_exist_is_logged_like_any_other_reason(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = replace(ONE, availability_zone="moon")
    with caplog.at_level("INFO"), pytest.raises(NoValidHost, match="availability zone moon"):
        chosen(scheduler_on(flat_hosts(a=9), journal), asked)
    assert [record for record in caplog.records if "] No valid host for i1" in record.message]
