"""The body of GET /allocation_candidates as bytes, in the form of every microversion.

Candidates of one placement differ in nothing but uuids, so a placement that comes a second time is
made a template to be filled in. Those of one tree (a host with many ways to serve a request) are
put together from the texts of their items, many at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import getitem, itemgetter
from typing import Final

from placement_server.candidates import sizes
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import MIB, Account
from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.problem import Positions
from placement_server.candidates.search.search import Candidate
from placement_server.candidates.search.tree_classes import TreeView


@dataclass(frozen=True, slots=True)
class _Template:
    """A candidate with its uuids left open.

    :param places: the positions whose uuids fill the text, in order.
    :param contributing: the positions that contribute resources.
    """

    text: str
    places: tuple[int, ...]
    contributing: tuple[int, ...]


class _KeptSize:
    """The bytes of the texts that a renderer keeps for later candidates."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.size = 0

    def add(self, text: str, key: int = 0) -> None:
        """Count a text.

        :param key: the number of numbers in its key.
        """
        size = sizes.ENTRY + sizes.text(len(text)) + sizes.key(key)
        self._account.take(size)
        self.size += size

    def clear(self) -> None:
        """Count nothing any longer."""
        self._account.give(self.size)
        self.size = 0


class _Pieces(dict[int, str]):
    """A text with a uuid in it, for each position of one tree at which it has been asked for."""

    __slots__ = ("_kept_size", "_root", "_text", "_uuid")

    def __init__(self, text: str, uuid: Sequence[str], root: int, kept_size: _KeptSize) -> None:
        self._text = text
        self._uuid = uuid
        self._root = root
        self._kept_size = kept_size
        # With the text there is an object, and a dict when it is used.
        kept_size.add(text, sizes.PIECES)

    def __missing__(self, position: int) -> str:
        piece = self[position] = self._text % self._uuid[self._root + position]
        self._kept_size.add(piece)
        return piece


class _Body:
    """The pieces of a body, put together into chunks of some megabytes.

    So a long answer is in memory once, and not also whole: its pieces go as it grows.
    """

    def __init__(self, account: Account) -> None:
        self.chunks: list[bytes] = []
        self._account = account
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, *pieces: bytes) -> None:
        """Append pieces. New ones must have been counted."""
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size >= _CHUNK:
            self.end()

    def end(self) -> None:
        """Put together what there is, in one copy: more make the allocator give memory back."""
        self.chunks.append(b"".join(self._pieces))
        self._pieces = []
        self._size = 0


# Pieces are put together when they come to this much.
_CHUNK: Final = 4 * MIB
# This many candidates or summaries are handled together.
_AT_ONCE: Final = 256
# What may be kept for later candidates, in bytes; then all of it goes.
_MOST_KEPT: Final = 16 * MIB

_placement: Callable[[Candidate], Positions] = itemgetter(0)
_tree: Callable[[Candidate], TreeView] = itemgetter(1)
_size_and_shares: Callable[[TreeView], tuple[int, tuple[int, ...]]] = itemgetter(1, 2)


