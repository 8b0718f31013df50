"""The agent on a bus in memory, which announces its state whatever fails."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.daemon import message_bus
from compute_agent.tracker.place import own_place

pytestmark = pytest.mark.waiting


class Commands:
    """Stands for a running agent."""

    def __init__(self) -> None:
        self.troubles: list[Exception] = []
        """What the next announcements fail with."""

    def report_now(self, node: str | None = None, wait: bool = True) -> dict[str, Any]:
        return {"node": node, "wait": wait}

    def announcement(self, sequence: int) -> dict[str, Any]:
        if self.troubles:
            raise self.troubles.pop()
        return {"host": "agent1", "nodes": [], "seq": sequence}


@pytest.fixture
def served(tmp_path):
    message_bus.use_threads()
    import oslo_messaging

    from compute_agent.agent.rpc import STATE_TOPIC, STATE_VERSION, TOPIC, VERSION, RpcServer

    path = tmp_path / "agent.conf"
    exchange = tmp_path.name
    path.write_text(
        f"[DEFAULT]\nhost = agent1\ntransport_url = kombu+memory:///{exchange}\n"
        f"control_exchange = {exchange}\nreport_interval = 1\n"
    )
    conf = agent_conf.new_config([f"--config-file={path}"])
    announced: list[dict[str, Any]] = []
    heard = threading.Event()

    class StateEndpoint:
        target = oslo_messaging.Target(version=STATE_VERSION)

        def compute_state(self, _ctxt, state):
            announced.append(state)
            heard.set()

    transport = message_bus.open_transport(conf)
    listener = oslo_messaging.get_rpc_server(
        transport,
        oslo_messaging.Target(topic=STATE_TOPIC, server="scheduler1"),
        [StateEndpoint()],
        executor="threading",
    )
    listener.start()
    commands = Commands()
    states: list[str] = []
    server = RpcServer(
        conf, commands, own_place(conf), lambda state, _why: states.append(state), lambda: None
    )
    server.start()
    target = oslo_messaging.Target(topic=TOPIC, server="agent1", version=VERSION)
    client = oslo_messaging.get_rpc_client(transport, target, timeout=30)
    yield SimpleNamespace(
        client=client, commands=commands, announced=announced, heard=heard, states=states
    )
    server.stop()
    listener.stop()
    listener.wait()
    transport.cleanup()


def test_the_agent_announces_itself_and_does_not_let_callers_wait_for_a_report(served):
    assert served.heard.wait(30)
    assert served.announced[0]["host"] == "agent1"
    assert served.announced[0]["seq"] == 1
    assert served.states[:2] == ["waiting", "up"]
    assert served.client.call({}, "report_now", node="n") == {"node": "n", "wait": False}


def test_a_server_beside_one_that_cannot_start_is_stopped_before_the_next_try(monkeypatch, request):
    from compute_agent.agent import rpc

    running = []
    troubles = [RuntimeError("access to the queue is refused")]

    class CountedServer(rpc.BusServer):
        def __init__(self, bus: Any, topic: str, *more: Any) -> None:
            super().__init__(bus, topic, *more)
            self.topic = topic

        def start(self) -> None:
            if self.topic != rpc.TOPIC and troubles:
                raise troubles.pop()
            super().start()
            running.append(self)

        def stop(self) -> bool:
            running.remove(self)
            return super().stop()

    monkeypatch.setattr(rpc, "BusServer", CountedServer)
    served = request.getfixturevalue("served")
    assert served.heard.wait(30)
    assert not troubles
    assert len(running) == 2


def test_an_announcement_that_cannot_be_made_does_not_end_the_announcements(served):
    assert served.heard.wait(30)
    served.commands.troubles = [errors.HypervisorUnavailable("the hypervisor is away")]
    while served.commands.troubles:
        served.heard.clear()
        assert served.heard.wait(30)
    served.heard.clear()
    assert served.heard.wait(30)
    # it is not the bus that failed
    assert set(served.states) == {"waiting", "up"}


def test_an_announcement_that_nobody_listens_to_is_no_outage(served, caplog):
    import oslo_messaging

    assert served.heard.wait(30)
    # what RabbitMQ answers when the last listener, such as the only scheduler, has left
    text = "Basic.publish: (404) NOT_FOUND - no exchange 'compute-state_fanout' in vhost '/'"
    served.commands.troubles = [oslo_messaging.MessageDeliveryFailure(text)]
    while served.commands.troubles:
        served.heard.clear()
        assert served.heard.wait(30)
    assert "announce" not in caplog.text


def test_no_bus_or_a_wrong_url_is_a_configuration_error(tmp_path):
    conf = agent_conf.new_config(default_config_files=[], default_config_dirs=[])
    with pytest.raises(errors.InvalidConfiguration, match="transport_url is not set"):
        message_bus.open_transport(conf)
    with pytest.raises(errors.InvalidConfiguration, match="message bus cannot be used"):
        message_bus.open_transport(conf, url="nonsense://x")
