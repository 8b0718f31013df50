"""Meanings of what the libraries of the bus raise."""

import pytest

from compute_agent.daemon.message_bus import BusState, fault_of


@pytest.mark.parametrize(
    ("text", "state", "part"),
    [
        (
            "(0, 0): (403) ACCESS_REFUSED - Login was refused using authentication mechanism "
            "AMQPLAIN. For details see the broker logfile.",
            BusState.REFUSED,
            "the password",
        ),
        (
            "Queue.declare: (403) ACCESS_REFUSED - access to queue 'compute-agent-named-a' in "
            "vhost '/' refused for user 'compute'",
            BusState.REFUSED,
            "permissions",
        ),
        (
            "Connection.open: (530) NOT_ALLOWED - vhost nohost not found",
            BusState.REFUSED,
            "virtual host",
        ),
        ("[Errno 111] Connection refused", BusState.UNREACHABLE, "nothing listens"),
        ("[Errno -2] Name or service not known", BusState.UNREACHABLE, "host name"),
        ("timed out", BusState.UNREACHABLE, "in time"),
        ("something else.", BusState.UNREACHABLE, "something else"),
        ("", BusState.UNREACHABLE, "OSError"),
    ],
)
def test_an_error_names_the_part_that_refuses(text: str, state: BusState, part: str) -> None:
    found_state, why = fault_of(OSError(text))
    assert found_state is state
    assert part in why
    assert text.rstrip(".") in why
