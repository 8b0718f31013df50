"""State of a program's message bus, and what an error of the libraries below says of it.  Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class BusState(StrEnum):
    """Whether messages go through."""

    OFF = "off"
    """None is configured."""
    WAITING = "waiting"
    """It is joined once a node has been reported."""
    UP = "up"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class BusStatus(NamedTuple):
    """The state of the bus, and since when it is so.

    :ivar why: what is wrong, and what to do; empty: nothing.
    """

    state: BusState = BusState.OFF
    since: float | None = None
    why: str = ""


_REFUSALS: Final = (
    ("access_refused", "the user or the password of [DEFAULT]transport_url is wrong"),
    ("not_allowed", "the virtual host of [DEFAULT]transport_url does not exist, or is not open"),
    ("certificate", "a certificate is not accepted: check [oslo_messaging_rabbit]ssl_ca_file"),
)
"""Part of the error, in small letters; what it means. Those of the broker come with a code."""

_OUTAGES: Final = (
    ("connection refused", "nothing listens there: start the broker, or correct the port"),
    ("name or service not known", "the host name of [DEFAULT]transport_url is not known"),
    ("name resolution", "the host name of [DEFAULT]transport_url is not known"),
    ("timed out", "it does not answer in time: the broker hangs, or a firewall drops packets"),
)


def fault_of(error: BaseException) -> tuple[BusState, str]:
    """Return which of both a failed connection is, refused or unreachable, and why.

    :param error: whatever the libraries raised.
    """
    text = str(error).strip().rstrip(".") or type(error).__name__
    known_words = text.lower()
    for state, meanings in ((BusState.REFUSED, _REFUSALS), (BusState.UNREACHABLE, _OUTAGES)):
        for word, meaning in meanings:
            if word in known_words:
                return state, f"{meaning} ({text})"
    return BusState.UNREACHABLE, text
