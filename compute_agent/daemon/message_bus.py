"""Connection of agent and scheduler to the message bus, its state, and what its errors say of that.

There are two traps:
- oslo.service chooses eventlet for good unless a backend is set before oslo.messaging is imported.
- oslo.messaging registers some of its options on the global configuration only, so it gets that
  object, with the same files parsed; our own options never go there.
"""

from __future__ import annotations

import logging
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from compute_agent import errors, extras

if TYPE_CHECKING:
    from oslo_config import cfg

_ERRORS_OF_SCHEDULERS = "compute_agent.scheduler.errors"
"""Module of errors that a caller gets as they were raised, with what they carry."""
LIBRARIES = ("oslo.messaging", "oslo_messaging", "amqp", "kombu")
"""Names of the loggers below which the libraries of the bus log."""
_WITHOUT_LISTENER = r"NOT_FOUND - no exchange '\S+_fanout'"
_VERSION = r"\d+\.\d+"
_REFUSALS: Final = (
    ("access to", "the user of [DEFAULT]transport_url needs more permissions: set_permissions"),
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


class BusState(StrEnum):
    """Whether messages go through."""

    OFF = "off"
    """None is configured."""
    WAITING = "waiting"
    """It is joined once a node has been reported."""
    UP = "up"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class BusStatus(Struct, frozen=True):
    """The state of the bus, and since when it is so.

    :ivar why: what is wrong, and what to do; empty: nothing.
    """

    state: BusState = BusState.OFF
    since: float | None = None
    why: str = ""


def use_threads() -> None:
    """Make oslo.service, below oslo.messaging, work with threads.

    To be called before anything of oslo.messaging is imported. It may be called again.

    :raises InvalidConfiguration: this host was installed without what a bus needs.
    """
    extras.require("bus", "A message bus", "oslo_messaging", "oslo_service")
    # it would cost every host 18 MiB
    with extras.without("eventlet"):
        from oslo_service import backend

        backend.init_backend(backend.BackendType.THREADING)
        import oslo_messaging  # noqa: F401 - with what is below it, while eventlet is hidden


def is_without_listener(text: str) -> bool:
    """Return whether a message to all listeners failed only because there is none.

    RabbitMQ deletes their exchange with the last of them, of which a sender learns by this error;
    the next message makes the exchange again.

    :param text: of the error.
    """
    return bool(re.search(_WITHOUT_LISTENER, text))


def keep_quiet() -> None:
    """Let the libraries of the bus log nothing: for a command, which says itself what it lacks."""
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def version_cap(conf: cfg.ConfigOpts, service: str) -> str | None:
    """Return the newest version that calls to a service may have, `None` for any.

    :param service: an option of group `upgrade_levels`.
    """
    value = conf.upgrade_levels[service]
    return value if value and re.fullmatch(_VERSION, value) else None


def shown_address(conf: cfg.ConfigOpts) -> str:
    """Return the kind and the hosts of the message bus, without users and passwords."""
    text = conf.transport_url or ""
    try:
        url = urlsplit(text)
    except ValueError:
        return "at a URL that cannot be read"
    hosts = url.netloc.split(",")
    if "@" in text:
        # a password may have a comma that nobody quoted
        hosts = [host.rpartition("@")[2] for host in hosts if "@" in host]
    shown_hosts = ", ".join(filter(None, hosts))
    return f"{url.scheme} at {shown_hosts}" if shown_hosts else url.scheme or "none"


def open_transport(conf: cfg.ConfigOpts, url: str | None = None) -> Any:
    """Return an oslo.messaging transport for RPC.

    :param url: instead of [DEFAULT]transport_url.
    :raises InvalidConfiguration: the URL is missing, or it or another option of the bus is wrong.
    """
    use_threads()
    import oslo_messaging
    from oslo_config import cfg

    address = url or conf.transport_url
    if not address:
        raise errors.InvalidConfiguration(
            "[DEFAULT]transport_url is not set, so there is no message bus. Set it, for example to "
            "rabbit://user:password@broker:5672//."
        )
    oslo_messaging.set_transport_defaults(conf.control_exchange)
    try:
        # every call parses again: the files of the caller, nothing from a command line
        cfg.CONF(
            [],
            project="compute-agent",
            default_config_files=list(conf.config_file or ()),
            default_config_dirs=list(conf.config_dir or ()),
        )
        return oslo_messaging.get_rpc_transport(
            cfg.CONF, url=address, allowed_remote_exmods=[_ERRORS_OF_SCHEDULERS]
        )
    except (
        cfg.Error,
        ValueError,
        oslo_messaging.InvalidTransportURL,
        oslo_messaging.DriverLoadFailure,
    ) as error:
        raise errors.InvalidConfiguration(
            f"The message bus cannot be used: {error}. Correct [DEFAULT]transport_url or the "
            "options of the groups oslo_messaging_*."
        ) from error


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
