"""Quick acceptance of what fits its schema, by types of msgspec.

Nearly every body fits, and a library that finds all that is wrong takes half of the time of a large
request to find nothing. A type that is made once from a schema accepts only what fits, in C and
while the body is decoded. What it does not accept is for the library to judge, and to explain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, defstruct, field

from compute_agent.programs.decoding import LARGEST, decoder_of, fits

_USUAL_UUID: Final = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z"
"""The spelling that each check of the format accepts; others only tell readers."""

_LENGTHS: Final = ("min_length", "max_length")
_LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "string": dict(zip(("minLength", "maxLength"), _LENGTHS, strict=True)),
    "array": dict(zip(("minItems", "maxItems"), _LENGTHS, strict=True)),
    "object": dict(zip(("minProperties", "maxProperties"), _LENGTHS, strict=True)),
    "integer": {"minimum": "ge", "maximum": "le"},
    "number": {"minimum": "ge", "maximum": "le"},
}
_WHOLE: Final = {"ge": math.ceil, "le": math.floor}
_OF_OBJECTS: Final = frozenset(
    {"type", "required", "properties", "patternProperties", "additionalProperties"}
)
_KEYWORDS: Final = _OF_OBJECTS | {
    *(name for limits in _LIMITS.values() for name in limits),
    *("enum", "pattern", "format", "items"),
}
"""The keywords that are understood. Each is about one type, but "type" itself and "enum"."""


class Acceptance:
    """What accepts instances of a schema; nothing where the schema says what a type cannot say.

    :param anchored: returns a pattern as the library's checks read it.
    """

    def __init__(self, schema: Mapping[str, Any], anchored: Callable[[str], str]) -> None:
        self._decode: Callable[[bytes], Any] | None = None
        self._kinds: list[Any]
        types = _Types(anchored)
        try:
            if schema.get("properties") and schema.get("patternProperties"):
                kinds = types.of_query(schema)
            else:
                kinds = [types.of(schema)]
                self._decode = decoder_of(kinds[0]).decode
            # msgspec keeps what it learned of a Struct; others it would learn for each instance
            self._kinds = [defstruct("Whole", [("instance", kind)]) for kind in kinds]
        except _NoType:
            self._kinds = []

    def accepts(self, instance: Any) -> bool:
        """Check whether an instance is accepted."""
        whole = {"instance": instance}
        return bool(self._kinds) and all(fits(whole, kind) for kind in self._kinds)

    def decode(self, body: bytes) -> Any:
        """Return what a body in JSON says; UNSET where that is not accepted."""
        # only an escape can make a character that no database stores
        if self._decode is None or b"\\u" in body:
            return UNSET
        try:
            return msgspec.to_builtins(self._decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return UNSET


class _NoType(ValueError):
    """A schema says what a type cannot say."""


class _Types:
    """Makes types of schemas; each method raises _NoType where it cannot."""

    def __init__(self, anchored: Callable[[str], str]) -> None:
        self._anchored = anchored

    def of(self, schema: Mapping[str, Any]) -> Any:
        if schema.keys() == {"anyOf"}:
            return _one_of(map(self.of, schema["anyOf"]))
        names = schema.get("type", ())
        _require(names and schema.keys() <= _KEYWORDS)
        _require("enum" not in schema or schema == {"type": "string", "enum": schema["enum"]})
        return _one_of(
            self._of_type(name, schema) for name in ([names] if isinstance(names, str) else names)
        )

    def _of_type(self, name: str, schema: Mapping[str, Any]) -> Any:
        limits = {
            limit: schema[keyword]
            for keyword, limit in _LIMITS.get(name, {}).items()
            if keyword in schema
        }
        match name:
            case "string":
                return self._string(schema, limits)
            case "object":
                return self._object(schema, limits)
            case "array":
                item = self.of(schema["items"]) if "items" in schema else Any
                return _limited(GenericAlias(list, item), limits)
            case "integer":
                return _limited(int, limits)
            case "number":
                # of whole numbers msgspec knows no higher limit
                whole = {name: min(_WHOLE[name](limit), LARGEST) for name, limit in limits.items()}
                return _limited(int, whole) | _limited(float, limits)
            case "boolean":
                return bool
        return None

    def _string(self, schema: Mapping[str, Any], limits: Mapping[str, int]) -> Any:
        if "enum" in schema:
            return Literal[tuple(schema["enum"])]
        patterns = [self._anchored(schema["pattern"])] if "pattern" in schema else []
        if schema.get("format") == "uuid":
            patterns.append(_USUAL_UUID)
        _require(len(patterns) < 2)
        return _limited(str, {**limits, **({"pattern": patterns[0]} if patterns else {})})

    def _object(self, schema: Mapping[str, Any], limits: Mapping[str, int]) -> Any:
        properties, patterns = schema.get("properties"), schema.get("patternProperties", {})
        if properties:
            _require(not patterns and schema.get("additionalProperties") is False)
            _require(limits.get("min_length", 0) <= len(schema.get("required", ())))
            _require(limits.get("max_length", len(properties)) >= len(properties))
            return self._record(schema, forbid_unknown_fields=True)
        key: Any = str
        value: Any = Any
        for pattern, part in patterns.items():
            _require(len(patterns) == 1)
            key, value = _limited(str, {"pattern": self._anchored(pattern)}), self.of(part)
        _require(not schema.get("required"))
        _require(patterns or schema.get("additionalProperties", True) is True)
        return _limited(GenericAlias(dict, (key, value)), limits)

    def _record(self, schema: Mapping[str, Any], *, forbid_unknown_fields: bool) -> Any:
        required_names = frozenset(schema.get("required", ()))
        properties = {name: self.of(part) for name, part in schema["properties"].items()}
        _require(required_names <= properties.keys())
        fields: list[tuple[str, Any, Any]] = [
            (f"field_{number}", kind, field(name=name))
            if name in required_names
            else (f"field_{number}", kind | UnsetType, field(name=name, default=UNSET))
            for number, (name, kind) in enumerate(properties.items())
        ]
        return defstruct(
            "Record", fields, kw_only=True, forbid_unknown_fields=forbid_unknown_fields
        )

    def of_query(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return types that accept together what fits: by its values, and by its names."""
        patterns = schema["patternProperties"]
        _require(schema.keys() <= _OF_OBJECTS)
        _require(schema.get("additionalProperties") is False)
        _require(all(part == {"type": "string"} for part in patterns.values()))
        names = [f"^{re.escape(name)}\\Z" for name in schema["properties"]]
        pattern = "|".join([*names, *map(self._anchored, patterns)])
        return [
            self._record(schema, forbid_unknown_fields=False),
            GenericAlias(dict, (_limited(str, {"pattern": pattern}), str)),
        ]


def _limited(kind: Any, limits: Mapping[str, Any]) -> Any:
    return Annotated[kind, Meta(**limits)] if limits else kind


def _one_of(kinds: Iterable[Any]) -> Any:
    return reduce(or_, kinds)


def _require(condition: object) -> None:
    if not condition:
        raise _NoType
