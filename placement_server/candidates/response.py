"""The body of GET /allocation_candidates as bytes, in the form of every microversion.

Candidates of one placement differ in nothing but uuids, so a placement is written once, as a
template, and filled in for each tree.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from placement_server.candidates.filters import Microversion
from placement_server.candidates.index import Index
from placement_server.candidates.plan import Plan
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
        self._resources: dict[tuple[int, ...], str] = {}

    def body(self, candidates: Iterable[Candidate]) -> bytes:
        """Return the whole JSON body."""
        nested = self.microversion >= (1, 29)
        uuid = self.index.columns.uuid
        requests: list[str] = []
        seen: dict[int, None] = {}
        for candidate in candidates:
            placement, tree = candidate.placement, candidate.tree
            template = placement.form
            if template is None:
                template = placement.form = self._template(placement)
            assert isinstance(template, _Template)
            root = tree.root
            if tree.shares or not nested:
                slots = [tree.slot(place) for place in template.places]
                for place in template.contributing:
                    slot = tree.slot(place)
                    seen[int(self.index.root[slot]) if nested else slot] = None
            else:
                slots = [root + place for place in template.places]
                seen[root] = None
            requests.append(template.text % tuple([uuid[slot] for slot in slots]))
        if nested:
            members = self.summaries.trees(self.index, seen)
        else:
            requested = {number for item in self.plan.items for number, _ in item.amounts}
            members = self.summaries.providers(self.index, seen, self.microversion, requested)
        return (
            f'{{"allocation_requests":[{",".join(requests)}],'
            f'"provider_summaries":{{{",".join(members)}}}}}'
        ).encode()

    def _template(self, placement: Placement) -> _Template:
        items_at: dict[int, list[int]] = {}
        for item, position in enumerate(placement.positions):
            if self.plan.items[item].amounts:
                items_at.setdefault(position, []).append(item)
        places = list(items_at)
        resources = [self._resources_of(tuple(items)) for items in items_at.values()]
        if self.microversion >= (1, 12):
            members = ",".join(f'"%s":{{"resources":{{{each}}}}}' for each in resources)
            text = f'{{"allocations":{{{members}}}'
        else:
            members = ",".join(
                f'{{"resource_provider":{{"uuid":"%s"}},"resources":{{{each}}}}}'
                for each in resources
            )
            text = f'{{"allocations":[{members}]'
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
