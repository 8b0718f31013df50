"""Requests drawn from the OpenAPI document of the server."""

from __future__ import annotations

import functools
import random
from typing import Any, Final
from urllib.parse import quote, urlencode

from placement_server.openapi.document import build
from tests.integration.fuzz.values import NUMBERS, TEXTS, hostile
from tests.integration.fuzz.world import CLASSES, CONSUMERS, NEWEST, PROVIDERS, TRAITS, ValidRequest

_WRONG: Final = 0.06
"""How often a value is one that its schema forbids."""
_NAMES: Final = (*CLASSES, *TRAITS, *PROVIDERS, *CONSUMERS, "INSTANCE", "p1", "VCPU:1", "isolate")


@functools.cache
def _operations() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    return tuple(
        (method.upper(), path, operation)
        for path, methods in sorted(build()["paths"].items())
        for method, operation in sorted(methods.items())
    )


def request(dice: random.Random) -> ValidRequest:
    """Draw an operation, its parameters and its body."""
    method, path, operation = dice.choice(_operations())
    query = []
    for parameter in operation.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        if place == "path":
            value = _text(dice, _value(dice, parameter["schema"]))
            path = path.replace(f"{{{name}}}", quote(value, safe="", errors="surrogatepass"))
        elif place == "query" and dice.random() < 0.25:
            value = _text(dice, _value(dice, parameter["schema"]))
            query.append((name, "0" if name == "wait" else value))
    if query:
        path += "?" + urlencode(query, errors="surrogatepass")
    body = operation.get("requestBody")
    if body is None:
        return ValidRequest(method, path)
    schema = body["content"]["application/json"]["schema"]
    return ValidRequest(method, path, _value(dice, schema), NEWEST)


def _text(dice: random.Random, value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _value(dice: random.Random, schema: dict[str, Any]) -> Any:
    if dice.random() < _WRONG:
        return hostile(dice)
    for choices in (schema.get("enum"), schema.get("anyOf"), schema.get("oneOf")):
        if choices:
            chosen = dice.choice(choices)
            return _value(dice, chosen) if isinstance(chosen, dict) else chosen
    if "const" in schema:
        return schema["const"]
    kinds = schema.get("type", "string")
    kind = dice.choice(kinds) if isinstance(kinds, list) else kinds
    return _MAKERS[kind](dice, schema)


def _object(dice: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", ())
    made = {
        name: _value(dice, of)
        for name, of in schema.get("properties", {}).items()
        if dice.random() < (0.97 if name in required else 0.4)
    }
    for of in schema.get("patternProperties", {}).values():
        for _ in range(dice.randint(schema.get("minProperties", 0), 3)):
            made[dice.choice(_NAMES)] = _value(dice, of)
    return made


def _array(dice: random.Random, schema: dict[str, Any]) -> list[Any]:
    size = dice.randint(schema.get("minItems", 0), 3)
    return [_value(dice, schema.get("items", {})) for _ in range(size)]


def _string(dice: random.Random, schema: dict[str, Any]) -> str:
    return dice.choice(_NAMES if dice.random() < 0.9 else TEXTS)


def _integer(dice: random.Random, schema: dict[str, Any]) -> Any:
    edges = [schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)]
    return dice.choice([*edges, 0, 1, 2, 5] if dice.random() < 0.9 else NUMBERS)


_MAKERS: Final[dict[str, Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _integer,
    "boolean": lambda dice, _schema: dice.random() < 0.5,
    "null": lambda _dice, _schema: None,
}
