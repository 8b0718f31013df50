"""Bodies of the inventory routes."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.validation import WHOLE, SchemaByVersion, record_of

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

_FIELDS: Final[dict[str, Any]] = {"resource_provider_generation": WHOLE, **RECORD_FIELDS}
REPLACE_SCHEMA: Final = record_of(
    "resource_provider_generation",
    "inventories",
    resource_provider_generation=WHOLE,
    inventories={
        "type": "object",
        "patternProperties": {RESOURCE_CLASS_PATTERN: record_of("total", **_FIELDS)},
        "maxProperties": limits.NAMES,
    },
)
"""The body of PUT inventories, which the reshaper takes once per provider."""

_CLASS: Final = {"type": "string", "pattern": RESOURCE_CLASS_PATTERN}
CREATE: Final = SchemaByVersion(
    {0: record_of("total", "resource_class", **_FIELDS, resource_class=_CLASS)}
)
UPDATE: Final = SchemaByVersion({0: record_of("total", "resource_provider_generation", **_FIELDS)})
REPLACE: Final = SchemaByVersion({0: REPLACE_SCHEMA})
