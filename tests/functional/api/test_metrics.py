"""Metrics as Prometheus takes them: names and units, alert rules, the queries of the dashboard."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, generate_latest

from compute_agent.agent import metrics as agent_metrics
from compute_agent.daemon.message_bus import BusState
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.service.metrics import CountedCalls, JournalCollector
from compute_agent.tracker.status import FeedState, StatusBoard
from placement_server.cmd import audit
from placement_server.conf import InvalidConfiguration, new_config
from placement_server.metrics.metrics import observe_pools
from placement_server.store.store import Store
from tests.fixtures.allocations import claim_body
from tests.fixtures.promtool import needs_promtool, promtool

from .candidate_world import A1, A2, PATH, UNKNOWN, UUID, build_world
from .conftest import MakeApi
from .wsgi_client import Answer, Client

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "etc" / "placement-alerts.yml"
DASHBOARD = ROOT / "etc" / "placement-dashboard.json"
ALERT_TESTS = ROOT / "tests" / "data" / "metrics" / "alerts.test.yml"


def scrape(api: Client) -> str:
    answer = api.get("/-/metrics", token=None)
    assert answer.status == 200
    return answer.body.decode()


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return build_world(
        make_api(
            placement_server__metrics_path="/-/metrics",
            placement_server__inventory_metrics="hosts",
            placement_server__zone_aggregates={"az1": A1},
        )
    )


def value(text: str, series: str) -> float | None:
    found = re.search(f"^{re.escape(series)} (.*)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


def test_inventories_of_nested_providers_count_for_the_class_and_for_the_host(api: Client) -> None:
    api.put(
        f"/allocations/{UNKNOWN}",
        claim_body({UUID["cellA0"]: {"VCPU": 3}, UUID["hostB"]: {"VCPU": 2}}),
        version="1.39",
    )
    api.inventory(f"/resource_providers/{UUID['nicA0']}", SRIOV_NET_VF={"total": 4, "reserved": 1})
    text = scrape(api)

    def amounts(of: str, labels: str) -> list[float | None]:
        names = ("capacity", "reserved", "used", "free")
        return [value(text, f"placement_{of}inventory_{name}{{{labels}}}") for name in names]

    assert amounts("", 'resource_class="VCPU"') == [24, 0, 5, 19]
    assert amounts("", 'resource_class="SRIOV_NET_VF"') == [7, 1, 0, 7]
    assert amounts("host_", 'host="hostA",resource_class="VCPU"') == [16, 0, 3, 13]
    assert amounts("host_", 'host="hostB",resource_class="VCPU"') == [8, 0, 2, 6]
    assert value(text, "placement_inventory_read_failed") == 0


def test_the_trees_of_a_zone_count_for_it_and_what_is_in_two_zones_for_both(
    make_api: MakeApi,
) -> None:
    zones = {"az1": A1.upper(), "second": A2, "empty": UNKNOWN}
    api = build_world(
        make_api(
            placement_server__metrics_path="/-/metrics", placement_server__zone_aggregates=zones
        )
    )
    api.put(
        f"/allocations/{UNKNOWN}",
        claim_body({UUID["cellA0"]: {"VCPU": 3}, UUID["hostB"]: {"VCPU": 2}}),
        version="1.39",
    )
    text = scrape(api)

    def amounts(zone: str, resource_class: str) -> list[float | None]:
        labels = f'resource_class="{resource_class}",zone="{zone}"'
        names = ("capacity", "reserved", "used", "free")
        return [value(text, f"placement_zone_inventory_{name}{{{labels}}}") for name in names]

    assert amounts("az1", "VCPU") == [24, 0, 5, 19]
    assert amounts("second", "VCPU") == [8, 0, 2, 6]
    assert amounts("second", "DISK_GB") == [100 + 1000, 0, 0, 100 + 1000]
    assert 'zone="empty"' not in text


def test_a_zone_whose_aggregate_is_not_a_uuid_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "placement.conf"
    path.write_text(f"[placement_server]\nzone_aggregates = az1:{A1},az2:rack7\n")
    with pytest.raises(InvalidConfiguration, match=r"zone_aggregates in .*'rack7'"):
        new_config(config_files=[path])


def test_hosts_are_only_shown_where_asked_for(make_api: MakeApi) -> None:
    text = scrape(build_world(make_api(placement_server__metrics_path="/-/metrics")))
    assert value(text, 'placement_inventory_capacity{resource_class="VCPU"}') == 24
    assert "placement_host_inventory" not in text


def changes(api: Client, act: Callable[[], object], *series: str) -> list[float]:
    before = scrape(api)
    act()
    after = scrape(api)
    return [(value(after, name) or 0.0) - (value(before, name) or 0.0) for name in series]


def test_searches_and_claims_are_timed_by_result_and_counted_by_cause(api: Client) -> None:
    def claim(amount: int, generation: int | None = None) -> Answer:
        body = claim_body({UUID["hostB"]: {"VCPU": amount}}, generation)
        return api.put(f"/allocations/{UNKNOWN}", body, version="1.39")

    seconds = "placement_claim_seconds_count"
    rejected = "placement_claims_rejected_total"
    assert changes(
        api,
        lambda: [claim(1), claim(99, 1), claim(1, 7)],
        f'{seconds}{{result="written"}}',
        f'{seconds}{{result="refused"}}',
        f'{seconds}{{result="lost"}}',
        f'{rejected}{{cause="capacity"}}',
        f'{rejected}{{cause="consumer_generation"}}',
    ) == [1, 1, 1, 1, 1]
    searches = "placement_candidate_search_seconds_count"
    assert changes(
        api,
        lambda: [api.get(f"{PATH}?resources=VCPU:1"), api.get(f"{PATH}?resources=CUSTOM_NONE:1")],
        f'{searches}{{result="answered"}}',
        f'{searches}{{result="refused"}}',
    ) == [1, 1]
    assert value(scrape(api), "placement_index_trees") == 4
    assert value(scrape(api), "placement_index_lag_seconds") == 0


def test_connections_are_counted_while_they_are_in_use(api: Client) -> None:
    in_use = "placement_database_connections_in_use"
    api.get("/traits/HW_NUMA_ROOT")  # keeps a connection for the reads after it
    before = value(scrape(api), in_use)
    with api.store.engine.connect():
        assert value(scrape(api), in_use) == (before or 0) + 1
    assert value(scrape(api), in_use) == before


def test_connections_that_could_not_be_made_were_not_in_use(api: Client, tmp_path: Path) -> None:
    in_use = "placement_database_connections_in_use"
    api.get("/traits/HW_NUMA_ROOT")  # keeps a connection for the reads after it
    before = value(scrape(api), in_use)
    lost = sa.create_engine(f"sqlite:///{tmp_path}/lost/placement.db")
    observe_pools(cast("Store", SimpleNamespace(all_engines=lambda: [lost])))
    (tmp_path / "lost").mkdir()
    with lost.connect() as connection:
        assert value(scrape(api), in_use) == (before or 0) + 1
        connection.invalidate()
    shutil.rmtree(tmp_path / "lost")
    with pytest.raises(sa.exc.OperationalError):
        lost.connect()
    assert value(scrape(api), in_use) == before


def test_a_database_that_cannot_be_read_leaves_the_other_metrics(api: Client) -> None:
    with api.store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE inventories RENAME TO elsewhere")
    text = scrape(api)
    assert value(text, "placement_inventory_read_failed") == 1
    assert "placement_http_requests_total" in text


@needs_promtool
def test_names_and_units_are_as_prometheus_wants_them(api: Client) -> None:
    api.get("/resource_providers")
    promtool("check", "metrics", text=scrape(api))


@needs_promtool
def test_alerts_are_raised_when_they_should_and_only_then(tmp_path: Path) -> None:
    tests = tmp_path / "alerts.test.yml"
    tests.write_text(ALERT_TESTS.read_text().replace("RULES", str(ALERTS)))
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(tests))


def queries() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


@needs_promtool
def test_the_queries_of_the_dashboard_are_sound(tmp_path: Path) -> None:
    rules = [
        {"record": f"query{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(queries())
    ]
    path = tmp_path / "queries.json"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(path))


def test_rules_and_dashboard_name_metrics_that_there_are(api: Client, tmp_path: Path) -> None:
    board = StatusBoard("h")
    board.feed_is(FeedState.FOLLOWING)
    board.bus_is(BusState.UP)
    board.count_request("GET", 200, 0.1)
    calls = CollectorRegistry()
    CountedCalls(calls)
    calls.register(JournalCollector(Journal(tmp_path / "journal")))
    audit.gauges(calls)
    others = generate_latest(agent_metrics.registry(board)) + generate_latest(calls)
    known = set(re.findall(r"^# TYPE (\w+) ", scrape(api) + others.decode(), re.MULTILINE))
    expressions = re.findall(r"expr: (.*?)\n +(?:for|labels):", ALERTS.read_text(), re.DOTALL)
    text = "\n".join([*expressions, *queries()])
    named = set(re.findall(r"\b(?:placement|compute_agent|compute_scheduler)_\w+", text))
    assert {name.split("_")[1] for name in named} >= {"claim", "agent", "scheduler"}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in named} <= known
