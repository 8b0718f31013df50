"""Deliberate differences of this server from the published one, and their reasons.

Each rule is a weakness of the published server whose improvement no client can mind. It looks at
the request and at both answers: at what was asked, at what they got wrong and at ours being right.
A test that finds a difference not told here fails.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

from ..wsgi_client import Answer
from . import candidates
from .comparison import changed
from .pair import START, Difference

_CLASS_KEY = re.compile("^[A-Z0-9_]+$")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
_INVALID = re.compile("Inventory for '(.*)' on resource provider '(.*)' invalid")


@dataclass(frozen=True, slots=True)
class DeliberateDifference:
    """One difference and when it applies."""

    reason: str
    applies: Callable[[Difference], bool]


def text(answer: Answer) -> str:
    """The message of an error behind the lead sentence, whatever it is rendered as."""
    if answer.status < 400:
        return ""
    if answer.headers.get("content-type") == "application/json":
        return " ".join(answer.error["detail"].partition("\n\n")[2].split())
    shown = html.unescape(re.sub("<[^>]*>", " ", answer.body.decode()))
    return " ".join(shown.split())


def _code(answer: Answer) -> str | None:
    return answer.code if answer.headers.get("content-type") == "application/json" else None


def _query(difference: Difference, name: str) -> list[str]:
    """The values of a parameter, suffixed ones included, split at commas."""
    pairs = parse_qsl(difference.sent.url.partition("?")[2], keep_blank_values=True)
    return [item for key, value in pairs if key.startswith(name) for item in value.split(",")]


def _body(difference: Difference) -> Any:
    try:
        return json.loads(difference.sent.body or b"null")
    except ValueError:
        return None


def _null_in_url(difference: Difference) -> bool:
    shown = re.sub(rb"\\\\x00|\\u0000|\0", _REPLACEMENT, difference.theirs.body)
    ours = difference.ours.body.replace(b"\\ufffd", _REPLACEMENT)
    return (
        b"\0" in unquote_to_bytes(difference.sent.url)
        and difference.only_in("body")
        and _alike(shown, ours)
    )


def _strict_json(difference: Difference) -> bool:
    sent = difference.sent.body or b""
    refused = re.fullmatch(
        r"Malformed JSON: (nested too deeply|the body ended .*|(the character )?(\S+) "
        r"(is not a|cannot be) .*)",
        text(difference.ours),
    )
    if refused is None or difference.ours.status != 400:
        return False
    character = (refused[3] or "").removeprefix("U+").lower()
    return (
        difference.theirs.status == 500
        or f"{refused[3]}".encode() in sent
        or (f"\\u{character}".encode() in sent.lower())
    )


def _ratio_out_of_range(difference: Difference) -> bool:
    return (
        difference.statuses == (500, 400)
        and "allocation_ratio" in text(difference.ours)
        and b"allocation_ratio" in (difference.sent.body or b"")
    )


def _undecodable_usages(difference: Difference) -> bool:
    query = unquote_to_bytes(difference.sent.url.partition("?")[2])
    return (
        difference.sent.url.startswith("/usages?")
        and difference.statuses == (500, 400)
        and query.decode("utf-8", "ignore").encode() != query
        and "Invalid query string parameters: 'utf-8' codec" in text(difference.ours)
    )


def _too_much_for_a_column(difference: Difference) -> bool:
    """Nobody has an amount that no column of a database can hold."""
    return (
        difference.sent.url.startswith(("/resource_providers?", "/allocation_candidates?"))
        and difference.statuses == (500, 200)
        and not any(difference.ours.json.values())
        and any(
            int(amount) > 2**63 - 1
            for item in _query(difference, "resources")
            for amount in [item.partition(":")[2]]
            if amount.isdecimal()
        )
    )


def _class_name_in_json(difference: Difference) -> bool:
    path = unquote_to_bytes(difference.sent.url).decode("utf-8", "replace")
    name = path.removeprefix("/resource_classes/")
    return (
        difference.sent.method == "PUT"
        and name != path
        and json.dumps(name, ensure_ascii=False) != f'"{name}"'
        and difference.statuses == (400, 400)
        and "does not match '^CUSTOM_[A-Z0-9_]+$'" in text(difference.ours)
    )


def _alike(one: bytes, other: bytes) -> bool:
    ids = re.compile(rb"req-[0-9a-f-]{36}")
    normal = [
        b" ".join(ids.sub(b"", body).replace(_REPLACEMENT, b"\\ufffd").split())
        for body in (one, other)
    ]
    return _parsed(normal[0]) == _parsed(normal[1])


def _parsed(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except ValueError:
        return body
    return parsed


def _malformed_record(difference: Difference) -> bool:
    """A record that is no record, under a key that cannot be a class."""
    sent = difference.sent
    inventories = sent.method == "PUT" and sent.url.endswith("/inventories")
    if not inventories and (sent.method, sent.url) != ("POST", "/reshaper"):
        return False
    if difference.ours.status != 400 or difference.theirs.status < 400:
        return False
    told = re.search("JSON does not validate: inventory of '(.*?)': ", text(difference.ours))
    return (
        told is not None and not _CLASS_KEY.match(told[1]) and told[1] in _keys(_body(difference))
    )


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def _one_of_several(difference: Difference, words: str, parameter: str) -> bool:
    """Both tell one of several wrong items of a parameter, in the same words."""
    if difference.statuses != (400, 400) or not difference.only_in("body"):
        return False
    told = [text(answer).partition(words) for answer in (difference.theirs, difference.ours)]
    items = [item.strip().lstrip("!") for item in _query(difference, parameter)]
    items = [item.removeprefix("in:") for item in items]
    return told[0][:2] == told[1][:2] and all(
        words in line[1] and line[2].removesuffix(".").lstrip("!") in items for line in told
    )


def _unknown_traits(difference: Difference) -> bool:
    words = "No such trait(s): "
    return any(
        _one_of_several(difference, words, parameter) for parameter in ("required", "root_required")
    ) and all(
        difference.unknown_to_both(f"/traits/{text(answer).partition(words)[2].removesuffix('.')}")
        for answer in (difference.theirs, difference.ours)
    )


def _bad_aggregates(difference: Difference) -> bool:
    words = "Expected 'member_of' parameter to contain valid UUID(s). Got: "
    return _one_of_several(difference, words, "member_of")


def _duplicate_inventory(difference: Difference) -> bool:
    sent = difference.sent
    return (
        sent.method == "POST"
        and sent.url.endswith("/inventories")
        and difference.statuses == (409, 409)
        and difference.only_in("body")
        and _code(difference.theirs) == _code(difference.ours)
        and "Update conflict: " in text(difference.theirs)
        and "IntegrityError" in text(difference.theirs)
        and "Update conflict: " in text(difference.ours)
    )


def _classes_given_back(difference: Difference) -> bool:
    """They list classes that emptied consumers hold as well; ours only those asked for."""
    if difference.sent.method != "POST" or difference.statuses != (409, 409):
        return False
    theirs, ours = (_INVALID.search(text(it)) for it in (difference.theirs, difference.ours))
    if not difference.only_in("body") or ours is None:
        return False
    body = _body(difference)
    entries = body["allocations"] if difference.sent.url == "/reshaper" else body
    asked = {
        name
        for entry in entries.values()
        for given in entry["allocations"].values()
        for name in given["resources"]
    }
    emptied = [consumer for consumer, entry in entries.items() if not entry["allocations"]]
    held = {
        name
        for consumer in emptied
        for given in difference.ours_now(f"/allocations/{consumer}")["allocations"].values()
        for name in given["resources"]
    }
    if {*ours[1].split(", ")} != asked:
        return False

    def stock(provider: str) -> set[str]:
        return set(
            difference.ours_now(f"/resource_providers/{provider}/inventories")["inventories"]
        )

    # With stock of a class that is only given back, a provider is none without any of the classes.
    bare = {provider for provider in ours[2].split(", ") if not held & stock(provider)}
    # They then go on to the first allocation that is not possible, of whichever provider.
    if theirs is None:
        return not bare and "Unable to create allocation for" in text(difference.theirs)
    classes = {*theirs[1].split(", ")}
    if bare:
        return classes == asked | held and {*theirs[2].split(", ")} == bare
    return len(classes) == 1 and classes <= asked - stock(theirs[2])


def _last_modified_of_an_update(difference: Difference) -> bool:
    theirs, ours = (changed(answer, START) for answer in (difference.theirs, difference.ours))
    return (
        difference.sent.method == "PUT"
        and re.fullmatch("/resource_providers/[^/]+", difference.sent.url) is not None
        and difference.statuses == (200, 200)
        and difference.only_in("last-modified")
        and ours is not None
        and (theirs is None or (theirs < ours == difference.pair.moment))
    )


DELIBERATE = [
    DeliberateDifference(
        "where a class is wanted with and without a suffix they add amounts up in shared objects",
        candidates.wrong_amounts,
    ),
    DeliberateDifference(
        "of the anchors of sharing providers that serve the unsuffixed group alone they keep one",
        candidates.lost_anchors,
    ),
    DeliberateDifference(
        "where more is reserved than there is they take the debt from what the tree has elsewhere",
        candidates.hidden_by_debt,
    ),
    DeliberateDifference(
        "groups without resources match by the same rules as others here; there not at all without "
        "a positive filter, and otherwise whatever their in_tree says",
        candidates.groups_without_resources,
    ),
    DeliberateDifference(
        "which of the results a limit leaves over is not told, only how many; before 1.29 they "
        "summarise idle providers of the same trees, too",
        candidates.limited,
    ),
    DeliberateDifference(
        "a bad limit or group_policy that is hidden behind a good one is 400 here",
        candidates.hidden_bad_value,
    ),
    DeliberateDifference(
        "a sharing provider inside of a tree makes them answer 500; here it is one like others",
        candidates.crash_with_a_nested_sharing_provider,
    ),
    DeliberateDifference(
        "an unknown name is told also where the search ends before it comes to it",
        candidates.unknown_name_told_early,
    ),
    DeliberateDifference(
        "U+0000 in a URL is shown as U+FFFD: PostgreSQL has no text with it to compare",
        _null_in_url,
    ),
    DeliberateDifference(
        "numbers that JSON does not have, texts that no database stores, deep nesting and bodies "
        "that end early are refused",
        _strict_json,
    ),
    DeliberateDifference(
        "an allocation_ratio that single precision does not have is 400 here where it is 500 there",
        _ratio_out_of_range,
    ),
    DeliberateDifference(
        "a query of /usages that is not UTF-8 is 500 there and 400 here",
        _undecodable_usages,
    ),
    DeliberateDifference(
        "an amount that no column can hold is 500 there; here nobody has so much",
        _too_much_for_a_column,
    ),
    DeliberateDifference(
        "the name of a class in a path is checked as it is; there it is put into a JSON text first",
        _class_name_in_json,
    ),
    DeliberateDifference(
        "of several unknown traits they tell one, by the order of a set",
        _unknown_traits,
    ),
    DeliberateDifference(
        "of several aggregates that are no uuids they tell one, by the order of a set",
        _bad_aggregates,
    ),
    DeliberateDifference(
        "a malformed record under a key that names no class is 400 and told before what else is "
        "wrong; there it is 500 if it is come to",
        _malformed_record,
    ),
    DeliberateDifference(
        "the text of a duplicate inventory is there the database's, with its SQL",
        _duplicate_inventory,
    ),
    DeliberateDifference(
        "the classes of an invalid allocation are those asked for, not also those given back; with "
        "those, providers pass there that have none of the classes asked for",
        _classes_given_back,
    ),
    DeliberateDifference(
        "Last-Modified of a provider just renamed or moved is the time of this change; there that "
        "of the one before, or missing",
        _last_modified_of_an_update,
    ),
]


def without_vary(difference: Difference) -> Difference:
    """Leave out that errors raised outside of their handlers have no Vary: ours always do."""
    if difference.theirs.status < 400 or difference.ours.status < 400:
        return difference
    found = tuple(sentence for sentence in difference.found if sentence != "vary: ours only")
    return replace(difference, found=found)


def plainly_spelled(difference: Difference) -> Difference:
    """Spell the path as the rules have it: without needless escapes, or a query nobody reads."""
    sent = difference.sent
    path, mark, query = sent.url.partition("?")
    path = re.sub(
        "%(2d|3[0-9]|[46][1-9a-f]|5[0-9af]|7[0-9a])", _unescaped, path, flags=re.IGNORECASE
    )
    url = f"{path}{mark}{query}" if sent.method == "GET" else path
    return replace(difference, sent=replace(sent, url=url))


def _unescaped(match: re.Match[str]) -> str:
    return unquote(match[0])


def reason(difference: Difference) -> str | None:
    """Why the answers are meant to differ, None when they are not."""
    rest = without_vary(plainly_spelled(difference))
    if not rest.found:
        return "Vary accompanies every error"
    return next((rule.reason for rule in DELIBERATE if rule.applies(rest)), None)
