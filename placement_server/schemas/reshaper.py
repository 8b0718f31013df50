"""Body of POST /reshaper: inventories of providers and allocations of consumers."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.allocation import POST_SCHEMAS, UUID_PATTERN
from placement_server.schemas.inventory import REPLACE_SCHEMA
from placement_server.schemas.validation import SchemaByVersion


def _reshape(allocations: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "inventories": {
                "type": "object",
                "patternProperties": {UUID_PATTERN: REPLACE_SCHEMA},
                "minProperties": 1,
                "additionalProperties": False,
                "maxProperties": limits.NAMES,
            },
            "allocations": {**allocations, "minProperties": 0},
        },
        "required": ["inventories", "allocations"],
        "additionalProperties": False,
    }


RESHAPE: Final = SchemaByVersion(
    {
        30: _reshape(POST_SCHEMAS[28]),
        34: _reshape(POST_SCHEMAS[34]),
        38: _reshape(POST_SCHEMAS[38]),
    }
)
