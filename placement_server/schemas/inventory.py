"""Bodies of the inventory routes."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.validation import SchemaByVersion

RESOURCE_CLASS_PATTERN: Final = "^[A-Z0-9_]+$"
MAX_INT: Final = 0x7FFFFFFF


def _whole(minimum: int) -> dict[str, Any]:
    return {"type": "integer", "maximum": MAX_INT, "minimum": minimum}


RECORD_FIELDS: Final[dict[str, Any]] = {
    "total": _whole(1),
    "reserved": _whole(0),
    "min_unit": _whole(1),
    "max_unit": _whole(1),
    "step_size": _whole(1),
    # The largest single-precision number: the column of the database is one.
    "allocation_ratio": {"type": "number", "maximum": 3.40282e38},
}
"""What an inventory consists of."""

_FIELDS: Final[dict[str, Any]] = {
    "resource_provider_generation": {"type": "integer"},
    **RECORD_FIELDS,
}


def _record(required: list[str], **added_properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**_FIELDS, **added_properties},
        "required": required,
        "additionalProperties": False,
    }


REPLACE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "resource_provider_generation": {"type": "integer"},
        "inventories": {
            "type": "object",
            "patternProperties": {RESOURCE_CLASS_PATTERN: _record(["total"])},
            "maxProperties": limits.NAMES,
        },
    },
    "required": ["resource_provider_generation", "inventories"],
    "additionalProperties": False,
}
"""The body of PUT inventories, which the reshaper takes once per provider."""

CREATE: Final = SchemaByVersion(
    {
        0: _record(
            ["total", "resource_class"],
            resource_class={"type": "string", "pattern": RESOURCE_CLASS_PATTERN},
        )
    }
)
UPDATE: Final = SchemaByVersion({0: _record(["total", "resource_provider_generation"])})
REPLACE: Final = SchemaByVersion({0: REPLACE_SCHEMA})
