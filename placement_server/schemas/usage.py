"""Query string of GET /usages."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}


def _total(**added_properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"project_id": _ID, "user_id": _ID, **added_properties},
        "required": ["project_id"],
        "additionalProperties": False,
    }


TOTAL: Final = SchemaByVersion(
    {
        9: _total(),
        38: _total(
            consumer_type={
                "type": "string",
                # "all" is not anchored at its end; clients have seen it so since 1.38.
                "pattern": "^[A-Z0-9_]+$|^all|^unknown$",
                "minLength": 1,
                "maxLength": 255,
            }
        ),
    },
    strict_uuids=True,
)
