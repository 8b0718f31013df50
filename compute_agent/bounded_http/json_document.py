"""JSON documents of bounded depth, size and numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn

from compute_agent.bounded_http.limits import (
    INTEGER_DIGITS,
    JSON_CONTAINERS,
    JSON_DEPTH,
    LimitExceeded,
)

_BESIDE_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"\\'))
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LARGE: Final = 64 * 1024
_LONG_NUMBER: Final = b"0" * (INTEGER_DIGITS + 1)


def parse(text: str) -> Any:
    """Parse a text.

    What can be seen in its bytes is not looked for in each value: that took half of the time.

    :raises ValueError: the text is not JSON.
    :raises LimitExceeded: it would cost too much, or has a number that fails in arithmetic.
    """
    content = text.encode()
    structure = content.translate(None, _BESIDE_STRUCTURE)
    containers = structure.count(b"[") + structure.count(b"{")
    if containers > JSON_CONTAINERS:
        raise LimitExceeded(f"has more than {JSON_CONTAINERS:,} lists and objects in its JSON")
    has_long_numbers = _LONG_NUMBER in content.translate(_ZEROS)
    if len(content) < _LARGE or has_long_numbers:
        document = _parse(text, has_long_numbers)
    else:
        try:
            document = _quick_parser()(content)
        except ValueError:
            # also what is JSON for Python alone
            document = _parse(text, has_long_numbers)
    if containers > JSON_DEPTH and not _is_shallow(structure) and _is_deep(document):
        raise _too_deep()
    return document


def _parse(text: str, has_long_numbers: bool) -> Any:
    try:
        return json.loads(
            text,
            parse_int=_integer if has_long_numbers else None,
            parse_float=_finite,
            parse_constant=_not_a_number,
        )
    except RecursionError as error:
        raise _too_deep() from error


@cache
def _quick_parser() -> Callable[[bytes], Any]:
    """Return a parser for answers about many hosts, imported where there is such an answer."""
    try:
        import orjson
    except ImportError:
        return lambda content: _parse(content.decode(), False)
    return orjson.loads


def _is_shallow(structure: bytes) -> bool:
    """Whether the brackets alone show that no depth is exceeded; a bracket in a text hides it."""
    remainder = structure.replace(b'""', b"")
    # each time up to two levels go, the innermost lists and then the objects around them
    for _ in range(JSON_DEPTH // 2):
        before, remainder = remainder, remainder.replace(b"[]", b"").replace(b"{}", b"")
        if not remainder or len(remainder) == len(before):
            break
    return not remainder


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(JSON_DEPTH):
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) in (dict, list)
        ]
        if not level:
            return False
    return True


def _too_deep() -> LimitExceeded:
    return LimitExceeded(f"is JSON nested deeper than {JSON_DEPTH} levels")


def _integer(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS and len(digits.lstrip("-")) > INTEGER_DIGITS:
        raise LimitExceeded(
            f"has an integer of {len(digits)} digits in its JSON, more than {INTEGER_DIGITS}"
        )
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise LimitExceeded(f"has the number {digits[:30]} in its JSON, which is too large")
    return number


def _not_a_number(name: str) -> NoReturn:
    raise LimitExceeded(f"has {name} in its JSON, which is not a number")
