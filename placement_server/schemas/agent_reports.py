"""Reports of agents: the header of one, the query of GET /agent_reports, and its answer."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion, exact_object

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
    "place": exact_object(
        **dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), _TEXT)
    ),
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
        "items": exact_object(id={"type": "integer", "minimum": 0}, cores=_CORES),
    }
}

REPORT: Final = SchemaByVersion({0: {**exact_object(**_OWN, **_CELLS), "required": list(_OWN)}})

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

_REPORTED: Final = exact_object(
    root_provider_uuid={"type": "string", "format": "uuid"},
    name={"type": "string"},
    at={"type": "string", "format": "date-time"},
    silent={"type": "boolean"},
    **_OWN,
)

REPORTS: Final[dict[str, Any]] = exact_object(
    agent_reports={
        "type": "array",
        "items": {**_REPORTED, "properties": {**_REPORTED["properties"], **_CELLS}},
    }
)
