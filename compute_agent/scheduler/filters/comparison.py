"""Comparison of a fact with what an extra spec asks for, in the notation of extra specs.

=, ==, !=, >=, <=              numbers (= means at least)
s==, s!=, s>=, s>, s<=, s<     text
<in> X                         the fact contains the text X
<all-in> X Y                   the fact, a list, contains all of them
<or> X <or> Y                  the fact is one of them
X                              the fact is the text X
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s>=": operator.ge,
    "s>": operator.gt,
    "s<=": operator.le,
    "s<": operator.lt,
}


def matches(fact: Any, condition: str) -> bool:
    """Return whether `fact` meets `condition`; no text meets a comparison of numbers."""
    words = condition.split()
    sign, rest = (words[0], words[1:]) if words else ("", [])
    if sign == "<or>":
        return str(fact) in [word for word in words if word != "<or>"]
    if sign == "<in>":
        return " ".join(rest) in str(fact)
    if sign == "<all-in>":
        facts = fact if isinstance(fact, list | tuple | set | frozenset) else str(fact)
        return all(word in facts for word in rest)
    if sign in _TEXTS and rest:
        return _TEXTS[sign](str(fact), rest[0])
    if sign in _NUMBERS and rest:
        try:
            return _NUMBERS[sign](float(fact), float(rest[0]))
        except (TypeError, ValueError):
            return False
    return str(fact) == condition
