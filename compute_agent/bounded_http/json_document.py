"""JSON documents of bounded depth, size and numbers, for callers that decode them into no type."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from compute_agent.bounded_http.limits import (
    INTEGER_DIGITS,
    JSON_CONTAINERS,
    JSON_DEPTH,
    LimitExceeded,
)

_CONTAINERS: Final = (dict, list)


def parse(content: bytes) -> Any:
    """Parse a document.

    :raises ValueError: it is not JSON.
    :raises LimitExceeded: it would cost too much, or has a number that fails in arithmetic.
    """
    limit_containers(content)
    try:
        document = json.loads(
            content.decode(),
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_not_a_number,
        )
    except RecursionError as error:
        raise _too_deep() from error
    if _is_deep(document):
        raise _too_deep()
    return document


def limit_containers(content: bytes) -> None:
    """Look whether a document has no more lists and objects than it may.

    :raises LimitExceeded: it has.
    """
    if content.count(b"[") + content.count(b"{") > JSON_CONTAINERS:
        raise LimitExceeded(f"has more than {JSON_CONTAINERS:,} lists and objects in its JSON")


def _is_deep(document: Any) -> bool:
    level = [document] if type(document) in _CONTAINERS else []
    for _ in range(JSON_DEPTH):
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) in _CONTAINERS
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
