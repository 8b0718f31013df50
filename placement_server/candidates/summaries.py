"""Provider summaries as JSON, kept for as long as the provider stays what it is.

From 1.29 on an answer lists whole trees, so the text of a whole tree is the unit that is kept: as
bytes, and with a comma in front, so that an answer of megabytes is put together in one copy.
Slots never change their meaning, so a text is right for as long as its columns exist and the ids in
them keep their names; a tree that changes gets new slots and thereby a new text.
"""

from collections.abc import Collection, Iterable

from placement_server.candidates.columns import Columns
from placement_server.candidates.filters import Microversion
from placement_server.candidates.index import Index

# About what 50,000 hosts of three classes and 40 traits need.
_MOST_CHARACTERS = 96 * 1024 * 1024


class _Texts:
    """What has been rendered from one set of columns, with ids of one meaning."""

    __slots__ = ("characters", "columns", "meanings", "traits", "trees")

    def __init__(self, columns: Columns, meanings: object) -> None:
        self.columns = columns
        self.meanings = meanings
        self.trees: dict[int, bytes] = {}
        self.traits: dict[int, str] = {}
        self.characters = 0


class SummaryCache:
    """The texts made from the newest columns. Threads may share it."""

    def __init__(self) -> None:
        self._texts: _Texts | None = None

    def _of(self, index: Index) -> _Texts:
        # Another thread may be at work on other columns: each goes on with what it got here.
        texts, meanings = self._texts, index.names.meanings
        if texts is None or texts.columns is not index.columns or texts.meanings is not meanings:
            texts = self._texts = _Texts(index.columns, meanings)
        return texts

    def trees(self, index: Index, roots: Iterable[int]) -> list[bytes]:
        """Return the summaries of whole trees: members of an object, each after a comma."""
        known, members = self._of(index), []
        for root in roots:
            text = known.trees.get(root)
            if text is None:
                slots = range(root, int(index.end[root]))
                text = "".join(
                    [f",{_nested_member(index, slot, known)}" for slot in slots]
                ).encode()
                known.trees[root] = text
                known.characters += len(text)
            members.append(text)
        if known.characters > _MOST_CHARACTERS:
            self._texts = None
        return members

    def providers(
        self,
        index: Index,
        slots: Iterable[int],
        microversion: Microversion,
        requested: Collection[int],
    ) -> list[bytes]:
        """Return the summaries of single providers in the form before 1.29, as :meth:`trees`."""
        known = self._of(index)
        wanted = None if microversion >= (1, 27) else requested
        texts = []
        for slot in slots:
            text = f',"{index.columns.uuid[slot]}":{{{_resources(index, slot, wanted)}'
            if microversion >= (1, 17):
                text += f",{_traits_of(index, slot, known)}"
            texts.append(f"{text}}}".encode())
        return texts


def _nested_member(index: Index, slot: int, known: _Texts) -> str:
    uuid = index.columns.uuid
    parent = int(index.parent[slot])
    above = f'"{uuid[parent]}"' if parent >= 0 else "null"
    return (
        f'"{uuid[slot]}":{{{_resources(index, slot, None)},{_traits_of(index, slot, known)},'
        f'"parent_provider_uuid":{above},'
        f'"root_provider_uuid":"{uuid[int(index.root[slot])]}"}}'
    )


def _traits_of(index: Index, slot: int, known: _Texts) -> str:
    number = int(index.trait_set[slot])
    text = known.traits.get(number)
    if text is None:
        names = index.names.trait_names
        members = index.columns.trait_sets.members[number]
        text = '"traits":[' + ",".join(f'"{names[each]}"' for each in members) + "]"
        known.traits[number] = text
    return text


def _resources(index: Index, slot: int, wanted: Collection[int] | None) -> str:
    names = index.names.class_names
    members = ",".join(
        f'"{names[class_id]}":{{"capacity":{int(shown)},"used":{used}}}'
        for class_id, shown, used in index.usage(slot)
        if wanted is None or class_id in wanted
    )
    return f'"resources":{{{members}}}'
