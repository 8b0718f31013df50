"""Bodies and query strings of /resource_providers."""

from copy import deepcopy
from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion

_PARENT: Final = {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}

_CREATE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200},
        "uuid": {"type": "string", "format": "uuid"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_CREATE_1_14 = deepcopy(_CREATE)
_CREATE_1_14["properties"]["parent_provider_uuid"] = _PARENT

_UPDATE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 200}},
    "required": ["name"],
    "additionalProperties": False,
}
_UPDATE_1_14 = deepcopy(_UPDATE)
_UPDATE_1_14["properties"]["parent_provider_uuid"] = _PARENT

CREATE: Final = SchemaByVersion({0: _CREATE, 14: _CREATE_1_14})
UPDATE: Final = SchemaByVersion({0: _UPDATE, 14: _UPDATE_1_14})


def _list(**added_properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "uuid": {"type": "string", "format": "uuid"},
            **added_properties,
        },
        "additionalProperties": False,
    }


_STRING: Final = {"type": "string"}
_UUID: Final = {"type": "string", "format": "uuid"}

LIST: Final = SchemaByVersion(
    {
        0: _list(),
        3: _list(member_of=_STRING),
        4: _list(member_of=_STRING, resources=_STRING),
        14: _list(member_of=_STRING, resources=_STRING, in_tree=_UUID),
        18: _list(member_of=_STRING, resources=_STRING, in_tree=_UUID, required=_STRING),
    },
    strict_uuids=True,
)
