"""Provider summaries as JSON, kept until the provider changes.

From 1.29 on an answer lists whole trees, so the text of a whole tree is the unit that is kept: as
bytes, and with a comma in front, so that an answer of megabytes is put together in one copy.
Slots never change their meaning, so a text is right for as long as its columns exist and the ids in
them keep their names; a tree that changes gets new slots and thereby a new text.
"""

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from placement_server.candidates import sizes
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.filters import Microversion

MOST_KEPT: Final = 32 * 1024 * 1024
"""Bytes that are kept by default, at most: as 50,000 hosts of three classes and few traits need."""

_MOST_KEPT_OF_COPY: Final = 1024 * 1024

_Text = TypeVar("_Text", str, bytes)


class _TextCache(Generic[_Text]):
    """Texts by number, up to a number of bytes: the oldest go first. Thread safe.

    :param shared_cache: where the texts of numbers below a bound are, of a cache on a copy.
    """

    def __init__(
        self, most: int, shared_cache: "_TextCache[_Text] | None" = None, shared_below: int = 0
    ) -> None:
        self._most = most
        self._shared_cache: _TextCache[_Text] | None = shared_cache
        self._shared_below = shared_below
        self._texts: dict[int, _Text] = {}
        self._lock = threading.Lock()
        self.size = 0

    def get(self, number: int) -> _Text | None:
        if self._shared_cache is not None and number < self._shared_below:
            return self._shared_cache.get(number)
        return self._texts.get(number)

    def keep(self, number: int, text: _Text) -> None:
        if self._shared_cache is not None and number < self._shared_below:
            self._shared_cache.keep(number, text)
            return
        with self._lock:
            if number in self._texts:
                return
            self._texts[number] = text
            self.size += _size(text)
            while self.size > self._most:
                self.size -= _size(self._texts.pop(next(iter(self._texts))))


def _size(text: str | bytes) -> int:
    return sizes.ENTRY + sizes.text(len(text))


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts rendered from one set of columns, with ids of one meaning."""

    columns: Columns
    meanings: object
    trees: _TextCache[bytes]
    traits: _TextCache[str]

    @classmethod
    def of(cls, index: Index, most: int) -> "_Texts":
        """Return no texts yet, of up to so many bytes."""
        return cls(
            index.columns,
            index.names.meanings,
            _TextCache(most - most // 8),
            _TextCache(most // 8),
        )

    def beside(self, index: Index, origin: Index, most: int) -> "_Texts":
        """Return these texts, and room for those of what only a copy of the index has."""
        return _Texts(
            index.columns,
            self.meanings,
            _TextCache(most - most // 8, self.trees, origin.size),
            _TextCache(most // 8, self.traits, origin.trait_set_count),
        )


class SummaryCache:
    """The texts made from the newest columns. Threads may share it.

    :param most: the most bytes of them that are kept.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._texts: _Texts | None = None
        self._most = most

    def for_copy(self, copy: Index, origin: Index) -> "SummaryCache":
        """Return a cache for a copy of an index: texts of what both have are kept here."""
        cache = SummaryCache(_MOST_KEPT_OF_COPY)
        if copy.columns.origin is origin.columns:
            cache._texts = self._of(origin).beside(copy, origin, _MOST_KEPT_OF_COPY)
        return cache

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        texts = self._texts
        return texts.trees.size + texts.traits.size if texts is not None else 0

    def _of(self, index: Index) -> _Texts:
        # Another thread may be using other columns: each goes on with the texts it got here.
        texts, meanings = self._texts, index.names.meanings
        if texts is None or texts.columns is not index.columns or texts.meanings is not meanings:
            texts = self._texts = _Texts.of(index, self._most)
        return texts

    def trees(self, index: Index, roots: Iterable[int]) -> list[bytes]:
        """Return the summaries of whole trees: members of an object, each after a comma."""
        cached_texts, members = self._of(index), []
        for root in roots:
            text = cached_texts.trees.get(root)
            if text is None:
                slots = range(root, int(index.end[root]))
                text = "".join(
                    [f",{_nested_member(index, slot, cached_texts)}" for slot in slots]
                ).encode()
                cached_texts.trees.keep(root, text)
            members.append(text)
        return members

    def providers(
        self,
        index: Index,
        slots: Iterable[int],
        microversion: Microversion,
        requested_classes: Collection[int],
    ) -> list[bytes]:
        """Return the summaries of single providers in the form before 1.29, as `trees`."""
        cached_texts = self._of(index)
        shown_classes = None if microversion >= (1, 27) else requested_classes
        texts = []
        for slot in slots:
            text = f',"{index.columns.uuid[slot]}":{{{_resources(index, slot, shown_classes)}'
            if microversion >= (1, 17):
                text += f",{_traits_of(index, slot, cached_texts)}"
            texts.append(f"{text}}}".encode())
        return texts


def _nested_member(index: Index, slot: int, cached_texts: _Texts) -> str:
    uuid = index.columns.uuid
    parent = int(index.parent[slot])
    above = f'"{uuid[parent]}"' if parent >= 0 else "null"
    return (
        f'"{uuid[slot]}":{{{_resources(index, slot, None)},{_traits_of(index, slot, cached_texts)},'
        f'"parent_provider_uuid":{above},'
        f'"root_provider_uuid":"{uuid[int(index.root[slot])]}"}}'
    )


def _traits_of(index: Index, slot: int, cached_texts: _Texts) -> str:
    number = int(index.trait_set[slot])
    text = cached_texts.traits.get(number)
    if text is None:
        names = index.names.trait_names
        members = index.columns.trait_sets.members[number]
        text = '"traits":[' + ",".join(f'"{names[trait]}"' for trait in members) + "]"
        cached_texts.traits.keep(number, text)
    return text


def _resources(index: Index, slot: int, shown_classes: Collection[int] | None) -> str:
    names = index.names.class_names
    members = ",".join(
        f'"{names[class_id]}":{{"capacity":{int(capacity)},"used":{used}}}'
        for class_id, capacity, used in index.usage(slot)
        if shown_classes is None or class_id in shown_classes
    )
    return f'"resources":{{{members}}}'
