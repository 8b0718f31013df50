"""Compiled JSON schemas, picked by microversion.

The error texts of the API quote the schema and the offending value exactly as the jsonschema
library prints them, so the order of the keys in the schemas is part of the API.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import jsonschema
import jsonschema.exceptions
from jsonschema.exceptions import ValidationError
from oslo_utils import uuidutils

from placement_server.limits import too_many
from placement_server.schemas.acceptance import Acceptance

Schema = Mapping[str, Any]


UUID: Final = {"type": "string", "format": "uuid"}
UUID_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"], "format": "uuid"}
TIME: Final = {"type": "string", "format": "date-time"}
TEXT: Final = {"type": "string"}
WHOLE: Final = {"type": "integer"}
TEXT_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"]}
COUNT: Final = {"type": "integer", "minimum": 0}
POSITIVE: Final = {"type": "integer", "minimum": 1}


def exact_object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of objects with just these properties."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def record_of(*required_names: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of objects with some of these properties, as OpenStack's server shows it.

    :param required_names: those that no object lacks.
    """
    required = {"required": list(required_names)} if required_names else {}
    return {
        "type": "object",
        "properties": properties,
        **required,
        "additionalProperties": False,
    }


def optional(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the schema of objects that may lack some properties; any, where none is named."""
    required = [name for name in schema["required"] if names and name not in names]
    return {**schema, "required": required}


def array_of(items: Mapping[str, Any], **limits: int) -> dict[str, Any]:
    """Return the schema of arrays."""
    return {"type": "array", "items": items, **limits}


def map_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of objects with any keys, for answers: a check does not look into them."""
    return {"type": "object", "additionalProperties": values}


_VALUES_SHOWN: Final = 50_000
"""Values in a body beyond which an error does not show it: laying out millions takes minutes."""

_MESSAGE_SHOWN: Final = 10_000

_ERRORS_COMPARED: Final = 1000
"""Errors compared to find the one to report. A hostile body has millions of them."""

_LIMITS: Final[Mapping[type, str]] = {list: "maxItems", dict: "maxProperties"}
"""Keywords that limit how much a body may list. Errors quote the schemas of OpenStack's server,
which lack these keywords, so only errors about the limits themselves show them."""

_FORMATS = jsonschema.FormatChecker(formats=())
_STRICT_FORMATS = jsonschema.FormatChecker(formats=("uuid",))


@_FORMATS.checks("uuid")
def _is_uuid_like(value: object) -> bool:
    # Any spelling: dashless, upper case, braces, urn:uuid:.
    return not isinstance(value, str) or uuidutils.is_uuid_like(value)


def anchored(pattern: str) -> str:
    """Return a pattern of JSON schema as Python reads it.

    There `$` is the end of the string; in Python a final line break may follow it, and a name with
    a line break at its end would get into the database.
    """
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


@lru_cache(maxsize=256)
def _compile_anchored(pattern: str) -> re.Pattern[str]:
    return re.compile(anchored(pattern))


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    del schema
    if validator.is_type(instance, "string") and not _compile_anchored(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object") or _is_over_limit(instance, schema):
        return
    for pattern, subschema in patterns.items():
        search = _compile_anchored(pattern).search
        for key, value in instance.items():
            if search(key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, is_allowed: bool, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    # All our schemas have false here, or lack the keyword.
    if is_allowed or not validator.is_type(instance, "object") or _is_over_limit(instance, schema):
        return
    patterns = schema.get("patternProperties", {})
    searches = [_compile_anchored(pattern).search for pattern in patterns]
    properties = schema.get("properties", {})
    extras = [
        key
        for key in instance
        if key not in properties and not any(search(key) for search in searches)
    ]
    if not extras:
        return
    if patterns:
        keys = ", ".join(repr(key) for key in sorted(extras))
        verb = "does" if len(extras) == 1 else "do"
        pattern_text = ", ".join(repr(pattern) for pattern in sorted(patterns))
        yield ValidationError(f"{keys} {verb} not match any of the regexes: {pattern_text}")
    else:
        keys = ", ".join(repr(key) for key in sorted(extras))
        verb = "was" if len(extras) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({keys} {verb} unexpected)")


def _unique_items(
    validator: Any, unique: bool, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    # The library compares every pair of items when they cannot be sorted. All our unique arrays
    # are of strings; what is not a string is reported by "items".
    if not unique or not validator.is_type(instance, "array") or _is_over_limit(instance, schema):
        return
    strings = [item for item in instance if isinstance(item, str)]
    if len(set(strings)) != len(strings):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _items(
    validator: Any, items: Schema, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    if not _is_over_limit(instance, schema):
        yield from _library_items(validator, items, instance, schema)


def _limit(validator: Any, most: int, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    del validator
    if _is_over_limit(instance, schema):
        # The error gets its field only on the way up; _text adds it.
        yield ValidationError(f"more than {most} entries")


def _is_over_limit(instance: Any, schema: Schema) -> bool:
    """Check whether an instance has so many entries that none of them is checked."""
    keyword = _LIMITS.get(type(instance))
    return keyword is not None and len(instance) > schema.get(keyword, math.inf)


_library_items = jsonschema.Draft202012Validator.VALIDATORS["items"]
_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "items": _items,
        **dict.fromkeys(_LIMITS.values(), _limit),
    },
)


class SchemaByVersion:
    """The schemas of one body or query, each compiled once, keyed by the minor that began it.

    :param schemas: `{minor: schema}`; a request uses the newest not newer than its version.
    :param strict_uuids: require dashes, as query parameters do and JSON bodies do not.
    """

    def __init__(self, schemas: Mapping[int, Schema], *, strict_uuids: bool = False) -> None:
        formats = _STRICT_FORMATS if strict_uuids else _FORMATS
        self._starts = sorted(schemas, reverse=True)
        self._validators = {
            minor: _Validator(dict(schema), format_checker=formats)
            for minor, schema in schemas.items()
        }
        self._acceptances: dict[int, Acceptance] = {}

    def schema(self, version: tuple[int, int]) -> Schema:
        """Return the schema in force at a version."""
        schema: Schema = self._validators[self._start(version)].schema
        return schema

    def decode(self, body: bytes, version: tuple[int, int]) -> Any:
        """Return what a usual body says that fits; UNSET for any other body, to be checked."""
        return self._acceptance(version).decode(body)

    def check(self, instance: Any, version: tuple[int, int]) -> None:
        """Check an instance.

        :raises InvalidInstance: with the text for the client.
        """
        if self._acceptance(version).accepts(instance):
            return
        validator = self._validators[self._start(version)]
        try:
            errors = islice(validator.iter_errors(instance), _ERRORS_COMPARED)
            error = jsonschema.exceptions.best_match(errors)
            invalid = _invalid(error) if error else None
        except RecursionError as recursion:
            raise InvalidInstance("the value is nested too deeply") from recursion
        if invalid is not None:
            raise invalid

    def _acceptance(self, version: tuple[int, int]) -> Acceptance:
        start = self._start(version)
        acceptance = self._acceptances.get(start)
        if acceptance is None:
            # made when it is needed: most versions never are
            schema = self._validators[start].schema
            acceptance = self._acceptances[start] = Acceptance(schema, anchored)
        return acceptance

    def _start(self, version: tuple[int, int]) -> int:
        for start in self._starts:
            if version[1] >= start:
                return start
        raise LookupError(f"no schema for microversion {version}, the oldest is {self._starts[-1]}")


def query_of(**properties: Mapping[str, Any]) -> SchemaByVersion:
    """Return the schema of a query string of the extensions: of any version, nothing required."""
    return SchemaByVersion({0: record_of(**properties)}, strict_uuids=True)


def pointer(*path: str | int) -> str:
    """Return the JSON pointer (RFC 6901) to a value in a document, "" for the whole of it."""
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


def _invalid(error: ValidationError) -> "InvalidInstance":
    text = _text(error)
    return InvalidInstance(text, error.message, pointer(*error.absolute_path))


def _text(error: ValidationError) -> str:
    if error.validator in _LIMITS.values():
        field = repr(error.path[-1]) if error.path else "the body"
        instance: Any = error.instance
        most: Any = error.validator_value
        error.message = too_many(field, len(instance), "entries", most)
        error.instance = "(too large to show)"
        return str(error)
    error.schema = _without_limits(error.schema)
    if _is_large(error.instance):
        error.message = error.message[:_MESSAGE_SHOWN]
        error.instance = "(too large to show)"
    return str(error)


def _without_limits(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {
            key: _without_limits(value)
            for key, value in schema.items()
            if key not in _LIMITS.values()
        }
    return schema


def _is_large(instance: Any) -> bool:
    remaining_values, count = [instance], 0
    while remaining_values and count <= _VALUES_SHOWN:
        value = remaining_values.pop()
        if isinstance(value, dict):
            count += len(value)
            remaining_values.extend(value.values())
        elif isinstance(value, list):
            count += len(value)
            remaining_values.extend(value)
        elif isinstance(value, str):
            count += len(value) // 10
    return count > _VALUES_SHOWN


class InvalidInstance(ValueError):
    """A value does not fit its schema. The text is that of the jsonschema library.

    :ivar message: its first sentence alone, without the schema and the value.
    :ivar pointer: the JSON pointer to what does not fit.
    """

    def __init__(self, text: str, message: str | None = None, pointer: str = "") -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.pointer = pointer
