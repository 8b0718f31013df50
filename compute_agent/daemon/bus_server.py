"""Servers on the message bus that stop at once when they are idle.

Two parts of the library wait in their own time. A listener looks for its end between two waits for
messages, which grow to seconds: a message of the server to itself ends the wait. Idle threads of
its executor look once a second, those of Python's at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from compute_agent.daemon.message_bus import use_threads
from compute_agent.daemon.tracing import traced_endpoint

LOG = logging.getLogger(__name__)

BROKER_SECONDS: Final = 0.5
"""A broker that does not take a message for so long is taken for gone."""

_NAMESPACE: Final = "stopping"
_SEND_RETRIES: Final = 2


class BusServer:
    """One server of a topic.

    :param bus: as `message_bus.open_transport` returns it.
    :param name: the server's own name within the topic.
    """

    def __init__(self, bus: Any, topic: str, name: str, endpoints: Sequence[object]) -> None:
        use_threads()
        import oslo_messaging

        waker = _Waker(oslo_messaging.Target(namespace=_NAMESPACE, version="1.0"))
        self._server = oslo_messaging.get_rpc_server(
            bus,
            oslo_messaging.Target(topic=topic, server=name),
            [*map(traced_endpoint, endpoints), waker],
        )
        # There is no option for it. Under a release that does not look at it, an idle server takes
        # a second longer to end.
        self._server._executor_cls = ThreadPoolExecutor
        target = oslo_messaging.Target(
            topic=topic, server=name, namespace=_NAMESPACE, version="1.0"
        )
        self._to_itself = oslo_messaging.get_rpc_client(bus, target, retry=0)
        self._waking: tuple[threading.Thread, threading.Event] | None = None
        self._waking_lock = threading.Lock()

    def start(self) -> None:
        """Begin to answer; wait for a broker that is away."""
        self._server.start()

    def stop(self) -> bool:
        """Finish what is being answered, and leave the bus.

        :returns: False when the broker is gone, or goes meanwhile: nothing is waited for, as no
            answer would arrive.
        """
        if not self.reaches_itself():
            return False
        try:
            self._leave()
        except Exception as error:  # noqa: BLE001 - also those of the libraries below
            LOG.warning(
                "Leaving the message bus failed, and its connection is abandoned: %s", error
            )
            return False
        return True

    def reaches_itself(self) -> bool:
        """Send a message to itself; return whether the broker takes it in time."""
        # the upkeep may ask while the server is being stopped
        with self._waking_lock:
            # one that hangs is waited for further: it would cost a thread a call
            if self._waking is None or not self._waking[0].is_alive():
                wake_event = threading.Event()
                thread = threading.Thread(
                    target=self._wake, args=(wake_event,), name="wake", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    LOG.warning("The message bus cannot be checked: %s", error)
                    return False
                self._waking = thread, wake_event
            thread, wake_event = self._waking
        thread.join(BROKER_SECONDS)
        return wake_event.is_set()

    def _leave(self) -> None:
        self._server.stop()
        self._server.wait()

    def _wake(self, wake_event: threading.Event) -> None:
        try:
            self._to_itself.cast({}, "wake")
        except Exception as error:  # noqa: BLE001 - also those of the libraries below
            LOG.debug(
                "The broker accepts no message, so the connection to it is abandoned: %s", error
            )
        else:
            wake_event.set()


def check_broker(bus: Any, topic: str) -> None:
    """Find out in bounded time whether the broker takes messages: a call waits for it for ever.

    :param topic: of servers that take the message, and do nothing with it.
    :raises Exception: it cannot be used; whatever the libraries raise.
    """
    import oslo_messaging

    target = oslo_messaging.Target(topic=topic, namespace=_NAMESPACE, version="1.0")
    oslo_messaging.get_rpc_client(bus, target, retry=_SEND_RETRIES).cast({}, "wake")


def stop_together(servers: Sequence[BusServer]) -> bool:
    """Stop servers side by side; return False when the broker is gone, or no thread is left."""
    results: list[bool] = []
    threads: list[threading.Thread] = []
    for server in servers:
        thread = threading.Thread(target=lambda each=server: results.append(each.stop()))
        thread.daemon = True
        try:
            thread.start()
        except RuntimeError as error:
            LOG.warning("The message bus is left as it is: %s", error)
            results.append(False)
        else:
            threads.append(thread)
    for thread in threads:
        thread.join()
    return all(results)


class _Waker:
    """The endpoint of the message to oneself."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def wake(self, _ctxt: Mapping[str, Any]) -> None:
        """Do nothing: that the message came is all."""
