"""The body of GET /allocation_candidates as bytes, in the form of every microversion.

Candidates of one placement differ in nothing but uuids, so a placement that comes a second time is
made a template to be filled in. One that comes once (a host with many ways to serve a request) is
put together from the texts of its items.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import getitem, itemgetter

from placement_server.candidates.filters import Microversion
from placement_server.candidates.index import Index
from placement_server.candidates.kinds import TreeView
from placement_server.candidates.plan import Plan
from placement_server.candidates.problem import Positions
from placement_server.candidates.query import CandidateQuery
from placement_server.candidates.search import Candidate, Placement
from placement_server.candidates.summaries import SummaryCache


@dataclass(frozen=True, slots=True)
class _Template:
    """A candidate with its uuids left open.

    :param places: the positions whose uuids fill the text, in order.
    :param contributing: the positions that contribute resources.
    """

    text: str
    places: tuple[int, ...]
    contributing: tuple[int, ...]


class _Pieces(dict[int, str]):
    """A text with a uuid in it, for each position of one tree at which it has been asked for."""

    __slots__ = ("_root", "_text", "_uuid")

    def __init__(self, text: str, uuid: Sequence[str], root: int) -> None:
        self._text = text
        self._uuid = uuid
        self._root = root

    def __missing__(self, position: int) -> str:
        piece = self[position] = self._text % self._uuid[self._root + position]
        return piece


@dataclass(frozen=True, slots=True)
class _Alone:
    """What is written for each item at the positions of one tree: its allocation, its mapping."""

    parts: list[_Pieces]
    members: list[_Pieces]


_SEEN_ONCE = object()
_placement: Callable[[Candidate], Placement] = itemgetter(0)
_shares: Callable[[TreeView], tuple[int, ...]] = itemgetter(2)


class Renderer:
    """Writes the answer to one query on one index."""

    def __init__(
        self,
        query: CandidateQuery,
        plan: Plan,
        index: Index,
        microversion: Microversion,
        summaries: SummaryCache,
    ) -> None:
        self.query = query
        self.plan = plan
        self.index = index
        self.microversion = microversion
        self.summaries = summaries
        self._nested = microversion >= (1, 29)
        nested_with_mappings = microversion >= (1, 34)
        self._takes = [bool(item.amounts) for item in plan.items]
        self._one_item_each = len(plan.items) == len(query.groups)
        self._resources: dict[tuple[int, ...], str] = {}
        self._parts: dict[tuple[int, ...], str] = {}
        self._mapped: dict[tuple[int, int], str] = {}
        #: whether a candidate of distinct providers is one allocation and one mapping for each item
        self._simple = nested_with_mappings and self._one_item_each and all(self._takes)
        self._alone: dict[int, _Alone] = {}

    def body(self, candidates: Iterable[Candidate]) -> bytes:
        """Return the whole JSON body."""
        requests: list[str] = []
        seen: dict[int, None] = {}
        # Candidates come in long runs of one placement: tree after tree of one kind.
        for placement, run in groupby(candidates, _placement):
            trees = [tree for _, tree in run]
            if placement.form is None:
                placement.form = _SEEN_ONCE
                if len(trees) == 1:
                    requests.append(self._written(placement, trees[0], seen))
                    continue
            if placement.form is _SEEN_ONCE:
                placement.form = self._template(placement)
            for shares, alike in groupby(trees, _shares):
                roots = [tree.root for tree in alike]
                requests += self._filled(placement.form, roots, trees[0].size, shares, seen)
        summaries = self._summaries(seen)
        if summaries:
            summaries[0] = summaries[0].removeprefix(b",")
        listed = ",".join(requests).encode()
        # One copy of what may be megabytes: more make the allocator give memory back and ask again.
        return b"".join(
            (b'{"allocation_requests":[', listed, b'],"provider_summaries":{', *summaries, b"}}")
        )

    def _filled(
        self,
        template: _Template,
        roots: Sequence[int],
        size: int,
        shares: tuple[int, ...],
        seen: dict[int, None],
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
                seen[int(self.index.root[foreign]) if self._nested else foreign] = None
            elif self._nested:
                seen.update(dict.fromkeys(roots))
            else:
                seen.update(dict.fromkeys([root + place for root in roots]))
        if len(set(places)) == 1:
            at, pieces = places[0], text.split("%s")
            return [uuid[root + at].join(pieces) for root in roots]
        return [text % tuple([uuid[root + at] for at in places]) for root in roots]

    def _summaries(self, seen: Iterable[int]) -> list[bytes]:
        if self._nested:
            return self.summaries.trees(self.index, seen)
        requested = {number for item in self.plan.items for number, _ in item.amounts}
        return self.summaries.providers(self.index, seen, self.microversion, requested)

    def _items_at(self, placement: Placement) -> dict[int, tuple[int, ...]]:
        """Return the items that take resources at each position."""
        items_at: dict[int, tuple[int, ...]] = {}
        for item, position in enumerate(placement.positions):
            if self._takes[item]:
                items_at[position] = (*items_at.get(position, ()), item)
        return items_at

    def _written(self, placement: Placement, tree: TreeView, seen: dict[int, None]) -> str:
        """Write one candidate without a template; note in ``seen`` what it is summarised by."""
        root, size, shares = tree
        positions = placement.positions
        if self._simple and not shares and len(set(positions)) == len(positions):
            seen[root] = None
            return self._written_alone(root, positions)
        parts = []
        known = self._parts
        for position, items in self._items_at(placement).items():
            slot = root + position if position < size else shares[position - size]
            seen[self._summarised_by(slot, tree)] = None
            key = (slot, *items)
            part = known.get(key)
            if part is None:
                part = known[key] = self._part(items) % self.index.columns.uuid[slot]
            parts.append(part)
        text = self._allocations(parts)
        if self.microversion < (1, 34):
            return text + "}"
        mapped = []
        if self._one_item_each:
            for item, position in enumerate(placement.positions):
                at = (item, root + position if position < size else shares[position - size])
                member = self._mapped.get(at)
                if member is None:
                    suffix = self.query.groups[item].suffix
                    member = f'"{suffix}":["{self.index.columns.uuid[at[1]]}"]'
                    self._mapped[at] = member
                mapped.append(member)
            return f'{text},"mappings":{{{",".join(mapped)}}}}}'
        members, places = self._mappings(placement)
        uuids = tuple(self.index.columns.uuid[tree.slot(place)] for place in places)
        return f'{text},"mappings":{{{members % uuids}}}}}'

    def _written_alone(self, root: int, positions: Positions) -> str:
        """Write a candidate in which each item has a provider of its own in one tree."""
        alone = self._alone.get(root)
        if alone is None:
            uuid, items = self.index.columns.uuid, range(len(self.plan.items))
            alone = self._alone[root] = _Alone(
                [_Pieces(self._part((item,)), uuid, root) for item in items],
                [_Pieces(f'"{group.suffix}":["%s"]', uuid, root) for group in self.query.groups],
            )
        parts = ",".join(map(getitem, alone.parts, positions))
        members = ",".join(map(getitem, alone.members, positions))
        return f'{{"allocations":{{{parts}}},"mappings":{{{members}}}}}'

    def _summarised_by(self, slot: int, tree: TreeView) -> int:
        """Return what stands for a slot in the summaries: itself, or the root of its tree."""
        if not self._nested:
            return slot
        return int(self.index.root[slot]) if tree.shares else tree.root

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

    def _template(self, placement: Placement) -> _Template:
        items_at = self._items_at(placement)
        places = list(items_at)
        text = self._allocations([self._part(items) for items in items_at.values()])
        if self.microversion >= (1, 34):
            mappings, mapped = self._mappings(placement)
            text += f',"mappings":{{{mappings}}}'
            places += mapped
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
        return text

    def _mappings(self, placement: Placement) -> tuple[str, list[int]]:
        by_group: dict[int, dict[int, None]] = {}
        for item, position in zip(self.plan.items, placement.positions, strict=True):
            by_group.setdefault(item.group, {})[position] = None
        members = ",".join(
            f'"{self.query.groups[group].suffix}":[' + ",".join(['"%s"'] * len(positions)) + "]"
            for group, positions in by_group.items()
        )
        return members, [each for positions in by_group.values() for each in positions]
