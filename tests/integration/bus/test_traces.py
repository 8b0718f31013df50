"""One trace over scheduler, placement-server, its database and agent, as real processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from tests.fixtures import programs
from tests.fixtures.otlp import Collector, Span, collector
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    eventually,
    running,
)

pytestmark = pytest.mark.waiting

TRACE = uuid.uuid4().hex
CALLER = "00f067aa0ba902b7"
ASKED_AS = f"req-{uuid.uuid4()}"
CONTEXT = {"traceparent": f"00-{TRACE}-{CALLER}-01", "global_request_id": ASKED_AS}
SPEC = {"project_id": "p", "user_id": "u", "flavor": {"vcpus": 1, "memory_mb": 0, "root_gb": 0}}

WAYS = [
    [
        "compute-scheduler: select_destinations",
        "compute-scheduler: PUT /allocations/*",
        "placement-server: PUT /allocations/{consumer_uuid}",
        "placement-server: INSERT",
    ],
    [
        "compute-agent: instance_claim",
        "compute-agent: GET /allocations/*",
        "placement-server: GET /allocations/{consumer_uuid}",
        "placement-server: SELECT",
    ],
]


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    # How long spans wait for more of them, in milliseconds.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with collector() as kept:
        yield kept


@pytest.fixture
def config(tmp_path: Path, bus_url: str, collected: Collector) -> Iterator[Path]:
    """The configuration of agent and scheduler, which run, as does a placement-server."""
    tracing = {"otlp_endpoint": collected.url}
    placement = PlacementProcess(tmp_path, more=f"[tracing]\notlp_endpoint = {collected.url}\n")
    placement.start()
    agent = AgentProcess(
        tmp_path,
        placement.url,
        DEFAULT={"transport_url": bus_url, "host": "host1", "control_exchange": TRACE},
        compute_agent={"use_placement_extensions": "never"},
        scheduler={"workers": 1},
        compute_scheduler={"journal_path": tmp_path / "journal"},
        tracing=tracing,
    )
    agent.script(nodes=["host1"], inventory={"VCPU": {"total": 4}})
    with ExitStack() as stack:
        stack.callback(placement.kill)
        stack.enter_context(running(agent))
        output = stack.enter_context((tmp_path / "scheduler.log").open("wb"))
        scheduler = programs.start(
            "compute-scheduler", "--config-file", str(agent.config), "serve", output=output
        )
        stack.callback(scheduler.wait)
        stack.callback(scheduler.kill)
        # A call that is sent before is lost.
        for served, log in (
            ("scheduler", tmp_path / "scheduler.log"),
            ("compute-agent", agent.log),
        ):
            line = f"Serving topic {served}"
            eventually(lambda line=line, log=log: line in log.read_text(), line)
        yield agent.config


def call(config: Path, topic: str, version: str, method: str, **arguments: Any) -> Any:
    """What a program on the bus answers, as part of the trace."""
    bus = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
    import oslo_messaging

    target = oslo_messaging.Target(topic=topic, version=version)
    client = oslo_messaging.get_rpc_client(bus, target, timeout=60)
    try:
        return client.call(CONTEXT, method, **arguments)
    finally:
        bus.cleanup()


def test_a_request_is_one_trace_over_scheduler_server_sql_and_agent(
    config: Path, collected: Collector
) -> None:
    instance = str(uuid.uuid4())
    ((selection,),) = call(
        config,
        *("scheduler", "4.5", "select_destinations"),
        spec_obj=SPEC,
        instance_uuids=[instance],
    )
    assert selection["nodename"] == "host1"
    call(config, "compute-agent", "1.0", "instance_claim", spec={"instance_uuid": instance})

    # Each program sends its spans in its own time, so parents may arrive after their children.
    spans = eventually(lambda: complete(collected), "the ways of both calls to SQL")
    entered = [span for span in spans if span.name == "select_destinations"]
    assert [span.attributes["openstack.request_id"] for span in entered] == [ASKED_AS]
    asked = [span for span in spans if span.name.startswith("PUT /allocations/{")]
    assert {span.attributes["openstack.global_request_id"] for span in asked} == {ASKED_AS}
    assert not [span for span in spans if span.failed]


def complete(collected: Collector) -> list[Span]:
    """The spans of the trace, once those of both ways are there and every span's parent is."""
    spans = {span.id: span for span in collected.spans(TRACE)}
    if not {span.parent for span in spans.values()} <= {*spans, CALLER}:
        return []
    ways = [way(span, spans) for span in spans.values()]
    return list(spans.values()) if all(expected in ways for expected in WAYS) else []


def way(span: Span, spans: dict[str, Span]) -> list[str]:
    """The services from the caller to a span, each with the name of its span."""
    above = way(spans[span.parent], spans) if span.parent != CALLER else []
    return [*above, f"{span.service}: {span.name}"]
