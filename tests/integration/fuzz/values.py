"""Values that no request should have, and JSON documents in which something is changed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, Final

TEXTS: Final = (
    *("", " ", "\0", "a\0b", "\ud800", "\U0010ffff", "é", "e\u0301", "null", "true", "-1", "1e400"),
    *(
        "' OR 1=1 --",
        "%s%n",
        "../../etc/passwd",
        "{uuid}",
        "VCPU\n",
        "CUSTOM_",
        "custom_x",
        "\r\nA: b",
    ),
    *("A" * 256, "CUSTOM_" + "X" * 248, "x" * 70_000, "00000000-0000-0000-0000-00000000000g"),
)
NUMBERS: Final = (
    *(
        0,
        -1,
        1,
        2**31 - 1,
        2**31,
        -(2**31) - 1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        10**30,
        -(10**30),
    ),
    *(0.1, -0.0, 1e-320, 1e308, 3.4028236e38, 16.5, 1e400, float("nan"), float("-inf")),
)
DEEP: Final = "nested deeply"
"""It stands for lists and objects in one another, which are written as text only."""
OTHERS: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], {"": {}}, [None], {"a": [1, {}]})


def hostile(dice: random.Random) -> Any:
    """Draw a value of any type."""
    choice = dice.random()
    if choice < 0.35:
        return dice.choice(TEXTS)
    if choice < 0.7:
        return dice.choice(NUMBERS)
    return copy.deepcopy(dice.choice(OTHERS)) if choice < 0.97 else DEEP


def changed(dice: random.Random, document: Any) -> Any:
    """Return the document with some places replaced, removed, added or doubled."""
    document = copy.deepcopy(document)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        places = list(_places(document))
        if not places:
            return hostile(dice)
        container, key = dice.choice(places)
        _change(dice, container, key)
    return document


def _places(document: Any) -> Any:
    """All pairs of a container and a key in it."""
    keys: Any = ()
    if isinstance(document, dict):
        keys = list(document)
    elif isinstance(document, list):
        keys = range(len(document))
    for key in keys:
        yield document, key
        yield from _places(document[key])


def _change(dice: random.Random, container: Any, key: Any) -> None:
    kind = dice.random()
    if kind < 0.5:
        container[key] = hostile(dice)
    elif kind < 0.65:
        del container[key]
    elif isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]) if kind < 0.85 else hostile(dice))
    elif kind < 0.85:
        container[dice.choice(TEXTS)] = hostile(dice)
    else:
        container[f"{key}{dice.choice((' ', 'x', chr(0)))}"] = container.pop(key)


def encoded(dice: random.Random, document: Any) -> bytes:
    """The document as bytes, which are sometimes not JSON any more."""
    text = json.dumps(document, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
    if DEEP.encode() in text:
        depth = dice.choice((20, 200, 900, 5000))
        text = text.replace(b'"%s"' % DEEP.encode(), _nested(dice, depth))
    if dice.random() < 0.85:
        return text
    return dice.choice(_SPOILERS)(dice, text)


def _nested(dice: random.Random, depth: int) -> bytes:
    opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return opening * depth + b"1" + closing * depth


def _truncated(dice: random.Random, text: bytes) -> bytes:
    return text[: dice.randrange(len(text) + 1)]


def _flipped(dice: random.Random, text: bytes) -> bytes:
    spoilt = bytearray(text)
    for _ in range(dice.randint(1, 4)):
        if spoilt:
            spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
    return bytes(spoilt)


def _doubled_key(dice: random.Random, text: bytes) -> bytes:
    return text.replace(b"{", b'{"name": 1, "allocations": {}, ', 1)


def _surrounded(dice: random.Random, text: bytes) -> bytes:
    around = dice.choice((b"\xef\xbb\xbf", b"\0", b" " * 5000, b"//", b"[", b"{}"))
    return around + text if dice.random() < 0.5 else text + around


def _utf16(dice: random.Random, text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode("utf-16")


_SPOILERS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _truncated,
    _flipped,
    _doubled_key,
    _surrounded,
    _utf16,
)
