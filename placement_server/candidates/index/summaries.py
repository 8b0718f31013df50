"""Provider summaries as JSON, kept until the provider changes.

From 1.29 on an answer lists whole trees, so the text of a whole tree is the unit that is kept: as
bytes, and with a comma in front, so that an answer of megabytes is put together in one copy.
In its slots only the use of a tree changes, so a text is right for as long as its columns exist,
the ids in them keep their names, and the use has changed as often as when the text was made.
"""

import threading
from collections.abc import Collection, Iterable
from typing import Any, Final

import numpy as np

from placement_server.candidates import sizes
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.filters import Microversion

MOST_KEPT: Final = 32 * 1024 * 1024
"""Bytes that are kept by default, at most: as 50,000 hosts of three classes and few traits need."""

_MOST_KEPT_OF_COPY: Final = 1024 * 1024


class _Texts:
    """Texts rendered from one set of columns, with ids of one meaning. Thread safe.

    Those of whole trees have the slot of the root as their key, and are kept with the number of
    changes of the tree's use before them; those of sets of traits have the number of the set,
    inverted. The oldest go first.

    :param most: the most bytes that are kept.
    :param base: texts of the index of which this is a copy, and that index: these have all that
        both have.
    """

    def __init__(self, index: Index, most: int, base: "tuple[_Texts, Index] | None" = None) -> None:
        self.columns = index.columns
        self.meanings = index.names.meanings
        self._most = most
        self._base = base
        self._use_changes = index.use_changes
        self._texts: dict[int, tuple[int, Any]] = {}
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: int) -> tuple[int, Any] | None:
        """Return a text and the changes of use before it, None where there is none."""
        if self._base is not None and self._is_shared(key):
            return self._base[0].get(key)
        return self._texts.get(key)

    def some(self, keys: Iterable[int]) -> Iterable[tuple[int, Any] | None]:
        """Return what `get` returns for each of some keys."""
        return map(self._texts.get if self._base is None else self.get, keys)

    def keep(self, key: int, text: str | bytes, use_changes: int = 0) -> None:
        """Keep a text for later answers."""
        if self._base is not None and self._is_shared(key):
            self._base[0].keep(key, text, use_changes)
            return
        with self._lock:
            if key in self._texts:
                self.size -= _size(self._texts.pop(key)[1])
            self._texts[key] = use_changes, text
            self.size += _size(text)
            while self.size > self._most:
                self.size -= _size(self._texts.pop(next(iter(self._texts)))[1])

    def _is_shared(self, key: int) -> bool:
        assert self._base is not None
        origin = self._base[1]
        if key < 0:
            return ~key < origin.trait_set_count
        return key < origin.size and self._use_changes[key] == origin.use_changes[key]


def _size(text: str | bytes) -> int:
    return sizes.ENTRY + sizes.key(1) + sizes.text(len(text))


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
            cache._texts = _Texts(copy, _MOST_KEPT_OF_COPY, (self._of(origin), origin))
        return cache

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        return self._texts.size if self._texts is not None else 0

    def _of(self, index: Index) -> _Texts:
        # Another thread may be using other columns: each goes on with the texts it got here.
        texts, meanings = self._texts, index.names.meanings
        if texts is None or texts.columns is not index.columns or texts.meanings is not meanings:
            texts = self._texts = _Texts(index, self._most)
        return texts

    def trees(self, index: Index, roots: Collection[int]) -> list[bytes]:
        """Return the summaries of whole trees: members of an object, each after a comma."""
        cached_texts = self._of(index)
        use_changes = index.use_changes.take(np.fromiter(roots, np.int64, len(roots))).tolist()
        return [
            entry[1]
            if entry is not None and entry[0] == changes
            else _new_text(index, root, changes, cached_texts)
            for root, changes, entry in zip(
                roots, use_changes, cached_texts.some(roots), strict=True
            )
        ]

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


def _new_text(index: Index, root: int, use_changes: int, cached_texts: _Texts) -> bytes:
    slots = range(root, int(index.end[root]))
    members = [f",{_nested_member(index, slot, cached_texts)}" for slot in slots]
    text = "".join(members).encode()
    cached_texts.keep(root, text, use_changes)
    return text


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
    entry = cached_texts.get(~number)
    text: str
    if entry is not None:
        text = entry[1]
    else:
        names = index.names.trait_names
        members = index.columns.trait_sets.members[number]
        text = '"traits":[' + ",".join(f'"{names[trait]}"' for trait in members) + "]"
        cached_texts.keep(~number, text)
    return text


def _resources(index: Index, slot: int, shown_classes: Collection[int] | None) -> str:
    names = index.names.class_names
    members = ",".join(
        f'"{names[class_id]}":{{"capacity":{int(capacity)},"used":{used}}}'
        for class_id, capacity, used in index.usage(slot)
        if shown_classes is None or class_id in shown_classes
    )
    return f'"resources":{{{members}}}'
