"""Quick acceptance of what fits its schema.

Nearly every body fits, and a library that finds all that is wrong takes half of the time of a large
request to find nothing. A predicate made here once for each schema accepts only what fits; what it
does not accept is for the library to judge, and to explain.

Without it a claim takes 0.70 ms of the server's CPU instead of 0.61 (15 % more), and a write of 50
consumers with 24 amounts each 21.5 ms instead of 9.8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Predicate = Callable[[Any], bool]

_TYPES: Final[Mapping[str, Predicate]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
}
_KEYWORDS: Final = frozenset(
    {
        *("properties", "patternProperties", "additionalProperties", "required"),
        *("minProperties", "maxProperties", "items", "minItems", "maxItems", "uniqueItems"),
        *("minLength", "maxLength", "pattern", "format", "enum", "minimum", "maximum", "type"),
    }
)
"""The keywords that are understood. Each is about one type, but "type" itself and "enum"."""


class Predicates:
    """Makes predicates of schemas.

    :param anchored_pattern: compiles a pattern as the library's checks do.
    :param is_uuid: checks the only format that the library checks too: others only tell readers.
    """

    def __init__(
        self, anchored_pattern: Callable[[str], re.Pattern[str]], is_uuid: Callable[[str], bool]
    ) -> None:
        self._anchored_pattern = anchored_pattern
        self._is_uuid = is_uuid

    def of(self, schema: Mapping[str, Any]) -> Predicate:
        """Return what accepts an instance; nothing where the schema has an unknown keyword."""
        if schema.keys() == {"anyOf"}:
            return _any(map(self.of, schema["anyOf"]))
        named_types = schema.get("type", ())
        types = [named_types] if isinstance(named_types, str) else list(named_types)
        if not types or not schema.keys() <= _KEYWORDS:
            return _nothing
        if "enum" in schema and types != ["string"]:
            return _nothing
        return _any(self._of_type(name, schema) for name in types)

    def _of_type(self, name: str, schema: Mapping[str, Any]) -> Predicate:
        if name == "object":
            return self._object(schema)
        if name == "array":
            return self._array(schema)
        if name == "string":
            return self._string(schema)
        if name in ("integer", "number"):
            return _number(_TYPES[name], schema)
        return _TYPES[name]

    def _object(self, schema: Mapping[str, Any]) -> Predicate:
        properties = {key: self.of(part) for key, part in schema.get("properties", {}).items()}
        patterns = [
            (self._anchored_pattern(pattern).search, self.of(part))
            for pattern, part in schema.get("patternProperties", {}).items()
        ]
        required_names = frozenset(schema.get("required", ()))
        is_open = schema.get("additionalProperties", True)
        if not isinstance(is_open, bool):
            return _nothing
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)

        def accepts_size(value: Any) -> bool:
            return (
                type(value) is dict
                and least <= len(value) <= most
                and required_names <= value.keys()
            )

        if len(patterns) == 1 and not (properties or is_open):
            # Most values of large bodies are in maps, so what is done for each is done in C.
            ((matches_all, accepts_all),) = patterns
            return lambda value: (
                accepts_size(value)
                and all(map(matches_all, value))
                and all(map(accepts_all, value.values()))
            )

        def accepts(value: Any) -> bool:
            if not accepts_size(value):
                return False
            for key, part in value.items():
                accepts_property = properties.get(key)
                is_known = accepts_property is not None
                if accepts_property is not None and not accepts_property(part):
                    return False
                for matches, accepts_match in patterns:
                    if matches(key):
                        is_known = True
                        if not accepts_match(part):
                            return False
                if not (is_known or is_open):
                    return False
            return True

        return accepts

    def _array(self, schema: Mapping[str, Any]) -> Predicate:
        accepts_item = self.of(schema["items"]) if "items" in schema else _anything
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        is_set = schema.get("uniqueItems", False)

        def accepts(value: Any) -> bool:
            if type(value) is not list or not least <= len(value) <= most:
                return False
            if is_set and (
                not all(type(item) is str for item in value) or len(set(value)) < len(value)
            ):
                return False
            return all(map(accepts_item, value))

        return accepts

    def _string(self, schema: Mapping[str, Any]) -> Predicate:
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        checks: list[Callable[[str], object]] = []
        if "pattern" in schema:
            checks.append(self._anchored_pattern(schema["pattern"]).search)
        if schema.get("format") == "uuid":
            checks.append(self._is_uuid)
        if "enum" in schema:
            checks.append(schema["enum"].__contains__)

        def accepts(value: Any) -> bool:
            return (
                type(value) is str
                and least <= len(value) <= most
                and all(check(value) for check in checks)
            )

        return accepts


def _number(is_of_type: Predicate, schema: Mapping[str, Any]) -> Predicate:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if is_of_type is _TYPES["integer"] and most == math.inf:
        return lambda value: type(value) is int and value >= least
    return lambda value: is_of_type(value) and least <= value <= most


def _any(predicates: Iterable[Predicate]) -> Predicate:
    first, *others = predicates
    if not others:
        return first
    return lambda value: first(value) or any(accepts(value) for accepts in others)


def _nothing(_value: Any) -> bool:
    return False


def _anything(_value: Any) -> bool:
    return True
