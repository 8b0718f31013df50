"""Lines of the message bus's library, and the format of all lines."""

import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.daemon.logs import PERIOD_SECONDS, BusConditions, set_up
from tests.fixtures.clocks import ManualClock

RABBIT = "oslo.messaging._drivers.impl_rabbit"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def conditions(clock: ManualClock) -> BusConditions:
    return BusConditions(clock)


def record(text: str, *args: object, level: int = logging.ERROR, name: str = RABBIT):
    return logging.LogRecord(name, level, __file__, 1, text, args, None)


def a_minute_without_broker() -> list[logging.LogRecord]:
    """What two connections log while a broker is away."""
    lines = []
    for number in range(30):
        connection = f"connection-{number % 2}"
        lines += [
            record("[%s] AMQP server on %s is unreachable: refused.", connection, "127.0.0.1:5672"),
            record("A recoverable connection/channel error occurred", level=logging.INFO),
            record("Unable to connect to AMQP server after %d tries", number),
            record("basic_cancel: Received method during closing channel 1", name="amqp"),
        ]
    return lines


def test_a_broker_that_is_away_is_one_line(conditions: BusConditions) -> None:
    [line] = [entry for entry in a_minute_without_broker() if conditions.pass_on(entry)]
    assert "127.0.0.1:5672 is unreachable" in line.getMessage()


def test_what_a_broker_says_to_one_that_leaves_is_no_line(conditions: BusConditions) -> None:
    text = "Received method (60, 30) during closing channel 1. This method will be ignored"
    assert not conditions.pass_on(record(text, name="amqp"))
    assert conditions.pass_on(record("AMQP server is unreachable"))


def test_a_message_to_all_that_nobody_waits_for_is_no_line(conditions: BusConditions) -> None:
    text = "Basic.publish: (404) NOT_FOUND - no exchange 'compute-state_fanout' in vhost '/'"
    for line in (
        "Failed to publish message to topic 'compute-state_fanout': %s",
        "Unable to connect to AMQP server on 127.0.0.1:5672 after 2 tries: %s",
    ):
        assert not conditions.pass_on(record(line, text))
    # the broker counts as there
    assert not conditions.pass_on(record("[%s] Reconnected to AMQP", "a", level=logging.INFO))


def test_a_condition_that_lasts_is_logged_again(
    conditions: BusConditions, clock: ManualClock
) -> None:
    assert conditions.pass_on(record("AMQP server is unreachable"))
    clock.now += PERIOD_SECONDS - 1
    assert not conditions.pass_on(record("AMQP server is unreachable"))
    clock.now += 1
    assert conditions.pass_on(record("AMQP server is unreachable"))


def test_its_end_is_one_line_and_the_next_one_is_logged_at_once(conditions: BusConditions) -> None:
    def back() -> bool:
        return conditions.pass_on(record("[%s] Reconnected to AMQP", "a", level=logging.INFO))

    assert not back()
    assert conditions.pass_on(record("AMQP server is unreachable"))
    assert back()
    assert not back()
    assert conditions.pass_on(record("AMQP server is unreachable"))


def test_other_lines_of_the_library_and_all_of_others_are_logged(conditions: BusConditions) -> None:
    others = [
        record("Failed to process message ... skipping it."),
        record("Queue declared with other arguments"),
        record("cannot connect", name="compute_agent.agent.rpc"),
        record("cannot connect", name="compute_agent.agent.rpc"),
        record("connected", level=logging.DEBUG),
        record("connected", level=logging.DEBUG),
    ]
    assert all(conditions.pass_on(other) for other in others)


def test_each_defect_of_a_call_is_logged(conditions: BusConditions) -> None:
    def failed(error: Exception) -> bool:
        name, text = "oslo_messaging.rpc.server", "Exception during message handling"
        info = (type(error), error, None)
        line = logging.LogRecord(name, logging.ERROR, __file__, 1, text, (), info)
        return conditions.pass_on(line)

    assert failed(KeyError("node"))
    assert failed(KeyError("host"))
    assert failed(TypeError("node"))
    assert not failed(KeyError("node"))


def test_every_handler_passes_the_same_record(conditions: BusConditions) -> None:
    line = record("AMQP server is unreachable")
    assert conditions.pass_on(line)
    assert conditions.pass_on(line)


@pytest.fixture
def conf() -> Iterator[cfg.ConfigOpts]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield agent_conf.new_config(["--nodebug"], default_config_files=[])
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_no_error_that_it_does_not_ask_for(
    conf: cfg.ConfigOpts, capfd: pytest.CaptureFixture[str]
) -> None:
    conf.set_override("use_stderr", True)
    set_up(conf, "test-program")
    logger = logging.getLogger("compute_agent.test_logs")
    try:
        raise ValueError("HTTPConnectionPool(host='127.0.0.1')")
    except ValueError as error:
        logger.warning("Placement does not answer.")
        logger.warning("A defect.", exc_info=error)
    short, *rest = capfd.readouterr().err.splitlines()
    assert short.endswith("Placement does not answer.")
    assert "HTTPConnectionPool" in rest[0]


def _record_of(call: Callable[[], object]) -> logging.LogRecord:
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever it is
        info = sys.exc_info()
    return logging.LogRecord(
        "oslo_messaging.rpc.server", logging.ERROR, "x.py", 1, "It failed\nin lines", (), info
    )


def test_a_message_that_no_library_can_read_is_one_line_without_traceback() -> None:
    record = _record_of(lambda: json.loads("no\nmessage"))
    assert BusConditions(lambda: 0.0).pass_on(record)
    assert record.exc_info is None
    assert record.getMessage().startswith("It failed: JSONDecodeError: ")
    assert len(record.getMessage().splitlines()) == 1


def test_a_defect_of_this_program_keeps_its_traceback() -> None:
    record = _record_of(lambda: message_bus.version_cap(None, "x"))  # type: ignore[arg-type]
    assert BusConditions(lambda: 0.0).pass_on(record)
    assert record.exc_info is not None
