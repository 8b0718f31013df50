"""Questions to a running scheduler over the message bus, for commands that are not on it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from compute_agent.daemon import message_bus
from compute_agent.scheduler.errors import NoSchedulerAnswers
from compute_agent.scheduler.fleet.announcements import Announcements, AskedAnnouncements

if TYPE_CHECKING:
    from oslo_config import cfg

STATUS_TIMEOUT = 30.0
ANNOUNCEMENTS_TIMEOUT = 5.0
"""Seconds that a command waits to learn who is alive; without an answer it goes on."""
SEND_RETRIES = 2
_SPARE_SECONDS: Final = 1.0


def upgrade_status(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return `Fleet.status` of a running scheduler.

    :raises InvalidConfiguration: there is no bus.
    :raises NoSchedulerAnswers: no scheduler answered in time, or it answered with an error.
    """
    status: dict[str, Any] = _Questions(conf).ask("upgrade_status", STATUS_TIMEOUT)
    return status


def announcements(conf: cfg.ConfigOpts) -> Announcements:
    """Return what a running scheduler has heard of all hosts; it is asked again from time to time.

    :raises InvalidConfiguration: there is no bus.
    :raises NoSchedulerAnswers: no scheduler answered in time, or it answered with an error; later
        a search may raise it.
    """
    questions = _Questions(conf)
    asked_announcements = AskedAnnouncements(
        lambda: questions.ask("announced_hosts", ANNOUNCEMENTS_TIMEOUT)["hosts"]
    )
    asked_announcements.refresh()
    return asked_announcements


class _Questions:
    """Questions to a running scheduler, of which one at most waits for a broker that is away.

    The library waits for the first connection without a bound, so the wait is left to a thread.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer: Future[Any] = Future()

    def ask(self, method: str, timeout: float) -> Any:
        """Return what a scheduler answers.

        :raises InvalidConfiguration: there is no bus.
        :raises NoSchedulerAnswers: no scheduler answered in time, or with an error.
        """
        message_bus.use_threads()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._start(method, timeout)
            answer = self._answer
        try:
            # the call itself ends in time wherever there is a broker
            return answer.result(timeout + _SPARE_SECONDS)
        except TimeoutError:
            raise NoSchedulerAnswers(
                f"The message bus did not take the question {method} within {timeout:.0f} s: its "
                "broker is away. Check [DEFAULT]transport_url and the broker."
            ) from None

    def _start(self, method: str, timeout: float) -> None:
        bus = message_bus.open_transport(self._conf)
        self._answer = Future()
        self._thread = threading.Thread(
            target=self._call, args=(bus, method, timeout, self._answer), name="asks", daemon=True
        )
        self._thread.start()

    def _call(self, bus: Any, method: str, timeout: float, answer: Future[Any]) -> None:
        import oslo_messaging

        from compute_agent.scheduler.bus.rpc import SchedulerClient

        try:
            cap = message_bus.version_cap(self._conf, "scheduler")
            answer.set_result(SchedulerClient(bus, timeout, cap, retry=SEND_RETRIES).call(method))
        except oslo_messaging.MessagingException as error:
            answer.set_exception(
                NoSchedulerAnswers(
                    f"No scheduler answered {method} on the message bus within {timeout:.0f} s "
                    f"({type(error).__name__}: {error}). Check that compute-scheduler serve runs "
                    "on the same bus, in the same version."
                )
            )
        except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
            answer.set_exception(error)
        finally:
            bus.cleanup()
