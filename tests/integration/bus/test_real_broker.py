"""Agent and scheduler as real processes on a real RabbitMQ, which dies and comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from tests.fixtures import programs
from tests.fixtures.rabbitmq import RabbitMq
from tests.functional.agent.processes import (
    PATIENCE,
    AgentProcess,
    PlacementProcess,
    claim,
    eventually,
    running,
)
from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of

pytestmark = pytest.mark.waiting

UNITS = {"PCPU": ["2", "3"]}
INVENTORY = {"VCPU": {"total": 2}, "PCPU": {"total": 2}}
DISABLED = "COMPUTE_STATUS_DISABLED"


class Caller:
    """Somebody who calls one agent over the bus."""

    def __init__(self, config: Path, host: str) -> None:
        self._transport = message_bus.open_transport(
            agent_conf.new_config([f"--config-file={config}"])
        )
        import oslo_messaging

        target = oslo_messaging.Target(topic="compute-agent", server=host, version="1.0")
        self._client = oslo_messaging.get_rpc_client(self._transport, target, timeout=30, retry=1)
        self.errors = (oslo_messaging.RemoteError, oslo_messaging.MessagingException)

    def __call__(self, method: str, **arguments: Any) -> Any:
        return self._client.call({}, method, **arguments)

    def answers(self) -> bool:
        """Whether the agent can be called now."""
        try:
            # one that got lost with the broker is never answered
            return bool(self._client.prepare(timeout=2).call({}, "ping") == "pong")
        except self.errors:
            return False

    def close(self) -> None:
        self._transport.cleanup()


@pytest.fixture(scope="module")
def agent(
    tmp_path_factory: pytest.TempPathFactory, placement: PlacementProcess, rabbitmq: RabbitMq
) -> Iterator[AgentProcess]:
    host = f"host-{uuid.uuid4().hex[:8]}"
    made = AgentProcess(
        tmp_path_factory.mktemp("agent"),
        placement.url,
        DEFAULT={"transport_url": rabbitmq.url, "host": host, "report_interval": 1},
        # a broker that is away is looked for every second, and not ever more rarely
        oslo_messaging_rabbit={"rabbit_retry_backoff": 0, "kombu_reconnect_delay": 0.1},
    )
    made.script(nodes=[host], inventory=INVENTORY, units=UNITS)
    with running(made):
        yield made


@pytest.fixture
def host(agent: AgentProcess) -> str:
    return str(agent.node()["name"])


@pytest.fixture
def call(agent: AgentProcess, host: str) -> Iterator[Caller]:
    caller = Caller(agent.config, host)
    eventually(caller.answers, f"an answer over the bus; {agent.logged()}")
    yield caller
    caller.close()


@pytest.fixture
def watched(agent: AgentProcess, tmp_path: Path) -> Iterator[Path]:
    """What `compute-manage host list --watch` prints."""
    printed = tmp_path / "watched"
    arguments = ("host", "list", "--watch", "--interval=1", f"--config-file={agent.config}")
    with printed.open("w") as output:
        process = programs.start("compute-manage", *arguments, output=output)
    yield printed
    process.kill()
    process.wait()


def traits(placement: PlacementProcess, host: str) -> list[str]:
    return list(placement.tree(host)[host]["traits"])


def test_an_agent_is_looked_at_and_switched_over_the_bus(
    placement: PlacementProcess, agent: AgentProcess, host: str, call: Caller
) -> None:
    agent.script(nodes=[host], inventory={**INVENTORY, "VCPU": {"total": 5}}, units=UNITS)
    reported = call("report_now", node=host, wait=True)
    assert placement.tree(host)[host]["inventories"]["VCPU"]["total"] == 5
    assert reported["nodes"][0]["last_pass"]["outcome"] == "the pass completed"
    assert call("status", node=host)["nodes"][0]["name"] == host
    assert call("plan", node=host) == []
    assert call("list_instances") == []
    with pytest.raises(call.errors, match="not managed by this agent"):
        call("plan", node="nobody")

    told = call("set_host_enabled", enabled="false", reason="fan")
    assert (told["nodes"][0]["enabled"], told["nodes"][0]["disabled_reason"]) == (False, "fan")
    assert DISABLED in traits(placement, host), "at once, not only with the next pass"
    with pytest.raises(call.errors, match="true or false was expected"):
        call("set_host_enabled", enabled="perhaps")
    assert call("set_host_enabled", enabled=True)["nodes"][0]["enabled"]
    assert DISABLED not in traits(placement, host)


def test_instances_are_claimed_and_a_host_is_drained_over_the_bus(
    placement: PlacementProcess, agent: AgentProcess, host: str, call: Caller
) -> None:
    root = placement.root(host)["uuid"]
    instances = [claim(placement, root, {"PCPU": 1}) for _ in range(2)]
    wanted = {root: {"resources": {"PCPU": 1}}}
    given = [
        call(
            "instance_claim",
            spec={"instance_uuid": instance},
            allocations=wanted,
            mappings={"": [root]},
        )
        for instance in instances
    ]
    assert {unit["name"] for answer in given for unit in answer["units"]} == {"2", "3"}
    again = call("instance_claim", spec={"instance_uuid": instances[0]}, allocations=wanted)
    assert again["units"] == given[0]["units"]
    with pytest.raises(call.errors, match="holds no allocation"):
        call("instance_claim", spec={"instance_uuid": str(uuid.uuid4())}, allocations=wanted)
    with pytest.raises(call.errors, match="UUID was expected"):
        call("instance_claim", spec={"instance_uuid": "x"})
    assert call("clear_fault", provider=root) is False

    call("set_host_enabled", enabled=False, reason="drained for repair")
    assert [answer["consumer"] for answer in agent.ask("claims")] == sorted(instances)
    for instance in instances:
        assert placement.request("DELETE", f"/allocations/{instance}").ok
        assert call("drop_claim", instance=instance) is True
    assert call("drop_claim", instance=instances[0]) is False
    assert agent.ask("claims") == []
    call("set_host_enabled", enabled=True)


def test_reporting_goes_on_without_a_broker_and_calls_are_answered_when_it_is_back(
    placement: PlacementProcess,
    agent: AgentProcess,
    host: str,
    rabbitmq: RabbitMq,
    call: Caller,
    watched: Path,
) -> None:
    eventually(lambda: "agents 1 up" in watched.read_text(), "a host whose agent is up")
    rabbitmq.kill()
    agent.script(nodes=[host], inventory={**INVENTORY, "VCPU": {"total": 7}}, units=UNITS)
    eventually(
        lambda: placement.tree(host)[host]["inventories"]["VCPU"]["total"] == 7,
        "a periodic pass without a broker",
    )
    assert agent.report()["trouble"] is None
    eventually(lambda: "cannot announce itself" in agent.logged(), "a warning")
    bus = eventually(agent.status, "a status")["bus"]
    assert (bus["state"], bool(bus["since"])) == ("unreachable", True)
    assert "bus        unreachable since " in agent.run("status").stdout
    examined = agent.run("doctor")
    assert examined.returncode == 2
    assert "error    bus: rabbit at 127.0.0.1" in examined.stdout
    assert "is unreachable: nothing listens there" in examined.stdout
    rabbitmq.start()
    eventually(call.answers, "an answer after the broker is back")
    eventually(lambda: "announces itself again" in agent.logged(), "announcements")
    # it is said first and shown then
    eventually(lambda: agent.status()["bus"]["state"] == "up", "a bus that is up")
    assert "takes messages" in agent.run("doctor").stdout
    assert "Traceback" not in agent.logged()
    # who watches the fleet is told of the outage once, and takes nobody for silent
    eventually(lambda: "agents 1 up" in watched.read_text().rpartition("unknown")[2], "its end")
    assert watched.read_text().count("The message bus does not answer") == 1
    assert "silent" not in watched.read_text()
    assert "oslo" not in watched.read_text()


def test_a_wrong_password_is_one_line_of_the_agent_and_the_end_of_the_scheduler(
    tmp_path: Path, placement: PlacementProcess, rabbitmq: RabbitMq
) -> None:
    url = rabbitmq.url.replace("guest:guest", "guest:mistaken")
    node = f"host-{uuid.uuid4().hex[:8]}"
    made = AgentProcess(
        tmp_path, placement.url, DEFAULT={"transport_url": url, "host": node, "report_interval": 1}
    )
    made.script(nodes=[node])
    with running(made):
        eventually(lambda: "The message bus refuses the agent" in made.logged(), "a line")
        # the period of announcements goes by while it reports
        for _ in range(3):
            assert made.report()["trouble"] is None
        root = placement.root(node)
        assert root
        assert made.logged().count("refuses the agent") == 1
        assert "Traceback" not in made.logged()
        assert "mistaken" not in made.logged()
        bus = eventually(made.status, "a status")["bus"]
        assert (bus["state"], bool(bus["since"])) == ("refused", True)
        assert "password" in bus["why"]
        examined = made.run("doctor")
        assert examined.returncode == 2
        assert "is refused: the user or the password" in examined.stdout
        operator = tmp_path / "operator.conf"
        operator.write_text(made.config.read_text().replace(url, rabbitmq.url))

        def is_listed() -> bool:
            arguments = ("host", "list", node, "--json", f"--config-file={operator}")
            [host] = json.loads(programs.run("compute-manage", *arguments, timeout=PATIENCE).stdout)
            return (host["agent"], host["bus"]) == ("up", "refused") and bool(host["bus_since"])

        eventually(is_listed, "the bus of the agent in the list of hosts")
        assert "mistaken" not in examined.stdout + examined.stderr
    # no candidate of the tests that follow
    assert placement.request("DELETE", f"/resource_providers/{root['uuid']}").ok
    ended = programs.run(
        "compute-scheduler", "serve", "--config-file", str(made.config), timeout=PATIENCE
    )
    assert ended.returncode == 2, ended.stderr
    assert "The message bus refuses this scheduler" in ended.stderr
    assert "Traceback" not in ended.stderr


MALFORMED = [
    b"",
    b"not json",
    b"[]",
    b"1",
    b"null",
    b"\xff\xfe",
    b"{}",
    b'{"oslo.version": "2.0"}',
    b'{"oslo.version": "9.0", "oslo.message": "{}"}',
    b'{"oslo.version": "2.0", "oslo.message": 7}',
    b'{"oslo.version": "2.0", "oslo.message": "[]"}',
    b'{"oslo.version": "2.0", "oslo.message": "no json"}',
    *(
        json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(message)}).encode()
        for message in (
            {},
            {"method": 7},
            {"method": "nonsense", "args": {}, "version": "1.0"},
            {"method": "ping", "args": [], "version": "1.0"},
            {"method": "ping", "args": {"a": 1}, "version": "1.0"},
            {"method": "ping", "args": {}, "version": "x"},
            {"method": "ping", "args": {}, "version": 7},
            {"method": "ping", "args": {}, "version": "99.0"},
            {"method": "ping", "args": {}, "namespace": ["a"]},
            {"method": "ping", "args": {}, "_msg_id": 7, "_reply_q": 8, "_timeout": "x"},
            {"method": "status", "args": {"node": {}}, "version": "1.0"},
            {"method": "__init__", "args": {}, "version": "1.0"},
        )
    ),
]


def test_malformed_messages_are_a_line_each_at_most_and_calls_go_on(
    agent: AgentProcess, host: str, rabbitmq: RabbitMq, call: Caller
) -> None:
    import kombu

    before = len(agent.logged())
    with (
        kombu.Connection(rabbitmq.url.replace("rabbit:", "amqp:")) as connection,
        connection.channel() as channel,
    ):
        for body in MALFORMED:
            for content_type in (
                "application/json",
                "text/plain",
                "application/x-python-serialize",
            ):
                message = channel.prepare_message(
                    body, content_type=content_type, content_encoding="utf-8"
                )
                channel.basic_publish(message, exchange="", routing_key=f"compute-agent.{host}")
    eventually(call.answers, f"an answer after them; {agent.logged()}")
    logged = agent.logged()[before:]
    assert "Traceback" not in logged, logged
    assert len(logged.splitlines()) <= len(MALFORMED), logged


def test_two_agents_that_report_one_host_both_stop_and_name_each_other(
    tmp_path: Path, placement: PlacementProcess, rabbitmq: RabbitMq
) -> None:
    node = f"host-{uuid.uuid4().hex[:8]}"
    agents = []
    for name in ("original", "clone"):
        directory = tmp_path / name
        directory.mkdir()
        options = {"transport_url": rabbitmq.url, "host": node, "report_interval": 1}
        agents.append(AgentProcess(directory, placement.url, DEFAULT=options))
        agents[-1].script(nodes=[node], inventory=INVENTORY, units=UNITS)
    original, clone = agents
    with running(original):
        clone.start("--adopt")
        try:
            clone.started()
            assert "WARNING" in next(
                line for line in clone.logged().splitlines() if "taken over from placement" in line
            )
            for agent in agents:
                trouble = eventually(lambda agent=agent: agent.node()["trouble"], "a trouble")
                assert trouble["what"] == "the identity of this node is contradictory"
                assert all(str(agent.state) in trouble["message"] for agent in agents)
                assert agent.run("report").returncode == 5
            shown = programs.run(
                "compute-manage",
                "host",
                "list",
                node,
                f"--config-file={original.config}",
                timeout=PATIENCE,
            )
            assert "Two agents report" in " ".join(shown.stdout.split())
        finally:
            clone.cleanup()
        # the other is gone, and this one goes on
        eventually(lambda: original.node()["trouble"] is None, "a pass")
    root = placement.root(node)
    assert root
    assert placement.request("DELETE", f"/resource_providers/{root['uuid']}").ok


def test_the_scheduler_hears_an_agent_and_gives_nothing_to_one_that_fell_silent(
    placement: PlacementProcess,
    agent: AgentProcess,
    host: str,
    rabbitmq: RabbitMq,
    tmp_path: Path,
) -> None:
    config = tmp_path / "scheduler.conf"
    config.write_text(
        f"[DEFAULT]\ntransport_url = {rabbitmq.url}\nhost = scheduler1\nservice_down_time = 3\n"
        f"state_path = {tmp_path}\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {placement.url}\n"
        f"[compute_scheduler]\njournal_path = {tmp_path}/journal\n"
    )
    log = tmp_path / "scheduler.log"
    with log.open("wb") as output:
        scheduler = subprocess.Popen(
            [
                str(Path(sys.executable).parent / "compute-scheduler"),
                *("--config-file", str(config), "serve"),
            ],
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: "Serving topic scheduler" in log.read_text(), log.read_text())
        from compute_agent.scheduler.bus.rpc import (
            STATE_TOPIC,
            SchedulerClient,
            StateEndpoint,
            oslo_messaging,
        )
        from compute_agent.scheduler.errors import NoValidHost
        from compute_agent.scheduler.fleet.announcements import Announcements

        transport = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
        # a scheduler that never heard of an agent does not miss it: the kill comes after that
        overheard = Announcements()
        listener = oslo_messaging.get_rpc_server(
            transport,
            oslo_messaging.Target(topic=STATE_TOPIC, server="listener"),
            [StateEndpoint(overheard)],
        )
        listener.start()
        eventually(overheard.all, "an announcement")
        listener.stop()
        listener.wait()
        client = SchedulerClient(transport)
        spec = {
            "project_id": "p",
            "user_id": "u",
            "flavor": {"vcpus": 1, "memory_mb": 0, "root_gb": 0},
        }

        def placed() -> str:
            instance = str(uuid.uuid4())
            try:
                ((selection,),) = client.select_destinations(spec, [instance])
            except NoValidHost as refused:
                # the error of another process, with what it carries
                filters = refused.causes.filters
                return "; ".join(f"{r.host}: {r.reason}" for f in filters for r in f.rejected)
            assert placement.request("DELETE", f"/allocations/{instance}").ok
            return str(selection["nodename"])

        eventually(lambda: placed() == host, "a host that announces itself")
        agent.process.kill()
        agent.process.wait()
        # of its announcements some may still wait on the bus
        eventually(lambda: placed() == f"{host}: its agent is silent", "no host once it is silent")
        agent.start()
        agent.started()
        eventually(lambda: placed() == host, "the host when it announces itself again")
        transport.cleanup()
    finally:
        scheduler.kill()
        scheduler.wait()


def test_the_documented_user_is_added(rabbitmq: RabbitMq) -> None:
    blocks = BlocksToRun("with a message broker")
    for program, *arguments in commands_of(blocks.next_of("do/production")):
        assert rabbitmq.control(program, *arguments) == 0
    assert not blocks.left
