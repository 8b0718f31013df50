"""Limits of JSON documents, against a look at each value."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from compute_agent.bounded_http import json_document
from compute_agent.bounded_http.limits import LimitExceeded

DEPTH = 4
TEXTS = st.text('[]{}"\\0x', max_size=4)
VALUES = TEXTS | st.sampled_from((None, 1, -7, 10**19 - 1, 10**19, -(10**19), 0.5))
DOCUMENTS = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, members), default=0)


def has_long_integer(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_long_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 10**19


def hidden(levels: int) -> Any:
    """Lists in one another whose brackets, and those in texts beside them, look like none is."""
    return ["]", hidden(levels - 1), "["] if levels else []


@given(DOCUMENTS)
@example(hidden(DEPTH))
def test_a_document_is_refused_for_its_own_depth_and_numbers_only(document: Any) -> None:
    refused = depth(document) > DEPTH or has_long_integer(document)
    with mock.patch.object(json_document, "JSON_DEPTH", DEPTH):
        try:
            assert json_document.parse(json.dumps(document).encode()) == document
            assert not refused
        except LimitExceeded:
            assert refused
