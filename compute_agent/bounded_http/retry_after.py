"""The header Retry-After: the time that an answer asks to wait."""

from __future__ import annotations

import email.utils
import re
import time
from datetime import UTC
from typing import Final

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")


def seconds_of(value: str) -> float | None:
    """Return the seconds from now, of a number or an HTTP date; `None` for anything else."""
    if _NUMBER.fullmatch(value.strip()):
        return max(0.0, float(value))
    try:
        date = email.utils.parsedate_to_datetime(value)
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
