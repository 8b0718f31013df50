"""The parts that must be equal in two answers to the same request."""

from __future__ import annotations

import json
import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ..wsgi_client import Answer

_REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VALUES = ("content-type", "openstack-api-version", "vary", "cache-control", "location")
_UNCOMPARED = frozenset({"content-length"})
"""The HTTP server's business: the published application leaves it out of errors."""

_INVALID = re.compile(
    r"(Inventory for )(?:'|&#x27;)(.*?)(?:'|&#x27;)( on resource provider )"
    r"(?:'|&#x27;)(.*?)(?:'|&#x27;)( invalid)"
)
"""Names in these messages come in the order of a set."""

_SUFFIXES = re.compile(
    r"\['[^\]]*'\](?= not found in \[)|(?<= not found in )\[[^\]]*\]"
    r"|(?<=bad group\(s\) - )\[[^\]]*\]"
)

_UNKNOWN_TRAITS = re.compile(r"(?<=No such trait )\w+(, \w+)+")
"""They too come in the order of a set."""


def differences(theirs: Answer, ours: Answer, start: datetime) -> list[str]:
    """Every respect in which the answers differ, as sentences; empty when there is none.

    :param start: before this moment the databases were made, each at a time of its own. From
        then on both servers have the same clock.
    """
    found = []
    if theirs.status != ours.status:
        found.append(f"status: theirs {theirs.status}, ours {ours.status}")
    their_names, our_names = (set(answer.headers) - _UNCOMPARED for answer in (theirs, ours))
    found += [f"{name}: theirs only" for name in sorted(their_names - our_names)]
    found += [f"{name}: ours only" for name in sorted(our_names - their_names)]
    found += [
        f"{name}: theirs {theirs.headers[name]}, ours {ours.headers[name]}"
        for name in _VALUES
        if name in their_names & our_names and theirs.headers[name] != ours.headers[name]
    ]
    if _methods(theirs) != _methods(ours):
        found.append(f"allow: theirs {_methods(theirs)}, ours {_methods(ours)}")
    times = [changed(answer, start) for answer in (theirs, ours)]
    if None not in times and times[0] != times[1]:
        found.append(f"last-modified: theirs {times[0]}, ours {times[1]}")
    their_body, our_body = _exactly(content(theirs)), _exactly(content(ours))
    if their_body != our_body:
        found.append(f"body: theirs {_shown(their_body)}\n      ours   {_shown(our_body)}")
    return found


def changed(answer: Answer, start: datetime) -> datetime | None:
    """The moment in Last-Modified, `start` for any before it, None without the header."""
    header = answer.headers.get("last-modified")
    return None if header is None else max(start, parsedate_to_datetime(header))


def content(answer: Answer) -> Any:
    """The body without what may differ: request ids, blanks at the end, unspecified order."""
    text = _REQUEST_ID.sub("req-", answer.body.decode())
    text = _UNKNOWN_TRAITS.sub(lambda names: ", ".join(sorted(names[0].split(", "))), text)
    try:
        body = json.loads(text)
    except ValueError:
        return _INVALID.sub(_sorted_names, " ".join(text.split()))
    if isinstance(body, dict):
        for error in body.get("errors", ()):
            detail = _INVALID.sub(_sorted_names, error["detail"].rstrip())
            error["detail"] = _SUFFIXES.sub(_sorted_list, detail)
        for name in ("resource_providers", "traits", "resource_classes", "aggregates"):
            if isinstance(body.get(name), list):
                body[name].sort(key=_exactly)
        _sort_candidates(body)
    return body


def _sort_candidates(body: dict[str, Any]) -> None:
    for request in body.get("allocation_requests", ()):
        if isinstance(request["allocations"], list):
            request["allocations"].sort(key=_exactly)
        for providers in request.get("mappings", {}).values():
            providers.sort()
    if "allocation_requests" in body:
        body["allocation_requests"].sort(key=_exactly)
    for summary in _mappings(body.get("provider_summaries")):
        # Standard traits first, among themselves in no order; custom ones as they were made.
        summary.get("traits", []).sort(
            key=lambda name: "" if name.startswith("CUSTOM_") else name, reverse=True
        )


def _methods(answer: Answer) -> list[str]:
    return sorted(answer.headers.get("allow", "").split(", "))


def _exactly(value: Any) -> str:
    # Python finds 1, 1.0 and True equal; clients do not.
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _mappings(summaries: Any) -> list[dict[str, Any]]:
    return list(summaries.values()) if isinstance(summaries, dict) else []


def _sorted_names(match: re.Match[str]) -> str:
    head, classes, middle, providers, tail = match.groups()
    names = [", ".join(sorted(group.split(", "))) for group in (classes, providers)]
    return f"{head}'{names[0]}'{middle}'{names[1]}'{tail}"


def _sorted_list(match: re.Match[str]) -> str:
    return str(sorted(match[0].strip("[]").split(", ")))


def _shown(text: str) -> str:
    return text if len(text) < 3000 else f"{text[:3000]}..."
