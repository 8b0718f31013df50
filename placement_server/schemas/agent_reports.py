"""Reports of agents: the header of one, the query of GET /agent_reports, and its answer."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion

HEADER: Final = "X-Compute-Agent-Report"
LONGEST: Final = 4096
"""Characters that a header may have."""

_TEXT: Final = {"type": "string", "maxLength": 500}
_BUS: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["state"],
    "properties": {
        "state": {
            "type": "string",
            "enum": ["off", "waiting", "up", "refused", "unreachable"],
        },
        "since": {"type": ["string", "null"], "format": "date-time"},
        "why": _TEXT,
    },
}
_OWN: Final[dict[str, Any]] = {
    "period": {"type": ["number", "null"], "minimum": 0, "maximum": 86400 * 366},
    "bus": _BUS,
    "disabled_reason": _TEXT,
    "trouble": _TEXT,
    "place": {
        "type": "object",
        "additionalProperties": False,
        "required": ["address", "machine_id", "boot_id", "state_path"],
        "properties": dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), _TEXT),
    },
}
_CPU: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 2,
    "maxItems": 2,
    "items": {"type": ["integer", "string", "null"], "maxLength": 36},
}
_CORES: Final = {"type": "array", "items": {"type": "array", "items": _CPU}}
_CELLS: Final[dict[str, Any]] = {
    "cells": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["id", "cores"],
            "properties": {"id": {"type": "integer", "minimum": 0}, "cores": _CORES},
        },
    }
}

REPORT: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "additionalProperties": False,
            "required": list(_OWN),
            "properties": {**_OWN, **_CELLS},
        }
    }
)

QUERY: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {
                "root": {"type": "string", "format": "uuid"},
                "notable": {"type": "string", "enum": ["true"]},
            },
            "additionalProperties": False,
        }
    },
    strict_uuids=True,
)

REPORTS: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["agent_reports"],
    "properties": {
        "agent_reports": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["root_provider_uuid", "name", "at", "silent", *_OWN],
                "properties": {
                    "root_provider_uuid": {"type": "string", "format": "uuid"},
                    "name": {"type": "string"},
                    "at": {"type": "string", "format": "date-time"},
                    "silent": {"type": "boolean"},
                    **_OWN,
                    **_CELLS,
                },
            },
        }
    },
}
