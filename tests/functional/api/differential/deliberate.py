"""Where this server means to differ from the published one, and why.

Each entry is a weakness of the published server whose improvement no client can mind. A test
that finds a difference not told here fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..wsgi_client import Answer
from .traffic import Sent


@dataclass(frozen=True, slots=True)
class Deliberate:
    """One difference: ``applies`` looks at the request, their answer and ours."""

    reason: str
    applies: Callable[[Sent, Answer, Answer], bool]


def _detail(answer: Answer) -> str:
    return answer.detail if b'"errors"' in answer.body else ""


DELIBERATE = [
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
