"""Where the options that a message speaks of are set, and to what: so that it can be corrected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg

from compute_agent import errors

_NAMED = re.compile(r"\[(?P<group>[^\]\s]+)\](?P<option>\w+)")
_WITH_SECRETS = ("placement", "nova", "neutron", "glance")
"""Groups with passwords, of which no value is shown."""


def places(conf: cfg.ConfigOpts, message: str) -> str:
    """Return ``[group]option = value in FILE`` for the options named in a message, one after the
    other; empty where none of them is set in a file.
    """
    found: dict[str, None] = {}
    for named in _NAMED.finditer(message):
        if (place := _place(conf, named["group"], named["option"])) is not None:
            found[place] = None
    return "; ".join(found)


@contextmanager
def naming_places(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Add to an InvalidConfiguration where the options that it speaks of are set."""
    try:
        yield
    except errors.InvalidConfiguration as error:
        where = places(conf, str(error))
        if not where:
            raise
        raise type(error)(f"{error} What is set: {where}.") from error


def _place(conf: cfg.ConfigOpts, group: str, option: str) -> str | None:
    where = None if group == "DEFAULT" else group
    try:
        location = conf.get_location(option, where)
        value: Any = conf[option] if where is None else conf[group][option]
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.ConfigFileValueError):
        return None  # the message speaks of something else in brackets
    if location is None or location.location is not cfg.Locations.user or not location.detail:
        return None
    shown = "" if group in _WITH_SECRETS or option == "transport_url" else f" = {_text(value)}"
    return f"[{group}]{option}{shown} in {location.detail}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
