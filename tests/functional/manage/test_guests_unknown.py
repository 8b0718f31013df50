"""A real agent whose driver cannot tell its guests: nothing of its host is ever taken for gone."""

import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from compute_agent import conf as agent_conf
from compute_agent.agent import assembly
from compute_agent.agent.commands import AgentCommands
from compute_agent.drift.audit import End, Treatment
from compute_agent.drift.repair import open_remedies
from tests.functional.manage.conftest import Agent, Operator
from tests.functional.manage.diagnoses import examine, told

pytestmark = pytest.mark.waiting

NOW = "--min-age=0"
HOST_DRIVER = {"compute_driver": "host.HostDriver"}
WHY = "HostDriver cannot list the guests"


class HostAgent(AgentCommands, eq=False, kw_only=True):
    """The answers of an agent with the host driver, after its first pass."""

    host: str
    root: str

    @classmethod
    def of(cls, operator: Operator) -> Self:
        operator.configure(DEFAULT=HOST_DRIVER, compute_agent={"audit_grace": 0})
        operator.arguments("audit")
        conf = agent_conf.new_config([f"--config-file={operator.directory / 'agent.conf'}"])
        parts = assembly.build(conf, transport=operator.placement.transport)
        tracker = parts.tracker(wait=lambda _seconds: False)
        ((name, root),) = parts.setup.nodes().items()
        tracker.add_node(name, root)
        assert tracker.run_pass(name).completed
        availability: Any = SimpleNamespace(failed_builds=0)
        schedule: Any = SimpleNamespace(trigger=lambda *_asked: True)
        return cls(
            conf,
            parts,
            tracker,
            schedule,
            lambda: None,
            book=parts.claims(tracker),
            availability=availability,
            host=conf.DEFAULT.host,
            root=root,
        )


@pytest.fixture
def agent(offline: Operator, on_bus: Callable[[Any], None]) -> Iterator[HostAgent]:
    """On the bus, as the only one."""
    made = HostAgent.of(offline)
    on_bus(made)
    yield made
    made.parts.close()


def test_an_audit_counts_an_agent_that_cannot_tell_as_silent_and_says_why(
    offline: Operator, agent: HostAgent, on_bus: Callable[[Any], None]
) -> None:
    placement = offline.placement
    other = placement.new_host()
    pool = placement.new_provider("pool", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",))
    live, on_both, shared = (
        placement.claim({agent.root: {"VCPU": 1}}),
        placement.claim({agent.root: {"VCPU": 1}, other: {"VCPU": 1}}),
        placement.claim({pool: {"DISK_GB": 1}}),
    )
    gone = placement.claim({other: {"VCPU": 1}})
    on_bus(Agent("b", [other]))
    result = offline.run("audit", NOW, "--delete", "--json", "--host-age=0", status=4)
    assert result.document["deleted"] == [gone], "the other agent can tell"
    unknown = {consumer["uuid"]: consumer["reason"] for consumer in result.document["unknown"]}
    assert set(unknown) == {live, on_both, shared}
    for reason in unknown.values():
        assert WHY in reason
        assert agent.host in reason
    for kept in unknown:
        assert placement.held(kept)


def test_the_reason_arrives_without_traceback_over_a_broker_that_serialises_errors(
    offline: Operator, on_bus: Callable[[Any], None]
) -> None:
    offline.configure(DEFAULT={"transport_url": f"kombu+memory:///{uuid.uuid4()}"})
    agent = HostAgent.of(offline)
    on_bus(agent)
    live = offline.placement.claim({agent.root: {"VCPU": 1}})
    result = offline.run("audit", NOW, "--delete", "--json")
    agent.parts.close()
    assert result.status == 5
    ((consumer, reason),) = [
        (entry["uuid"], entry["reason"]) for entry in result.document["unknown"]
    ]
    assert consumer == live
    assert WHY in reason
    assert "Traceback" not in reason


def test_a_host_whose_agent_cannot_tell_is_not_called_a_host_without_agent(
    offline: Operator, agent: HostAgent
) -> None:
    result = offline.run("audit", NOW, "--host-age=0", "--json")
    assert result.document["findings"] == []
    assert offline.run("audit", NOW, "--resource_provider", agent.root).status == 0


def test_healing_deletes_nothing_on_the_word_of_agents_where_the_host_cannot_tell(
    offline: Operator, agent: HostAgent
) -> None:
    live = offline.placement.claim({agent.root: {"VCPU": 1}})
    (found,) = healed(offline, agent, live)
    assert found.end is End.LEFT
    assert "cannot list" in found.detail
    assert offline.placement.held(live)


def test_what_was_claimed_on_the_host_is_here_however_long_ago_that_was(
    offline: Operator, agent: HostAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, gone = (offline.placement.claim({agent.root: {"VCPU": 1}}) for _ in range(2))
    agent.instance_claim({"instance_uuid": live})
    later = agent.claims()[0]["claimed_at"] + 30 * 86400
    monkeypatch.setattr("compute_agent.drift.healing.remedies.time.time", lambda: later)
    file = offline.directory / "instances"
    file.write_text("")
    ours = agent.parts.conf
    ours.set_override("instance_source", "file", group="compute_agent")
    ours.set_override("instance_file", str(file), group="compute_agent")
    monkeypatch.setattr("compute_agent.drift.healing.remedies.Remedies._min_age", lambda _self: 0.0)
    found = {outcome.consumer: outcome.end for outcome in healed(offline, agent, live, gone)}
    assert found == {live: End.LEFT, gone: End.HEALED}, "the source knows for itself what is gone"
    assert offline.placement.held(live)


def healed(operator: Operator, agent: HostAgent, *suspects: str) -> list[Treatment]:
    parts = agent.parts
    way = operator.placement.transport
    with open_remedies(parts.conf, parts.driver, parts.ledger, way) as found_remedies:
        return list(found_remedies.delete_gone(agent.root, suspects))


def test_the_number_of_guests_is_announced_as_unknown(agent: HostAgent) -> None:
    (node,) = agent.announcement(1)["nodes"]
    assert node["instances"] is None


@pytest.mark.parametrize(("heals", "level"), [(False, "fine"), (True, "warning")])
def test_doctor_says_that_orphans_are_not_found_and_warns_where_they_shall_be_healed(
    online: Operator, heals: bool, level: str
) -> None:
    file = online.directory / "instances"
    file.write_text(f"{uuid.uuid4()}\n")
    online.configure(
        DEFAULT=HOST_DRIVER,
        compute_agent={"heal_orphans": heals, "instance_source": "file", "instance_file": file},
    )
    assert WHY in told(examine(online, "--json"), level)["guests"]
