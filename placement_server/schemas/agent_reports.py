"""Reports of agents: the header of one, the query of GET /agent_reports, and its answer."""

from typing import Any, Final

from placement_server.schemas.validation import (
    COUNT,
    TEXT,
    TIME,
    UUID,
    SchemaByVersion,
    array_of,
    exact_object,
    optional,
    query_of,
)

HEADER: Final = "X-Compute-Agent-Report"
LONGEST: Final = 4096
"""Characters that a header may have."""

_SHORT: Final = {"type": "string", "maxLength": 500}
_OWN: Final[dict[str, Any]] = {
    "period": {"type": ["number", "null"], "minimum": 0, "maximum": 86400 * 366},
    "bus": optional(
        exact_object(
            state={"type": "string", "enum": ["off", "waiting", "up", "refused", "unreachable"]},
            since={"type": ["string", "null"], "format": "date-time"},
            why=_SHORT,
        ),
        "since",
        "why",
    ),
    "disabled_reason": _SHORT,
    "trouble": _SHORT,
    "place": exact_object(
        **dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), _SHORT)
    ),
}
_CPU: Final = array_of(
    {"type": ["integer", "string", "null"], "maxLength": 36}, minItems=2, maxItems=2
)
_CELLS: Final = array_of(exact_object(id=COUNT, cores=array_of(array_of(_CPU))))

REPORT: Final = SchemaByVersion({0: optional(exact_object(**_OWN, cells=_CELLS), "cells")})

QUERY: Final = query_of(root=UUID, notable={"type": "string", "enum": ["true"]})

_REPORTED: Final = exact_object(
    root_provider_uuid=UUID,
    name=TEXT,
    at=TIME,
    silent={"type": "boolean"},
    **_OWN,
    cells=_CELLS,
)

REPORTS: Final = exact_object(agent_reports=array_of(optional(_REPORTED, "cells")))
