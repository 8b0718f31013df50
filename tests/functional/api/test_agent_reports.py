"""Reports that agents send with the reads of their trees, and GET /agent_reports."""

from __future__ import annotations

import json
import uuid
from typing import Any

import jsonschema
import pytest

from placement_server.api.extensions.agent_reports import HEADER, REPORTS
from tests.functional.agent.processes import eventually

from .conftest import MakeApi
from .wsgi_client import EXTENDED, Answer, Client

REPORT = {
    "period": 60.0,
    "bus": {"state": "up", "since": "2026-03-01T12:00:00+00:00", "why": ""},
    "disabled_reason": "",
    "trouble": "",
    "place": {"address": "10.0.0.1", "machine_id": "m", "boot_id": "b", "state_path": "/var"},
}

CORELESS = REPORT | {"cells": [{"id": 0}]}


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return make_api(
        "'placement:provider_trees:show': '@'\n",
        oslo_policy__enforce_new_defaults=True,
        placement_server__metrics_path="/-/metrics",
    )


def root(api: Client) -> str:
    made = str(uuid.uuid4())
    assert api("POST", "/resource_providers", {"name": made, "uuid": made}).status == 200
    return made


def send(api: Client, provider: str, report: Any, roles: str = "service") -> Answer:
    text = report if isinstance(report, str) else json.dumps(report)
    headers = {"X-Roles": roles, HEADER: text}
    return api.get(f"/provider_trees/{provider}", version=EXTENDED, headers=headers)


def listed(api: Client, query: str = "") -> dict[str, dict[str, Any]]:
    answer = api("GET", f"/agent_reports?{query}", version=EXTENDED)
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, REPORTS, format_checker=jsonschema.FormatChecker())
    return {report["root_provider_uuid"]: report for report in answer.json["agent_reports"]}


def test_the_last_report_of_each_agent_is_kept_until_its_root_is_deleted(api: Client) -> None:
    one, other = root(api), root(api)
    send(api, one, REPORT)
    eventually(lambda: one in listed(api), "the report")
    send(api, one.upper(), REPORT | {"disabled_reason": "fan"})
    send(api, other, REPORT | {"period": 0})
    eventually(lambda: other in listed(api), "the other one")
    eventually(lambda: listed(api)[one]["disabled_reason"] == "fan", "the new report")
    assert listed(api, f"root={one}").keys() == {one}
    eventually(lambda: listed(api)[other]["silent"], "three periods of no length")
    assert not listed(api)[one]["silent"]
    send(api, one, REPORT)
    eventually(lambda: listed(api, "notable=true").keys() == {other}, "only what is notable")
    metrics = api.get("/-/metrics", token=None).body.decode()
    assert 'placement_agents{state="silent"} 1.0' in metrics
    assert 'placement_agents{state="reporting"} 1.0' in metrics
    assert api("DELETE", f"/resource_providers/{other}").status == 204
    assert listed(api).keys() == {one}


def test_cores_are_shown_of_the_hosts_that_are_named(api: Client) -> None:
    made = root(api)
    cells = [{"id": 0, "cores": [[[0, "a1b2c3d4"], [16, None]]]}]
    send(api, made, REPORT | {"cells": cells})
    eventually(lambda: made in listed(api), "the report")
    assert listed(api, f"root={made}")[made]["cells"] == cells
    assert "cells" not in listed(api)[made]


def test_a_header_that_is_no_report_of_an_agent_is_left_out_and_the_tree_is_shown(
    api: Client,
) -> None:
    made, known = root(api), root(api)
    lacking = [{key: REPORT[key] for key in REPORT if key != name} for name in REPORT]
    wrong_ones = (REPORT | {"more": 1}, REPORT | {"bus": "up"}, CORELESS, *lacking)
    for wrong in ("{", "[]", '{"period": NaN}', *wrong_ones):
        assert send(api, made, wrong).status == 200
    # one who may read trees, but is neither an administrator nor a service
    assert send(api, made, REPORT, roles="member").status == 200
    assert send(api, str(uuid.uuid4()), REPORT).status == 404
    send(api, known, REPORT)
    eventually(lambda: listed(api).keys() == {known}, "only the right one")
