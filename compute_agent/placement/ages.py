"""How old what placement answers with is, by its own clock where it tells that."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping


def age_of(headers: Mapping[str, str], clock: Callable[[], float] = time.time) -> float | None:
    """Return the seconds since what was read was last written; None: placement does not tell.

    :param headers: of the answer, names in lower case.
    """
    written = _seconds(headers.get("last-modified"))
    if written is None:
        return None
    now = _seconds(headers.get("date"))
    return (clock() if now is None else now) - written


def _seconds(date: str | None) -> float | None:
    if date is None:
        return None
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        # no date: told by the None, and what is of unknown age is judged by nobody
        return None
