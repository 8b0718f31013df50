"""Shapes of JSON and YAML values, checked before anything is read out of a document.

Keys that are not in a shape are ignored unless it is closed. A shape names the first
place that does not fit, as `resource_providers[3].generation is null, not a whole number`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

SHOWN: Final = 60
"""Characters of a value, or of a key, that go into a message."""

LARGEST: Final = 2**63 - 1
"""Beyond it a number is damage, and would not survive a conversion to another type."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")

Check: TypeAlias = Callable[[Any], str | None]
"""Returns `None` for a value that fits, else the fault, to be appended to the value's place."""


class Shape(NamedTuple):
    """The shape of one kind of document.

    :ivar words: the document in words, for messages.
    """

    words: str
    check: Check

    def misfit(self, body: Any) -> str | None:
        """Return the first place in `body` that does not fit, if any."""
        misfit_of_body = self.check(body)
        if misfit_of_body is None:
            return None
        return (
            f"it{misfit_of_body}"
            if misfit_of_body.startswith(" ")
            else misfit_of_body.removeprefix(".")
        )


def is_not(value: Any, expectation: str) -> str:
    """Return a check's result for a value that is not as expected."""
    return f" is {_value_text(value)}, not {expectation}"


def one_of(expectation: str, *types: type) -> Check:
    """Return a check for a value of one of these types."""

    def check(value: Any) -> str | None:
        # by type and not by isinstance: True is an instance of int
        return None if type(value) in types else is_not(value, expectation)

    return check


def word_of(*words: str) -> Check:
    """Return a check for one of these words."""

    def check(value: Any) -> str | None:
        # a tuple and not a set: a value such as a list cannot be looked up in a set
        return None if value in words else is_not(value, " or ".join(words))

    return check


def text_like(pattern: str, expectation: str) -> Check:
    """Return a check for text that matches a pattern as a whole."""
    matches = re.compile(pattern).fullmatch

    def check(value: Any) -> str | None:
        return None if type(value) is str and matches(value) else is_not(value, expectation)

    return check


def list_of(entry: Check) -> Check:
    """Return a check for a list all of whose entries fit."""

    def check(value: Any) -> str | None:
        if type(value) is not list:
            return is_not(value, "a list")
        for place, member in enumerate(value):
            misfit_of_member = entry(member)
            if misfit_of_member is not None:
                return f"[{place}]{misfit_of_member}"
        return None

    return check


def map_of(entry: Check, key_check: Check | None = None) -> Check:
    """Return a check for an object all of whose values fit, and all of whose keys.

    :param key_check: any text, when left out.
    """
    fits_key = TEXT if key_check is None else key_check

    def check(value: Any) -> str | None:
        if type(value) is not dict:
            return is_not(value, "an object")
        for key, member in value.items():
            misfit_of_member = entry(member)
            if misfit_of_member is not None:
                return f"{_step(key)}{misfit_of_member}"
            misfit_of_member = fits_key(key)
            if misfit_of_member is not None:
                return f": the key{misfit_of_member}"
        return None

    return check


def object_of(
    required: Mapping[str, Check],
    optional: Mapping[str, Check] = MappingProxyType({}),
    *,
    is_closed: bool = False,
) -> Check:
    """Return a check for an object with these keys.

    :param is_closed: other keys are an error.
    """

    def check(value: Any) -> str | None:
        if type(value) is not dict:
            return is_not(value, "an object")
        for key, entry in required.items():
            if key not in value:
                return f".{key} is missing"
            misfit_of_member = entry(value[key])
            if misfit_of_member is not None:
                return f".{key}{misfit_of_member}"
        for key, entry in optional.items():
            misfit_of_member = entry(value[key]) if key in value else None
            if misfit_of_member is not None:
                return f".{key}{misfit_of_member}"
        if is_closed:
            for key in value:
                if key not in required and key not in optional:
                    return f"{_step(key)} is not known"
        return None

    return check


def anything(_value: Any) -> str | None:
    """Accept any value."""
    return None


def _text(value: Any) -> str | None:
    if type(value) is not str:
        return is_not(value, "text")
    # JSON can spell half a character, which can be neither printed nor sent
    return None if value.isascii() or _has_whole_characters(value) else is_not(value, "text")


def _whole(value: Any) -> str | None:
    fits = type(value) is int and -LARGEST <= value <= LARGEST
    return None if fits else is_not(value, "a whole number")


def _count(value: Any) -> str | None:
    fits = type(value) is int and 0 <= value <= LARGEST
    return None if fits else is_not(value, "a whole number from 0 on")


def _number(value: Any) -> str | None:
    fits = type(value) in (int, float) and math.isfinite(value) and abs(value) <= LARGEST
    return None if fits else is_not(value, "a number")


TEXT: Final[Check] = _text
WHOLE: Final[Check] = _whole
COUNT: Final[Check] = _count
NUMBER: Final[Check] = _number
BOOLEAN: Final[Check] = one_of("true or false", bool)
AMOUNTS: Final[Check] = map_of(WHOLE)
"""Amounts by resource class."""


def text_or_null(value: Any) -> str | None:
    """Check for text or null."""
    return None if value is None or TEXT(value) is None else is_not(value, "text or null")


def _has_whole_characters(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _value_text(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except RecursionError:
        return "something nested too deeply to be shown"
    except (TypeError, ValueError):
        # YAML has keys that JSON lacks, and values that contain themselves
        return "something that cannot be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _step(key: Any) -> str:
    is_plain = type(key) is str and _PLAIN_KEY.fullmatch(key)
    return f".{key}" if is_plain else f"[{_value_text(key)}]"
