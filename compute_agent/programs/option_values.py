"""Values of options: those of a wrong type, and the warnings of what has no effect."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg

LOG = logging.getLogger(__name__)

_LOCATION: Final = re.compile(
    r"^Value for option \S+ from (?P<where>.*?) is not valid: ", re.DOTALL
)
_DETAIL: Final = re.compile(r"detail='(?P<detail>[^']*)'")


def wrong_values(values: Mapping[str, Any], group: str = "DEFAULT") -> Iterator[str]:
    """Read every option once, and iterate over the wrong ones: option, file and reason.

    oslo.config converts a value when it is first used; an operator wants to know at the start.
    """
    for name in sorted(values):
        try:
            value = values[name]
        except ValueError as error:
            yield _wrong_value(group, name, error)
        except cfg.Error as error:
            yield f"option [{group}]{name}: {sentence(error)}"
        else:
            if isinstance(value, cfg.ConfigOpts.GroupAttr):
                yield from wrong_values(value, name)


def warn_of_useless(
    conf: cfg.ConfigOpts,
    without_effect: Iterable[tuple[str | None, str]],
    unread_lines: Sequence[str],
) -> None:
    """Log a warning of options that the files set and that have no effect, and one of unread ones.

    :param without_effect: group (`None` for the default group) and name of options that parse
        only so that an existing file stays valid.
    """
    names = [
        f"[{group or 'DEFAULT'}]{name}"
        for group, name in without_effect
        if (place := conf.get_location(name, group)) and place.location.is_user_controlled
    ]
    if names:
        LOG.warning(
            "The configuration sets options that have no effect in this version: %s. Remove them, "
            "unless another program reads the same file.",
            ", ".join(names),
        )
    if unread_lines:
        LOG.warning(
            "Nothing reads these options: %s. Correct or remove them.", "; ".join(unread_lines)
        )


def sentence(error: Exception) -> str:
    """Return the text of an error without the line of a file that it quotes: it may be secret."""
    line = getattr(error.__context__, "line", None)
    text = " ".join(str(error).replace(f": {line!r}", "").split())
    return text if text.endswith(".") else text + "."


def _wrong_value(group: str, option: str, error: ValueError) -> str:
    text = str(error)
    match = _LOCATION.match(text)
    where, reason = "", text
    if match:
        detail = _DETAIL.search(match["where"])
        where = f" in {detail['detail'] if detail else match['where']}"
        reason = text[match.end() :]
    return f"option [{group}]{option}{where}: {reason}"
