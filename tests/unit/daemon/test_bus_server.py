"""Servers on a message bus in memory, and their end."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import bus_server, message_bus
from compute_agent.daemon.bus_server import BusServer

PATIENCE = 30.0


class Endpoint:
    """One call, which ends when the test allows it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()

    def work(self, _ctxt: Mapping[str, Any]) -> str:
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        return "done"


def bus() -> Any:
    return message_bus.open_transport(agent_conf.new_config(default_config_files=[]), "fake://")


def client(transport: Any, topic: str) -> Any:
    import oslo_messaging

    return oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic=topic), timeout=PATIENCE
    )


def test_a_call_in_progress_is_answered_before_the_server_has_stopped() -> None:
    transport, endpoint, answers = bus(), Endpoint(), []
    server = BusServer(transport, "answered", "here", [endpoint])
    server.start()
    call = threading.Thread(
        target=lambda: answers.append(client(transport, "answered").call({}, "work"))
    )
    call.start()
    assert endpoint.began.wait(PATIENCE)
    stopped = threading.Event()
    stop = threading.Thread(target=lambda: server.stop() and stopped.set())
    stop.start()
    stop.join(0.1)
    assert not stopped.is_set()
    endpoint.may_end.set()
    stop.join(PATIENCE)
    call.join(PATIENCE)
    assert stopped.is_set()
    assert answers == ["done"]


def test_the_end_of_a_server_leaves_no_thread_of_it() -> None:
    before = set(threading.enumerate())
    transport = bus()
    servers = [BusServer(transport, "idle", name, []) for name in ("a", "b")]
    for server in servers:
        server.start()
    assert bus_server.stop_together(servers)
    transport.cleanup()
    assert [thread for thread in set(threading.enumerate()) - before if thread.is_alive()] == []


def test_several_threads_may_ask_at_once_whether_the_server_is_reached() -> None:
    transport = bus()
    server = BusServer(transport, "asked", "here", [])
    server.start()
    together = threading.Barrier(8)

    def ask(_number: int) -> bool:
        together.wait(PATIENCE)
        return server.reaches_itself()

    with ThreadPoolExecutor(8) as threads:
        answers = [answer for _ in range(50) for answer in threads.map(ask, range(8))]
    assert all(answers)
    assert server.stop()


def test_a_broker_that_is_gone_is_not_waited_for() -> None:
    class GoneServer(BusServer):
        def _wake(self, woken: threading.Event) -> None:
            """Send nothing, as where the broker takes no message."""

    transport = bus()
    server = GoneServer(transport, "gone", "here", [])
    server.start()
    assert not server.stop()
    # to leave nothing behind
    server._server.stop()
    server._server.wait()
    transport.cleanup()


def test_a_bus_that_fails_while_it_is_left_is_not_called_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailingServer(BusServer):
        def _leave(self) -> None:
            super()._leave()
            raise ConnectionResetError("the broker closed the connection")

    transport = bus()
    servers = [kind(transport, "failing", "here", []) for kind in (BusServer, FailingServer)]
    for server in servers:
        server.start()
    assert not bus_server.stop_together(servers)
    assert "the broker closed the connection" in caplog.text
    transport.cleanup()
