"""What must be equal in two answers to the same request."""

from __future__ import annotations

import json
import re
from email.utils import parsedate_to_datetime
from typing import Any

from ..wsgi_client import Answer

#: Seconds by which times may differ: two servers do not run in step, and the standard names of
#: their databases were not made at the same moment.
_CLOCKS = 600

_REQUEST_ID = re.compile(r"req-[0-9a-f-]{36}")
_HEADERS = ("content-type", "openstack-api-version", "vary", "cache-control", "location")

#: Names in this message come in the order of a set.
_INVALID = re.compile(r"(Inventory for )'([^']*)'( on resource provider )'([^']*)'( invalid)")
_SUFFIXES = re.compile(r"\['[^\]]*'\](?= not found in \[)|(?<= not found in )\[[^\]]*\]")


def differences(theirs: Answer, ours: Answer) -> list[str]:
    """Every respect in which the answers differ, as sentences; empty when there is none."""
    found = []
    if theirs.status != ours.status:
        found.append(f"status: theirs {theirs.status}, ours {ours.status}")
    found += [
        f"{name}: theirs {theirs.headers.get(name)}, ours {ours.headers.get(name)}"
        for name in _HEADERS
        if theirs.headers.get(name) != ours.headers.get(name)
    ]
    if _methods(theirs) != _methods(ours):
        found.append(f"allow: theirs {_methods(theirs)}, ours {_methods(ours)}")
    found += _times(theirs, ours)
    their_body, our_body = content(theirs), content(ours)
    if their_body != our_body:
        found.append(f"body: theirs {_shown(their_body)}\n      ours   {_shown(our_body)}")
    return found


def _methods(answer: Answer) -> list[str]:
    return sorted(answer.headers.get("allow", "").split(", "))


def _times(theirs: Answer, ours: Answer) -> list[str]:
    times = [answer.headers.get("last-modified") for answer in (theirs, ours)]
    if None in times:
        return (
            [] if times == [None, None] else [f"last-modified: theirs {times[0]}, ours {times[1]}"]
        )
    moments = [parsedate_to_datetime(str(time)) for time in times]
    apart = abs((moments[0] - moments[1]).total_seconds())
    return [f"last-modified: {apart} s apart"] if apart > _CLOCKS else []


def content(answer: Answer) -> Any:
    """The body with what may differ taken out: request ids, blanks in texts, unspecified order."""
    text = _REQUEST_ID.sub("req-", answer.body.decode())
    try:
        body = json.loads(text)
    except ValueError:
        return _INVALID.sub(_sorted_names, " ".join(text.split()))
    if isinstance(body, dict):
        for error in body.get("errors", ()):
            detail = _INVALID.sub(_sorted_names, " ".join(error["detail"].split()))
            error["detail"] = _SUFFIXES.sub(_sorted_list, detail)
        for name in ("resource_providers", "allocation_requests", "traits", "resource_classes"):
            if isinstance(body.get(name), list):
                body[name].sort(key=lambda item: json.dumps(item, sort_keys=True))
        if isinstance(body.get("aggregates"), list):
            body["aggregates"].sort()
        for request in body.get("allocation_requests", ()):
            if isinstance(request["allocations"], list):
                request["allocations"].sort(key=lambda item: json.dumps(item, sort_keys=True))
            for providers in request.get("mappings", {}).values():
                providers.sort()
        for summary in _mappings(body.get("provider_summaries")):
            # Standard traits first, among themselves in no order; custom ones as they were made.
            summary.get("traits", []).sort(
                key=lambda name: "" if name.startswith("CUSTOM_") else name, reverse=True
            )
        if "allocation_requests" in body:
            body["allocation_requests"].sort(key=lambda item: json.dumps(item, sort_keys=True))
    return body


def _mappings(summaries: Any) -> list[dict[str, Any]]:
    return list(summaries.values()) if isinstance(summaries, dict) else []


def _sorted_names(match: re.Match[str]) -> str:
    head, classes, middle, providers, tail = match.groups()
    names = [", ".join(sorted(group.split(", "))) for group in (classes, providers)]
    return f"{head}'{names[0]}'{middle}'{names[1]}'{tail}"


def _sorted_list(match: re.Match[str]) -> str:
    return str(sorted(match[0].strip("[]").split(", ")))


def _shown(body: Any) -> str:
    text = body if isinstance(body, str) else json.dumps(body, sort_keys=True)
    return text if len(text) < 3000 else f"{text[:3000]}..."
