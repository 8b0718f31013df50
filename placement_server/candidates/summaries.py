"""Provider summaries as JSON text, kept for as long as the provider stays what it is.

From 1.29 on an answer lists whole trees, so the text of a whole tree is the unit that is kept.
Slots never change their meaning, so a text is right for as long as its columns exist; a tree
that changes gets new slots and thereby a new text.
"""

from collections.abc import Collection, Iterable

from placement_server.candidates.columns import Columns
from placement_server.candidates.filters import Microversion
from placement_server.candidates.index import Index

# About what 50,000 hosts of three classes and 40 traits need.
_MOST_CHARACTERS = 96 * 1024 * 1024


class SummaryCache:
    """The texts made from one set of columns. Threads may share it."""

    def __init__(self) -> None:
        self._columns: Columns | None = None
        self._trees: dict[int, str] = {}
        self._traits: dict[int, str] = {}
        self._characters = 0

    def _turn_to(self, index: Index) -> None:
        if self._columns is not index.columns:
            self._columns, self._characters = index.columns, 0
            self._trees, self._traits = {}, {}

    def trees(self, index: Index, roots: Iterable[int]) -> list[str]:
        """Return the summaries of whole trees, one text of comma-separated members for each."""
        self._turn_to(index)
        known, texts = self._trees, []
        for root in roots:
            text = known.get(root)
            if text is None:
                text = known[root] = ",".join(
                    self._nested_member(index, slot) for slot in range(root, int(index.end[root]))
                )
                self._characters += len(text)
            texts.append(text)
        if self._characters > _MOST_CHARACTERS:
            self._columns = None
        return texts

    def providers(
        self,
        index: Index,
        slots: Iterable[int],
        microversion: Microversion,
        requested: Collection[int],
    ) -> list[str]:
        """Return the summaries of single providers in the form before 1.29."""
        self._turn_to(index)
        wanted = None if microversion >= (1, 27) else requested
        texts = []
        for slot in slots:
            text = f'"{index.columns.uuid[slot]}":{{{_resources(index, slot, wanted)}'
            if microversion >= (1, 17):
                text += f",{self._traits_of(index, slot)}"
            texts.append(text + "}")
        return texts

    def _nested_member(self, index: Index, slot: int) -> str:
        uuid = index.columns.uuid
        parent = int(index.parent[slot])
        above = f'"{uuid[parent]}"' if parent >= 0 else "null"
        return (
            f'"{uuid[slot]}":{{{_resources(index, slot, None)},{self._traits_of(index, slot)},'
            f'"parent_provider_uuid":{above},'
            f'"root_provider_uuid":"{uuid[int(index.root[slot])]}"}}'
        )

    def _traits_of(self, index: Index, slot: int) -> str:
        number = int(index.trait_set[slot])
        text = self._traits.get(number)
        if text is None:
            names = index.names.trait_names
            members = index.columns.trait_sets.members[number]
            text = '"traits":[' + ",".join(f'"{names[each]}"' for each in members) + "]"
            self._traits[number] = text
        return text


def _resources(index: Index, slot: int, wanted: Collection[int] | None) -> str:
    names = index.names.class_names
    members = ",".join(
        f'"{names[class_id]}":{{"capacity":{int(shown)},"used":{used}}}'
        for class_id, shown, used in index.usage(slot)
        if wanted is None or class_id in wanted
    )
    return f'"resources":{{{members}}}'
