"""Where this server means to differ from the published one, and why.

Each entry is a weakness of the published server whose improvement no client can mind. A test
that finds a difference not told here fails.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ..wsgi_client import Answer
from .vocabulary import Sent


@dataclass(frozen=True, slots=True)
class Deliberate:
    """One difference: ``applies`` looks at the request, their answer and ours."""

    reason: str
    applies: Callable[[Sent, Answer, Answer], bool]


def _detail(answer: Answer) -> str:
    if answer.headers.get("content-type") == "application/json":
        return answer.detail if b'"errors"' in answer.body else ""
    text = html.unescape(re.sub("<[^>]*>", " ", answer.body.decode()))
    return " ".join(text.split())


def _error_code(answer: Answer) -> str | None:
    return answer.code if b'"errors"' in answer.body else None


def _groups(sent: Sent) -> dict[str, set[str]]:
    """The keywords of each request group of a candidates query, by suffix."""
    groups: dict[str, set[str]] = {}
    for name, _ in parse_qsl(sent.url.partition("?")[2], keep_blank_values=True):
        for keyword in ("resources", "required", "member_of", "in_tree"):
            if name.startswith(keyword):
                groups.setdefault(name.removeprefix(keyword), set()).add(keyword)
    return groups


def _both_found(sent: Sent, theirs: Answer, ours: Answer) -> bool:
    asked = sent.url.startswith("/allocation_candidates?")
    return asked and theirs.status == ours.status == 200


def _shape(answer: Answer) -> Counter[str]:
    """The results without their amounts: which providers, and which of them for which group."""
    shapes: Counter[str] = Counter()
    for request in answer.json["allocation_requests"]:
        allocations = request["allocations"]
        providers = (
            sorted(allocations)
            if isinstance(allocations, dict)
            else sorted(entry["resource_provider"]["uuid"] for entry in allocations)
        )
        mappings = {
            suffix: sorted(chosen) for suffix, chosen in request.get("mappings", {}).items()
        }
        shapes[json.dumps([providers, sorted(mappings.items())])] += 1
    return shapes


def _wrong_amounts_or_lost_anchors(sent: Sent, theirs: Answer, ours: Answer) -> bool:
    groups = _groups(sent)
    if not _both_found(sent, theirs, ours) or "" not in groups or len(groups) < 2:
        return False
    return not _shape(theirs) - _shape(ours)


def _resourceless(sent: Sent, theirs: Answer, ours: Answer) -> bool:
    return _both_found(sent, theirs, ours) and any(
        suffix and "resources" not in keywords for suffix, keywords in _groups(sent).items()
    )


def _limited(sent: Sent, theirs: Answer, ours: Answer) -> bool:
    if not _both_found(sent, theirs, ours) or "limit=" not in sent.url:
        return False
    return len(theirs.json["allocation_requests"]) == len(ours.json["allocation_requests"])


DELIBERATE = [
    Deliberate(
        "where a class is wanted with and without a suffix they add amounts up in shared objects, "
        "and of the anchors of sharing providers they keep one: all that they find is found here",
        _wrong_amounts_or_lost_anchors,
    ),
    Deliberate(
        "groups without resources match by the same rules as others here; there not at all with "
        "forbidden names only, and whatever their in_tree says",
        _resourceless,
    ),
    Deliberate(
        "which of the results a limit leaves over is not told, only how many",
        _limited,
    ),
    Deliberate(
        "U+0000 in a path is shown as U+FFFD: PostgreSQL has no text with it to compare",
        lambda sent, theirs, ours: "%00" in sent.url and theirs.status == ours.status,
    ),
    Deliberate(
        "what they answer with 500 is a 400 or 409 with its reason, or an answer, here",
        lambda _, theirs, ours: theirs.status == 500 and ours.status != 500,
    ),
    Deliberate(
        "of several unknown traits they tell one, by the order of a set",
        lambda _, theirs, ours: (
            theirs.status == ours.status == 400
            and "No such trait" in _detail(theirs)
            and "No such trait" in _detail(ours)
        ),
    ),
    Deliberate(
        "of several aggregates that are no uuids they tell one, by the order of a set",
        lambda _, theirs, ours: all(
            answer.status == 400 and "parameter to contain valid UUID(s). Got" in _detail(answer)
            for answer in (theirs, ours)
        ),
    ),
    Deliberate(
        "an unknown name is told also where the search ends before it comes to it",
        lambda sent, theirs, ours: (
            sent.url.startswith("/allocation_candidates?")
            and theirs.status == 200
            and not theirs.json["allocation_requests"]
            and ours.status == 400
            and "No such " in _detail(ours)
        ),
    ),
    Deliberate(
        "a malformed record under a key that names no class is told before what else is wrong",
        lambda _, theirs, ours: (
            theirs.status >= 400
            and _detail(ours).startswith("JSON does not validate: inventory of ")
        ),
    ),
    Deliberate(
        "of several things wrong with a reshape another one may be told first",
        lambda sent, theirs, ours: (
            sent.url == "/reshaper"
            and theirs.status == ours.status in (400, 409)
            and _error_code(theirs) == _error_code(ours)
        ),
    ),
    Deliberate(
        "the text of a duplicate inventory is there the database's, with its SQL",
        lambda _, theirs, ours: (
            theirs.status == ours.status == 409 and "IntegrityError" in _detail(theirs)
        ),
    ),
    Deliberate(
        "the classes of an invalid allocation are those asked for, not also those given back",
        lambda sent, theirs, ours: (
            theirs.status == ours.status == 409
            and "Inventory for" in _detail(theirs)
            and _detail(ours).endswith(" invalid.")
            and sent.method == "POST"
        ),
    ),
    Deliberate(
        "Last-Modified after a provider was renamed or moved is the time of this change there, "
        "of the one before here: theirs is missing or old",
        lambda sent, theirs, ours: (
            sent.method == "PUT"
            and sent.url.count("/") == 2
            and theirs.status == ours.status == 200
        ),
    ),
]


def without_vary(found: list[str], theirs: Answer) -> list[str]:
    """Leave out that errors raised outside of their handlers have no Vary: ours always do."""
    if theirs.status < 400 or "vary" in theirs.headers:
        return found
    return [sentence for sentence in found if not sentence.startswith("vary:")]


def reason(sent: Sent, theirs: Answer, ours: Answer, found: list[str]) -> str | None:
    """Why these differences are meant, None when they are not."""
    if not without_vary(found, theirs):
        return "Vary accompanies every error"
    for deliberate in DELIBERATE:
        if deliberate.applies(sent, theirs, ours):
            return deliberate.reason
    return None
