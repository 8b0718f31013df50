"""After any writes the index that followed them equals one that is loaded afresh, and so do the
answers that are made from it."""

from __future__ import annotations

from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_server.candidates.errors import QueryError
from placement_server.candidates.index import writer
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.parser import parse
from placement_server.candidates.service import CandidateService
from placement_server.store.errors import StoreError
from tests.fixtures.memory_stores import memory_store
from tests.property.candidates.writes import (
    BEGINNING,
    CLASSES,
    CUSTOM,
    ONE_WRITE,
    UUIDS,
    Write,
    write,
)


def exchange_trait(provider: str, old: str, new: str) -> list[Write]:
    """A trait goes and another one comes, which SQLite gives the same id."""
    return [
        ("make trait", old, None),
        ("traits", provider, [old]),
        ("traits", provider, []),
        ("drop trait", old, None),
        ("make trait", new, None),
        ("traits", provider, [new]),
    ]


def exchange_class(provider: str, old: str, new: str) -> list[Write]:
    """The same for a resource class."""
    return [
        ("make class", old, None),
        ("stock", provider, {old: 2}),
        ("stock", provider, {}),
        ("drop class", old, None),
        ("make class", new, None),
        ("stock", provider, {new: 2}),
    ]


_PRESENT = st.sampled_from(UUIDS[:2])
_PAIR = st.permutations(CUSTOM)
WRITES = st.one_of(
    ONE_WRITE.map(lambda one: [one]),
    ONE_WRITE.map(lambda one: [one]),
    st.tuples(st.sampled_from([exchange_trait, exchange_class]), _PRESENT, _PAIR).map(
        lambda drawn: drawn[0](drawn[1], *drawn[2])
    ),
)
QUERIES = [
    (f"resources={name}:1{more}", version)
    for name in CLASSES
    for more, version in (
        ("", (1, 39)),
        ("", (1, 17)),
        ("&required=in:HW_NUMA_ROOT,CUSTOM_A", (1, 39)),
        ("&required=!CUSTOM_B", (1, 39)),
    )
]


@settings(max_examples=40)
@given(st.lists(WRITES, min_size=4, max_size=20), st.sampled_from([3, 4096]))
def test_following_the_changes_gives_what_a_fresh_load_gives(
    writes: list[list[Write]], tolerated_dead: int
) -> None:
    with mock.patch.object(writer, "_TOLERATED_DEAD", tolerated_dead):
        follow([*BEGINNING, *(change for some in writes for change in some)])


@pytest.mark.parametrize("exchange", [exchange_trait, exchange_class])
def test_an_id_that_is_given_out_again_is_shown_by_its_new_name(exchange: Any) -> None:
    follow(
        [
            *BEGINNING,
            *exchange(UUIDS[0], *CUSTOM),
            *exchange(UUIDS[0], *reversed(CUSTOM)),
        ]
    )


class ToldFollower(IndexFollower):
    """A feed that follows the changes when it is told to, and not for each of many questions."""

    def follow(self) -> Index:
        self._followed = super().index()
        return self._followed

    def index(self) -> Index:
        return self._followed


def follow(writes: list[Write]) -> None:
    store = memory_store()
    follower = ToldFollower(store)
    followed = CandidateService(store, follower=follower)
    follower.follow()
    for kind, target, value in writes:
        try:
            write(store, kind, target, value)
        except StoreError:
            continue
        index = follower.follow()
        fresh_follower = ToldFollower(store)
        fresh = fresh_follower.follow()
        assert list(index.trees()) == list(fresh.trees())
        assert index.root_ids.tolist() == fresh.root_ids.tolist()
        assert links(index) == links(fresh)
        assert index.has_nested == fresh.has_nested
        assert index.names == fresh.names
        fresh_answers = CandidateService(store, follower=fresh_follower)
        for query, version in QUERIES:
            assert answer(followed, query, version) == answer(fresh_answers, query, version)
    store.close()


def answer(service: CandidateService, query: str, version: tuple[int, int]) -> bytes | str:
    """The body, or what is said of a trait or class that there is not."""
    try:
        return b"".join(service.answer(parse(parse_qsl(query), version), version).chunks)
    except QueryError as error:
        return str(error)


def links(index: Any) -> set[tuple[str, str]]:
    name = index.columns.uuid
    pairs = zip(index.links.share.tolist(), index.links.anchor.tolist(), strict=True)
    return {(name[share], name[anchor]) for share, anchor in pairs}