class Renderer:
    """Writes the answer to one query on one index.

    :param account: counts what is kept, the answer included.
    """

    def __init__(
        self,
        query: CandidateQuery,
        plan: Plan,
        index: Index,
        microversion: Microversion,
        summaries: SummaryCache,
        account: Account | None = None,
    ) -> None:
        self.query = query
        self.plan = plan
        self.index = index
        self.microversion = microversion
        self.summaries = summaries
        self._has_nested = microversion >= (1, 29)
        nested_with_mappings = microversion >= (1, 34)
        self._takes = [bool(item.amounts) for item in plan.items]
        self._one_item_each = len(plan.items) == len(query.groups)
        self._resources: dict[tuple[int, ...], str] = {}
        self._parts: dict[tuple[int, ...], str] = {}
        self._mapping_texts: dict[tuple[int, int], str] = {}
        self._simple = nested_with_mappings and self._one_item_each and all(self._takes)
        """Whether a candidate of distinct providers is one allocation and one mapping for each
        item."""

        self._apart = all(
            item.is_named or (plan.is_isolated and item.is_suffixed) for item in plan.items
        )
        """Whether no candidate has two items at one provider."""

        self._pieces: dict[int, list[_Pieces]] = {}
        # None for a placement that has come once.
        self._templates: dict[Positions, _Template | None] = {}
        self._account = account or Account()
        self._kept_size = _KeptSize(self._account)

    def body(self, candidates: Iterable[Candidate]) -> list[bytes]:
        """Return the whole JSON body, in chunks.

        :raises placement_server.candidates.errors.SearchGaveUp: the body takes more memory than it
            may.
        """
        body = _Body(self._account)
        seen_slots: dict[int, None] = {}
        body.add(b'{"allocation_requests":[')
        comma = b","
        counted_slots = 0
        for text in self._requests(candidates, seen_slots):
            self._account.take(len(text) + (len(seen_slots) - counted_slots) * sizes.ENTRY)
            counted_slots = len(seen_slots)
            body.add(text.removeprefix(comma))
            comma = b""
            del text  # the body may have a copy
            self._drop_kept()
        body.add(b'],"provider_summaries":{')
        comma = b","
        roots = iter(seen_slots)
        while batch := list(islice(roots, _AT_ONCE)):
            summaries = self._summaries(batch)
            summaries[0] = summaries[0].removeprefix(comma)
            comma = b""
            self._account.take(sum(map(len, summaries)))
            body.add(*summaries)
        body.add(b"}}")
        body.end()
        return body.chunks

    def _requests(
        self, candidates: Iterable[Candidate], seen_slots: dict[int, None]
    ) -> Iterator[bytes]:
        """Yield the texts of the candidates, each with a comma before it, some at a time."""
        candidates = iter(candidates)
        while batch := list(islice(candidates, _AT_ONCE)):
            tree = batch[0].tree
            if self._simple and not tree.shares and all(map(tree.__eq__, map(_tree, batch))):
                placements = list(map(_placement, batch))
                yield "".join(self._in_one_tree(tree, placements, seen_slots)).encode()
            else:
                yield ",".join(("", *self._in_trees(batch, seen_slots))).encode()

    def _in_trees(self, batch: list[Candidate], seen_slots: dict[int, None]) -> Iterator[str]:
        """Yield the texts of candidates."""
        # They come in long runs of one placement: tree after tree of one class.
        for positions, run in groupby(batch, _placement):
            trees = list(map(_tree, run))
            template = self._templates.get(positions)
            if template is None:
                if len(trees) == 1 and positions not in self._templates:
                    self._templates[positions] = None
                    self._account.take(sizes.ENTRY)
                    yield self._write(positions, trees[0], seen_slots)
                    continue
                template = self._templates[positions] = self._template(positions)
            for (size, shares), alike in groupby(trees, _size_and_shares):
                yield from self._fill(template, [t.root for t in alike], size, shares, seen_slots)

    def _in_one_tree(
        self, tree: TreeView, placements: Sequence[Positions], seen_slots: dict[int, None]
    ) -> Iterable[str]:
        """Return the texts of candidates of one tree in pieces, each with a comma before it."""
        seen_slots[tree.root] = None
        pieces = self._pieces.get(tree.root) or self._pieces_of(tree.root)
        if self._apart or all(len(set(positions)) == len(positions) for positions in placements):
            columns = 2 * list(zip(*placements, strict=True))
            texts = [
                map(by.__getitem__, column) for by, column in zip(pieces, columns, strict=True)
            ]
            return chain.from_iterable(zip(*texts, strict=True))
        return [
            "".join(map(getitem, pieces, 2 * positions))
            if len(set(positions)) == len(positions)
            else "," + self._write(positions, tree, seen_slots)
            for positions in placements
        ]

    def _drop_kept(self) -> None:
        """Drop what is kept for later candidates when it has become much."""
        if self._kept_size.size > _MOST_KEPT:
            self._parts.clear()
            self._mapping_texts.clear()
            self._resources.clear()
            self._pieces.clear()
            self._kept_size.clear()

    def _fill(
        self,
        template: _Template,
        roots: Sequence[int],
        size: int,
        shares: tuple[int, ...],
        seen_slots: dict[int, None],
    ) -> list[str]:
        """Write the candidates of one template in trees that may use the same sharing providers."""
        uuid = self.index.columns.uuid
        text, places = template.text, template.places
        if shares:
            text %= tuple(["%s" if at < size else uuid[shares[at - size]] for at in places])
            places = tuple([at for at in places if at < size])
        for place in template.contributing:
            if place >= size:
                foreign = shares[place - size]
                seen_slots[int(self.index.root[foreign]) if self._has_nested else foreign] = None
            elif self._has_nested:
                seen_slots.update(dict.fromkeys(roots))
            else:
                seen_slots.update(dict.fromkeys([root + place for root in roots]))
        if len(set(places)) == 1:
            at, pieces = places[0], text.split("%s")
            return [uuid[root + at].join(pieces) for root in roots]
        return [text % tuple([uuid[root + at] for at in places]) for root in roots]

    def _summaries(self, seen_slots: Iterable[int]) -> list[bytes]:
        if self._has_nested:
            return self.summaries.trees(self.index, seen_slots)
        requested_classes = {number for item in self.plan.items for number, _ in item.amounts}
        return self.summaries.providers(
            self.index, seen_slots, self.microversion, requested_classes
        )

    def _items_at(self, placement: Positions) -> dict[int, tuple[int, ...]]:
        """Return the items that take resources at each position."""
        items_at: dict[int, tuple[int, ...]] = {}
        for item, position in enumerate(placement):
            if self._takes[item]:
                items_at[position] = (*items_at.get(position, ()), item)
        return items_at

    def _write(self, placement: Positions, tree: TreeView, seen_slots: dict[int, None]) -> str:
        """Write one candidate without a template, and add what is summarised to `seen_slots`."""
        root, size, shares = tree
        parts = []
        texts = self._parts
        for position, items in self._items_at(placement).items():
            slot = root + position if position < size else shares[position - size]
            if self._has_nested:
                seen_slots[int(self.index.root[slot]) if shares else root] = None
            else:
                seen_slots[slot] = None
            key = (slot, *items)
            part = texts.get(key)
            if part is None:
                part = texts[key] = self._part(items) % self.index.columns.uuid[slot]
                self._kept_size.add(part, len(key))
            parts.append(part)
        text = self._allocations(parts)
        if self.microversion < (1, 34):
            return text + "}"
        mapping_texts = []
        if self._one_item_each:
            for item, position in enumerate(placement):
                at = (item, root + position if position < size else shares[position - size])
                member = self._mapping_texts.get(at)
                if member is None:
                    suffix = self.query.groups[item].suffix
                    member = f'"{suffix}":["{self.index.columns.uuid[at[1]]}"]'
                    self._mapping_texts[at] = member
                    self._kept_size.add(member, len(at))
                mapping_texts.append(member)
            return f'{text},"mappings":{{{",".join(mapping_texts)}}}}}'
        members, places = self._mappings(placement)
        uuids = tuple(self.index.columns.uuid[tree.slot(place)] for place in places)
        return f'{text},"mappings":{{{members % uuids}}}}}'

    def _pieces_of(self, root: int) -> list[_Pieces]:
        """Return the texts of allocations and mappings in one tree by item, to be kept.

        One after the other, the allocations of all items and then the mappings are a candidate.
        """
        commas = [","] * (len(self.plan.items) - 1)
        allocations = [self._part((item,)) for item in range(len(self.plan.items))]
        mappings = [f'"{group.suffix}":["%s"]' for group in self.query.groups]
        ends = (*commas, '},"mappings":{', *commas, "}}")
        texts = [text + end for text, end in zip((*allocations, *mappings), ends, strict=True)]
        texts[0] = ',{"allocations":{' + texts[0]
        uuid = self.index.columns.uuid
        pieces = self._pieces[root] = [_Pieces(text, uuid, root, self._kept_size) for text in texts]
        return pieces

    def _part(self, items: tuple[int, ...]) -> str:
        """Return the member of the allocations for one provider, its uuid left open."""
        resources = self._resources_of(items)
        if self.microversion >= (1, 12):
            return f'"%s":{{"resources":{{{resources}}}}}'
        return f'{{"resource_provider":{{"uuid":"%s"}},"resources":{{{resources}}}}}'

    def _allocations(self, parts: list[str]) -> str:
        """Return a candidate up to the end of its allocations."""
        if self.microversion >= (1, 12):
            return f'{{"allocations":{{{",".join(parts)}}}'
        return f'{{"allocations":[{",".join(parts)}]'

    def _template(self, placement: Positions) -> _Template:
        items_at = self._items_at(placement)
        places = list(items_at)
        text = self._allocations([self._part(items) for items in items_at.values()])
        if self.microversion >= (1, 34):
            mappings, mapped_places = self._mappings(placement)
            text += f',"mappings":{{{mappings}}}'
            places += mapped_places
        self._account.take(sizes.template(len(text), len(places), len(items_at)))
        return _Template(text + "}", tuple(places), tuple(items_at))

    def _resources_of(self, items: tuple[int, ...]) -> str:
        text = self._resources.get(items)
        if text is None:
            sums: dict[int, int] = {}
            for item in items:
                for class_id, amount in self.plan.items[item].amounts:
                    sums[class_id] = sums.get(class_id, 0) + amount
            names = self.index.names.class_names
            text = ",".join(f'"{names[number]}":{amount}' for number, amount in sums.items())
            self._resources[items] = text
            self._kept_size.add(text, len(items))
        return text

    def _mappings(self, placement: Positions) -> tuple[str, list[int]]:
        by_group: dict[int, dict[int, None]] = {}
        for item, position in zip(self.plan.items, placement, strict=True):
            by_group.setdefault(item.group, {})[position] = None
        members = ",".join(
            f'"{self.query.groups[group].suffix}":[' + ",".join(['"%s"'] * len(positions)) + "]"
            for group, positions in by_group.items()
        )
        return members, [position for positions in by_group.values() for position in positions]
