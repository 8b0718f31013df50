"""Places and values of the options in a message, so that an operator can correct them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg

from compute_agent import errors

_NAMED = r"\[(?P<group>[^\]\s]+)\](?P<option>\w+)"
_WITH_SECRETS = ("placement", "nova", "neutron")
"""Groups with passwords, whose values are never shown."""


def places(conf: cfg.ConfigOpts, message: str) -> str:
    """Return `[group]option = value in FILE` for each option named in a message.

    Empty when none of them is set in a file.
    """
    settings: dict[str, None] = {}
    for match in re.finditer(_NAMED, message):
        if (place := _place(conf, match["group"], match["option"])) is not None:
            settings[place] = None
    return "; ".join(settings)


def missing_files(conf: cfg.ConfigOpts) -> str:
    """Return half a sentence with the places that were searched, if no file was found there.

    Empty where a file was read, or where none was searched for.
    """
    if conf.config_file or conf.config_dir or not conf.project:
        return ""
    name = conf.project
    searched_places = (
        f"~/.{name}/{name}.conf, ~/{name}.conf, /etc/{name}/{name}.conf, /etc/{name}.conf"
    )
    return (
        f"there is no configuration file: neither {searched_places}, nor one given with "
        "--config-file"
    )


@contextmanager
def naming_places(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Add the places of its options to the message of an InvalidConfiguration."""
    try:
        yield
    except errors.InvalidConfiguration as error:
        where = places(conf, str(error))
        if not where:
            raise
        raise type(error)(f"{str(error).rstrip('.')}. What is set: {where}.") from error


def _place(conf: cfg.ConfigOpts, group: str, option: str) -> str | None:
    where = None if group == "DEFAULT" else group
    try:
        location = conf.get_location(option, where)
        value: Any = conf[option] if where is None else conf[group][option]
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.ConfigFileValueError):
        return None  # the message speaks of something else in brackets
    if location is None or location.location is not cfg.Locations.user or not location.detail:
        return None
    shown_value = (
        "" if group in _WITH_SECRETS or option == "transport_url" else f" = {_text(value)}"
    )
    return f"[{group}]{option}{shown_value} in {location.detail}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
