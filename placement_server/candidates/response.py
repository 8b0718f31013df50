"""The body of GET /allocation_candidates as bytes, in the form of every microversion.

Candidates of which the same items are at one provider differ in nothing but uuids, so they have one
template to be filled in. Those of one tree (a host with many ways to serve a request) are
put together from the texts of their items, many at a time.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from operator import getitem, itemgetter
from typing import Final, NamedTuple

from placement_server.candidates import sizes
from placement_server.candidates.index.index import Index, IndexNames
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import MIB, Account
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery, Plan
from placement_server.candidates.search.problem import Positions
from placement_server.candidates.search.search import Candidate, LoneCandidates
from placement_server.candidates.search.tree_classes import TreeView


class _Template(NamedTuple):
    """A candidate with its uuids left open, for all placements that put items together alike.

    :ivar places: the items whose providers fill the text, in order.
    :ivar contributing: of each provider that contributes resources the first item.
    """

    text: str
    places: list[int]
    contributing: list[int]


class _KeptSize:
    """The bytes of the texts that a renderer keeps for later candidates."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.size = 0

    def add(self, text: str, more: int = 0) -> None:
        """Count a text, and so much beside it."""
        size = sizes.ENTRY + sizes.text(len(text)) + more
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


class _Layout:
    """The texts that all answers to one query have in common.

    :ivar is_simple: whether a candidate of distinct providers is one allocation and one mapping for
        each item.
    :ivar is_apart: whether no candidate has two items at one provider.
    """

    def __init__(
        self, query: CandidateQuery, plan: Plan, names: IndexNames, microversion: Microversion
    ) -> None:
        self.plan = plan
        self.microversion = microversion
        self._suffixes = [group.suffix for group in query.groups]
        self._class_names = names.class_names
        self.is_simple = (
            microversion >= (1, 34)
            and len(plan.items) == len(query.groups)
            and all(item.amounts for item in plan.items)
        )
        self.is_apart = all(item.is_exclusive for item in plan.items)

    @classmethod
    def of(
        cls, query: CandidateQuery, plan: Plan, names: IndexNames, microversion: Microversion
    ) -> "_Layout":
        """Return the layout that is kept with the query; a plan is as good as its names."""
        layout: _Layout | None = query.__dict__.get("layout")
        if layout is None or layout.plan is not plan or layout.microversion != microversion:
            layout = cls(query, plan, names, microversion)
            if not plan.contested_classes:
                query.__dict__["layout"] = layout
        return layout

    @cached_property
    def at_one_provider(self) -> _Template:
        """The template of what one provider serves alone."""
        return self.new_template((0,) * len(self.plan.items))

    @cached_property
    def around_one_provider(self) -> list[str]:
        """The pieces of that template, each place between two of which is for the same uuid."""
        return self.at_one_provider.text.split("%s")

    def part(self, items: Sequence[int]) -> str:
        """Return the member of the allocations for one provider, its uuid left open."""
        sums: dict[int, int] = {}
        for item in items:
            for class_id, amount in self.plan.items[item].amounts:
                sums[class_id] = sums.get(class_id, 0) + amount
        names = self._class_names
        resources = ",".join([f'"{names[number]}":{amount}' for number, amount in sums.items()])
        if self.microversion >= (1, 12):
            return f'"%s":{{"resources":{{{resources}}}}}'
        return f'{{"resource_provider":{{"uuid":"%s"}},"resources":{{{resources}}}}}'

    def new_template(self, firsts: Positions) -> _Template:
        """Return the template of placements of which the same items are at one provider.

        :param firsts: by item, the first at the same provider.
        """
        items_at: dict[int, list[int]] = {}
        groups: dict[str, dict[int, None]] = {}
        for number, (item, first) in enumerate(zip(self.plan.items, firsts, strict=True)):
            if item.amounts:
                items_at.setdefault(first, []).append(number)
            groups.setdefault(self._suffixes[item.group], {})[first] = None
        parts, contributing = ",".join(map(self.part, items_at.values())), list(items_at)
        if self.microversion < (1, 12):
            return _Template(f'{{"allocations":[{parts}]}}', contributing, contributing)
        if self.microversion < (1, 34):
            return _Template(f'{{"allocations":{{{parts}}}}}', contributing, contributing)
        mappings = ",".join(
            f'"{suffix}":[' + ",".join(['"%s"'] * len(at)) + "]" for suffix, at in groups.items()
        )
        text = f'{{"allocations":{{{parts}}},"mappings":{{{mappings}}}}}'
        return _Template(text, [*contributing, *chain.from_iterable(groups.values())], contributing)


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
        self._layout = _Layout.of(query, plan, index.names, microversion)
        self._pieces: dict[int, list[_Pieces]] = {}
        self._templates: dict[Positions, _Template] = {}
        self._account = account or Account()
        self._kept_size = _KeptSize(self._account)

    def body(self, candidates: Iterable[Candidate]) -> list[bytes]:
        """Return the whole JSON body, in chunks.

        :raises placement_server.candidates.errors.SearchGaveUp: the body takes more memory than it
            may.
        """
        if isinstance(candidates, LoneCandidates):
            return [self._lone_body(candidates.roots)]
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

    def _lone_body(self, roots: list[int]) -> bytes:
        """Return the body of so few candidates of one provider each that it is one chunk."""
        uuid, pieces = self.index.columns.uuid, self._layout.around_one_provider
        requests = ",".join([uuid[root].join(pieces) for root in roots]).encode()
        summaries = b"".join(self._summaries(roots))
        self._account.take(2 * (len(requests) + len(summaries)))
        return b'{"allocation_requests":[%b],"provider_summaries":{%b}}' % (requests, summaries[1:])

    def _requests(
        self, candidates: Iterable[Candidate], seen_slots: dict[int, None]
    ) -> Iterator[bytes]:
        """Yield the texts of the candidates, each with a comma before it, some at a time."""
        candidates = iter(candidates)
        while batch := list(islice(candidates, _AT_ONCE)):
            tree = batch[0].tree
            if (
                self._layout.is_simple
                and not tree.shares
                and all(map(tree.__eq__, map(_tree, batch)))
            ):
                placements = list(map(_placement, batch))
                yield "".join(self._in_one_tree(tree, placements, seen_slots)).encode()
            else:
                yield ",".join(["", *self._in_trees(batch, seen_slots)]).encode()

    def _in_trees(self, batch: list[Candidate], seen_slots: dict[int, None]) -> list[str]:
        """Return the texts of candidates."""
        texts: list[str] = []
        # They come in long runs of one placement: tree after tree of one class.
        for positions, run in groupby(batch, _placement):
            template = self._template(positions)
            for (size, shares), alike in groupby(map(_tree, run), _size_and_shares):
                roots = [tree.root for tree in alike]
                texts += self._fill(template, positions, roots, size, shares, seen_slots)
        return texts

    def _in_one_tree(
        self, tree: TreeView, placements: Sequence[Positions], seen_slots: dict[int, None]
    ) -> Iterable[str]:
        """Return the texts of candidates of one tree in pieces, each with a comma before it."""
        seen_slots[tree.root] = None
        pieces = self._pieces.get(tree.root) or self._pieces_of(tree.root)
        if self._layout.is_apart or all(
            len(set(positions)) == len(positions) for positions in placements
        ):
            columns = 2 * list(zip(*placements, strict=True))
            texts = [
                map(by.__getitem__, column) for by, column in zip(pieces, columns, strict=True)
            ]
            return chain.from_iterable(zip(*texts, strict=True))
        return [
            "".join(map(getitem, pieces, 2 * positions))
            if len(set(positions)) == len(positions)
            else "".join((",", *self._in_trees([Candidate(positions, tree)], seen_slots)))
            for positions in placements
        ]

    def _drop_kept(self) -> None:
        """Drop what is kept for later candidates when it has become much."""
        if self._kept_size.size > _MOST_KEPT:
            self._pieces.clear()
            self._kept_size.clear()

    def _fill(
        self,
        template: _Template,
        positions: Positions,
        roots: Sequence[int],
        size: int,
        shares: tuple[int, ...],
        seen_slots: dict[int, None],
    ) -> list[str]:
        """Write the candidates of one placement in trees that may use the same shares."""
        uuid, text = self.index.columns.uuid, template.text
        places = [positions[item] for item in template.places]
        if shares:
            text %= tuple(["%s" if at < size else uuid[shares[at - size]] for at in places])
            places = [at for at in places if at < size]
        for item in template.contributing:
            place = positions[item]
            if place >= size:
                foreign = shares[place - size]
                seen_slots[int(self.index.root[foreign]) if self._has_nested else foreign] = None
            elif self._has_nested:
                seen_slots.update(dict.fromkeys(roots))
            else:
                seen_slots.update(dict.fromkeys([root + place for root in roots]))
        return [text % tuple([uuid[root + at] for at in places]) for root in roots]

    def _summaries(self, seen_slots: Collection[int]) -> list[bytes]:
        if self._has_nested:
            return self.summaries.trees(self.index, seen_slots)
        requested_classes = {number for item in self.plan.items for number, _ in item.amounts}
        return self.summaries.providers(
            self.index, seen_slots, self.microversion, requested_classes
        )

    def _pieces_of(self, root: int) -> list[_Pieces]:
        """Return the texts of allocations and mappings in one tree by item, to be kept.

        One after the other, the allocations of all items and then the mappings are a candidate.
        """
        commas = [","] * (len(self.plan.items) - 1)
        allocations = [self._layout.part([item]) for item in range(len(self.plan.items))]
        mappings = [f'"{group.suffix}":["%s"]' for group in self.query.groups]
        ends = (*commas, '},"mappings":{', *commas, "}}")
        texts = [text + end for text, end in zip((*allocations, *mappings), ends, strict=True)]
        texts[0] = ',{"allocations":{' + texts[0]
        uuid = self.index.columns.uuid
        pieces = self._pieces[root] = [_Pieces(text, uuid, root, self._kept_size) for text in texts]
        return pieces

    def _template(self, placement: Positions) -> _Template:
        # By item, the first at the same provider: what the text depends on.
        firsts = tuple(map(placement.index, placement))
        template = self._templates.get(firsts)
        if template is None:
            layout = self._layout
            template = layout.new_template(firsts) if any(firsts) else layout.at_one_provider
            self._templates[firsts] = template
            sizes_of = len(template.text), len(template.places), len(template.contributing)
            self._account.take(sizes.template(*sizes_of))
        return template
