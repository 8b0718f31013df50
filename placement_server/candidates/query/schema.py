"""JSON schemas of the query string of GET /allocation_candidates, by microversion.

The names, the regular expressions and even the order of the keys are part of the error texts that
clients see.
"""

import copy
from typing import Any

from placement_server.candidates.query.filters import Microversion

JsonSchema = dict[str, Any]

_NUMBER = "([1-9][0-9]*)?$"
_SUFFIX = "([a-zA-Z0-9_-]{1,64})?$"
EXTENDED_NAMES = ("root_member_of", "isolate")


def _limit() -> JsonSchema:
    # A query string only has strings; the integer forms serve callers that pass numbers.
    return {
        "type": ["integer", "string"],
        "pattern": "^[1-9][0-9]*$",
        "minimum": 1,
        "minLength": 1,
    }


def _plain(*names: str) -> JsonSchema:
    properties: JsonSchema = {"resources": {"type": "string"}}
    for name in names:
        properties[name] = _limit() if name == "limit" else {"type": ["string"]}
    return {
        "type": "object",
        "properties": properties,
        "required": ["resources"],
        "additionalProperties": False,
    }


def _group_schema(suffix: str, *keywords: str, names: tuple[str, ...] = ()) -> JsonSchema:
    properties: JsonSchema = {
        "limit": _limit(),
        "group_policy": {"type": "string", "enum": ["none", "isolate"]},
    }
    properties.update({name: {"type": ["string"]} for name in names})
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "patternProperties": {f"^{keyword}{suffix}": {"type": "string"} for keyword in keywords},
    }


_FOUR = ("resources", "required", "member_of", "in_tree")

SCHEMAS: dict[Microversion, JsonSchema] = {
    (1, 10): _plain(),
    (1, 16): _plain("limit"),
    (1, 17): _plain("limit", "required"),
    (1, 21): _plain("limit", "required", "member_of"),
    (1, 25): _group_schema(_NUMBER, *_FOUR[:3]),
    (1, 31): _group_schema(_NUMBER, *_FOUR),
    (1, 33): _group_schema(_SUFFIX, *_FOUR),
    (1, 35): _group_schema(_SUFFIX, *_FOUR, names=("root_required",)),
    (1, 36): _group_schema(_SUFFIX, *_FOUR, names=("root_required", "same_subtree")),
}
"""By the microversion from which on each is valid."""


def schema_for(microversion: Microversion, *, extensions: bool = False) -> JsonSchema:
    """Return the schema for a microversion.

    :param extensions: add the parameters of `placement-ext 1.0`. They build on the parameters of
        1.36, so below that microversion nothing is added.
    """
    since = max(version for version in SCHEMAS if version <= microversion)
    schema = SCHEMAS[since]
    if not extensions or since < (1, 36):
        return schema
    extended_schema = copy.deepcopy(schema)
    extended_schema["properties"].update({name: {"type": ["string"]} for name in EXTENDED_NAMES})
    return extended_schema
