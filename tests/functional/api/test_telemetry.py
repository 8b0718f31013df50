"""[tracing]: traces by OpenTelemetry, taken by a collector over HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from placement_server.middleware import telemetry
from tests.fixtures.otlp import Collector, Span, collector

from .conftest import MakeApi
from .wsgi_client import Client

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
ASKED_AS = "req-6fa459ea-ee8a-3ca4-894e-db77e160355e"


@pytest.fixture
def collected() -> Iterator[Collector]:
    with collector() as kept:
        yield kept
        telemetry.send_all()


@pytest.fixture
def api(make_api: MakeApi, collected: Collector) -> Client:
    return make_api(tracing__otlp_endpoint=collected.url)


def spans(collected: Collector) -> tuple[Span, list[Span]]:
    """That of the only request of the trace, and those of its SQL."""
    telemetry.send_all()
    request, *more = sorted(collected.spans(TRACE), key=lambda span: span.parent != PARENT)
    assert request.parent == PARENT
    return request, more


def test_a_request_with_its_sql_is_part_of_the_trace_that_it_names(
    api: Client, collected: Collector
) -> None:
    api.get("/traits")
    answer = api.post(
        "/resource_providers",
        {"name": "a-secret-name"},
        version="1.39",
        headers={**TRACED, "X-Openstack-Request-Id": ASKED_AS},
    )
    assert answer.status == 200
    request, statements = spans(collected)
    assert (request.service, request.name) == ("placement-server", "POST /resource_providers")
    assert not request.failed
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/resource_providers",
        "http.response.status_code": 200,
        "openstack.request_id": answer.headers["x-openstack-request-id"],
        "openstack.global_request_id": ASKED_AS,
        "openstack.api_version": "1.39",
    }
    assert {statement.parent for statement in statements} == {request.id}
    texts = [statement.attributes["db.query.text"] for statement in statements]
    # Each once, also where the engines for reading and for writing are one.
    assert sum("INSERT INTO resource_providers" in text for text in texts) == 1
    assert not any("a-secret-name" in text for text in texts)


def test_a_read_of_one_statement_is_seen_too(api: Client, collected: Collector) -> None:
    answer = api.post("/resource_providers", {"name": "h"}, version="1.39")
    assert api.get(f"/resource_providers/{answer.json['uuid']}", headers=TRACED).status == 200
    _, statements = spans(collected)
    assert [statement.name for statement in statements] == ["SELECT"]


def test_an_error_of_the_server_marks_its_span_and_that_of_the_statement(
    api: Client, collected: Collector
) -> None:
    with api.store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE traits RENAME TO elsewhere")
    assert api.get("/traits", headers=TRACED).status >= 500
    request, statements = spans(collected)
    assert request.failed
    assert [statement.failed for statement in statements].count(True) == 1


def test_what_the_sender_does_not_sample_is_not_sent(api: Client, collected: Collector) -> None:
    unsampled = {"traceparent": TRACED["traceparent"].removesuffix("01") + "00"}
    assert api.get("/traits", headers=unsampled).status == 200
    telemetry.send_all()
    assert collected.spans(TRACE) == []


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-01"])
def test_a_header_that_names_no_trace_does_no_harm(api: Client, header: str) -> None:
    assert api.get("/traits", headers={"traceparent": header}).status == 200


LOADED = """
import sys
from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.store import Store
conf = new_config(config_files=[])
conf.set_override("auth_strategy", "noauth2", group="api")
build_app(conf, Store.open("sqlite://"))
# oslo.middleware loads the rest of OpenTelemetry for itself where it is installed.
print([name for name in sys.modules if name.startswith(("opentelemetry.exporter", "google"))])
"""


def test_by_default_nothing_is_loaded_that_could_send() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[]\n", done.stderr
