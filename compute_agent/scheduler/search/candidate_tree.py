"""Tree of the host of a candidate: what the planner may put elsewhere, and the candidate then.

How much is free of cells and devices is read from the summaries. A group of which something cannot
be seen in them stays where the candidate has it, and so does a node of the guest that it depends
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from compute_agent.fitting.guest import Wish
from compute_agent.fitting.host import Cell, Device, Host
from compute_agent.fitting.plan import Plan
from compute_agent.placement.allocations.amounts import (
    MutableAmounts,
    add,
    subtract,
    without_zeros,
)
from compute_agent.provider_tree.provider import child_uuid
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, PAGE_SIZE_PREFIX
from compute_agent.request.candidate_request import (
    GUEST_CELL_SUFFIX,
    UNSUFFIXED,
    CandidateRequest,
)
from compute_agent.request.guest_numa import is_device
from compute_agent.scheduler.placement.candidates import (
    Candidate,
    ProviderSummary,
    ancestry,
    links_of,
)
from compute_agent.scheduler.search.layout_queries import CELL_CLASSES, CELL_GROUP, TRAIT_GROUP

_NUMBERED_CELLS = 64


class CandidateTree:
    """The tree of one host, as a candidate on it leaves it.

    :param announced: what its agent announces, for what no summary has.
    :ivar moved_groups: suffixes of the groups that the planner may put elsewhere.
    :ivar wishes: those of them that are devices.
    """

    def __init__(
        self,
        providers: Mapping[str, ProviderSummary],
        base: Candidate,
        request: CandidateRequest,
        policy_of: Mapping[str, str],
        announced: Host | None = None,
    ) -> None:
        self._providers = providers
        self._base = base
        self._request = request
        self._cell_of, is_numbered = _cell_providers(base.root, providers)
        self._announced = announced or Host()
        self._announced_cells = {c.id: c for c in self._announced.cells if is_numbered}
        relations = [set(names) for names in request.same_subtree]
        relations += [set(together | others) for together, others in request.apart]
        self.wishes: list[Wish] = []
        self.moved_groups: set[str] = set()
        fixed_suffixes: set[str] = set()
        for suffix in base.mappings.keys() - {UNSUFFIXED, TRAIT_GROUP}:
            related = [names for names in relations if suffix in names]
            if GUEST_CELL_SUFFIX.fullmatch(suffix) or suffix.startswith("_PAGES"):
                self.moved_groups.add(suffix)
            elif self._is_movable(suffix, related):
                nodes = {name for names in related for name in names} - {suffix}
                node = int(min(nodes).removeprefix("_NUMA")) if nodes else None
                self.wishes.append(self._wish(suffix, node, policy_of))
                self.moved_groups.add(suffix)
            else:
                fixed_suffixes.add(suffix)
        self._fixed_nodes = {
            name
            for names in relations
            if names & fixed_suffixes
            for name in names
            # every cell is below the root, where a group for the host is
            if any(self._cells_above(suffix) for suffix in names & fixed_suffixes)
        }
        self.wishes.sort(key=lambda wish: wish.name)
        self._others = subtract(base.allocations, self._moved_amounts())

    def _cells_above(self, suffix: str) -> bool:
        provider = self._base.mappings[suffix][0]
        return any(uuid in self._cell_of for uuid in ancestry(provider, self._providers))

    def _is_movable(self, suffix: str, related: Sequence[set[str]]) -> bool:
        """Whether all that is asked of a device can be seen: it may be of another provider."""
        group = self._request.group(suffix)
        return (
            len(group.resources) == 1
            and is_device(next(iter(group.resources)))
            and not (group.in_tree or group.member_of or group.forbidden_aggregates)
            and all(len(names) == 2 for names in related)
            and all(
                GUEST_CELL_SUFFIX.fullmatch(name) and name in self._base.mappings
                for names in related
                for name in names - {suffix}
            )
            and len({frozenset(names) for names in related}) < 2
            and not any(suffix in together | others for together, others in self._request.apart)
        )

    def _wish(self, suffix: str, node: int | None, policy_of: Mapping[str, str]) -> Wish:
        group = self._request.group(suffix)
        [(resource_class, amount)] = group.resources.items()
        nearness = "required" if node is not None else policy_of.get(suffix, "")
        if nearness == "socket" and not self._knows_sockets:
            nearness = "preferred"
        return Wish(suffix, resource_class, amount, group.required, group.forbidden, nearness, node)

    @property
    def _knows_sockets(self) -> bool:
        cells = self._announced_cells.values()
        return bool(cells) and all(cell.package is not None for cell in cells)

    def _moved_amounts(self) -> MutableAmounts:
        base = self._base
        return add(
            *(
                {base.mappings[suffix][0]: dict(self._request.group(suffix).resources)}
                for suffix in self.moved_groups
                if base.mappings.get(suffix)
            )
        )

    def _free(self, provider: ProviderSummary, resource_class: str) -> int:
        taken = self._others.get(provider.uuid, {}).get(resource_class, 0)
        return provider.free(resource_class) - taken

    def fixed_cell(self, node: int) -> int | None:
        """Return the cell that a node stays on, since something else depends on it."""
        suffix = f"_NUMA{node}"
        if suffix not in self._fixed_nodes:
            return None
        return self._cell_of.get(self._base.mappings[suffix][0])

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells on which the nodes of the guest may be, with what is free of them."""
        group = self._request.group(CELL_GROUP)
        pages = self._pages()
        taken_cells: set[str] = set()
        if self._request.group_policy == "isolate":
            others = self._base.mappings.keys() - self.moved_groups - {UNSUFFIXED}
            taken_cells.update(*(self._base.mappings[suffix] for suffix in others))
        cells = []
        for uuid, number in sorted(self._cell_of.items(), key=lambda item: item[1]):
            provider = self._providers[uuid]
            if (
                uuid in taken_cells
                or not group.accepts(provider.traits)
                or not self._has_traits_beside(provider)
            ):
                continue
            vcpus, pinnable, memory = (self._free(provider, name) for name in CELL_CLASSES)
            announced = self._announced_cells.get(number, Cell(number))
            cells.append(
                replace(
                    announced,
                    # fewer are announced where a guest has left since
                    cores=announced.cores if announced.pinnable >= pinnable else (),
                    floating=None,
                    own_memory_mib=None,
                    pinned_memory_mib=None,
                    pinnable=pinnable,
                    vcpus=vcpus,
                    memory_mib=memory,
                    pages_mib={
                        size: self._free(of_size, "MEMORY_MB")
                        for (cell, size), of_size in pages.items()
                        if cell == number
                    },
                )
            )
        return tuple(cells)

    def _pages(self) -> dict[tuple[int, int], ProviderSummary]:
        pages = {}
        for provider in self._providers.values():
            number = self._cell_of.get(provider.parent or "", -1)
            for trait in provider.traits if number >= 0 else ():
                if trait.startswith(PAGE_SIZE_PREFIX):
                    pages[number, int(trait.removeprefix(PAGE_SIZE_PREFIX))] = provider
        return pages

    def _has_traits_beside(self, cell: ProviderSummary) -> bool:
        """Whether the traits that may be on any provider in line with a cell are there."""
        return self._trait_provider(cell.uuid) is not None

    def _trait_provider(self, cell: str) -> str | None:
        group = self._request.group(TRAIT_GROUP)
        if group.empty:
            return cell
        return next(
            (
                provider.uuid
                for provider in self._providers.values()
                if group.accepts(provider.traits)
                and (
                    provider.uuid in ancestry(cell, self._providers)
                    or cell in ancestry(provider.uuid, self._providers)
                )
            ),
            None,
        )

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of the tree, with what is free of them."""
        devices: list[Device] = []
        is_isolated = self._request.group_policy == "isolate"
        # of a device that is for one group alone no other wish has anything
        most = {wish.resource_class: wish.amount for wish in self.wishes}
        announced = {(d.id, d.resource_class): d for d in self._announced.devices}
        for provider in sorted(self._providers.values(), key=lambda provider: provider.uuid):
            if provider.root != self._base.root:
                continue
            line = ancestry(provider.uuid, self._providers)
            cell = next((self._cell_of[uuid] for uuid in line if uuid in self._cell_of), None)
            links = links_of(provider.traits)
            unknown = Device(
                provider.uuid,
                "",
                0,
                pcie_root=provider.parent or "" if len(line) > 3 else "",
                link_group=links[0] if links else "",
            )
            for resource_class in sorted(filter(is_device, provider.counts)):
                free = self._free(provider, resource_class)
                if is_isolated:
                    free = min(free, most.get(resource_class, 0))
                device = announced.get((provider.uuid, resource_class), unknown)
                devices.append(
                    replace(
                        device,
                        resource_class=resource_class,
                        free=max(
                            min(free, most.get(resource_class, 0)) if is_isolated else free, 0
                        ),
                        used=provider.used(resource_class) > 0,
                        cell=cell if self._cell_of else device.cell,
                        traits=provider.traits,
                    )
                )
        return tuple(devices)

    def compose(self, answer: Plan) -> Candidate:
        """Return the candidate with nodes and devices where the plan has them."""
        provider_of = {number: uuid for uuid, number in self._cell_of.items()}
        if (
            provider_of
            and answer.parts
            and f"_NUMA{len(answer.parts) - 1}" not in self._base.mappings
        ):
            return self.lay_over(answer)
        pages = self._pages()
        mappings = dict(self._base.mappings)
        parts = answer.parts if provider_of else ()
        for index, part in enumerate(parts):
            cell = provider_of[part.cell]
            mappings[f"_NUMA{index}"] = (cell,)
            if f"_PAGES{index}" in mappings:
                mappings[f"_PAGES{index}"] = (pages[part.cell, part.page_size_kib or 0].uuid,)
        if TRAIT_GROUP in mappings and parts:
            provider = self._trait_provider(provider_of[parts[0].cell])
            mappings[TRAIT_GROUP] = (provider,) if provider else mappings[TRAIT_GROUP]
        for given in answer.given:
            mappings[given.wish] = (given.device,)
        moved = (
            {mappings[suffix][0]: dict(self._request.group(suffix).resources)}
            for suffix in self.moved_groups
        )
        return self._base._replace(
            allocations=without_zeros(add(self._others, *moved)), mappings=mappings
        )

    def lay_over(self, spread: Plan) -> Candidate:
        """Return the candidate with the whole guest over several cells."""
        provider_of = {number: uuid for uuid, number in self._cell_of.items()}
        shares = {
            provider_of[part.cell]: {
                name: amount
                for name, amount in zip(
                    CELL_CLASSES, (part.vcpus, part.pinned, part.memory_mib), strict=True
                )
                if amount
            }
            for part in spread.parts
        }
        devices = [{given.device: {given.resource_class: given.amount}} for given in spread.given]
        mappings = {
            **self._base.mappings,
            **{given.wish: (given.device,) for given in spread.given},
            CELL_GROUP: tuple(shares),
        }
        return Candidate(
            self._base.root,
            add(self._others, shares, *devices),
            mappings,
            "split",
        )


def _cell_providers(
    root: str, providers: Mapping[str, ProviderSummary]
) -> tuple[dict[str, int], bool]:
    """Return the providers that are cells, with numbers, and whether these are of their agent.

    Agents derive uuids from the numbers. Without one, the order of the uuids is the number.
    """
    cells = {uuid for uuid, p in providers.items() if HW_NUMA_ROOT in p.traits}
    numbers: dict[str, int] = {}
    try:
        for number in range(_NUMBERED_CELLS if cells else 0):
            uuid = child_uuid(root, f"numa:{number}")
            if uuid in cells:
                numbers[uuid] = number
                if len(numbers) == len(cells):
                    return numbers, True
    except ValueError:
        numbers = {}  # the root is not a uuid
    return {uuid: number for number, uuid in enumerate(sorted(cells))}, False
