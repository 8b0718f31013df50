"""Tracing where it is off, and where it cannot be turned on."""

from __future__ import annotations

import sys

import pytest

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.daemon import tracing
from compute_agent.placement.transports.transport import Request


def test_where_it_is_off_calls_are_left_as_they_are_and_requests_carry_nothing() -> None:
    endpoint = object()
    assert tracing.traced_endpoint(endpoint) is endpoint
    with tracing.span("pass", node="host1") as span:
        assert span is None
    assert tracing.context_to_send() == {}


def test_a_request_carries_its_trace_beside_the_ids_of_openstack() -> None:
    request = Request(
        "GET", "/", (1, 39), global_request_id="req-1", trace={"traceparent": "00-1-2-01"}
    )
    assert request.headers()["traceparent"] == "00-1-2-01"
    assert request.headers()["X-Openstack-Request-Id"] == "req-1"


def test_an_endpoint_without_the_library_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    conf = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
    conf.set_override("otlp_endpoint", "http://127.0.0.1:4318/v1/traces", group="tracing")
    with pytest.raises(errors.InvalidConfiguration, match=r"'\.\[tracing\]'"):
        tracing.start(conf, "compute-agent")
    assert not tracing.is_on()


@pytest.mark.parametrize("sent", [5, None, [], ["x"], {"a": 1}, "x"])
def test_a_trace_that_cannot_be_read_does_not_fail_the_call(
    monkeypatch: pytest.MonkeyPatch, sent: object
) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    monkeypatch.setattr(tracing, "_tracer", trace.TracerProvider().get_tracer("test"))

    class Endpoint:
        def work(self, _ctxt: object) -> str:
            return "done"

    context = {"traceparent": sent, "tracestate": sent, "global_request_id": "req-1"}
    assert tracing.traced_endpoint(Endpoint()).work(context) == "done"
