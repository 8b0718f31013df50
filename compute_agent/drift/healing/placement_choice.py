"""Choice of the providers of its host from which an instance gets what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.drift.healing.coverage import (
    Coverage,
    HostProvider,
    RoomiestProviders,
    roomiest,
)
from compute_agent.drift.wording import resources
from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add, without_zeros
from compute_agent.placement.connection import CONSUMER_TYPE
from compute_agent.provider_tree.inventory import capacity
from compute_agent.report.usage import usage_of
from compute_agent.request.candidate_request import (
    GUEST_CELL_SUFFIX,
    UNSUFFIXED,
    CandidateRequest,
    RequestGroup,
)
from compute_agent.scheduler.weighers.order import candidates_in_order
from compute_agent.virt.layout import names

if TYPE_CHECKING:
    from compute_agent.drift.instances.instance import Instance
    from compute_agent.placement.provider_directory import ProviderDirectory
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient
    from compute_agent.request.spec import RequestSpec
    from compute_agent.scheduler.placement.candidates import Candidate
    from compute_agent.scheduler.search.search import HostSearch
    from compute_agent.virt.driver import InstanceDevices

CPU_CLASSES = ("VCPU", "PCPU")
CELL_CLASSES = (*CPU_CLASSES, "MEMORY_MB")
_NUMA = "hw:numa_"
_NUMA_PROPERTY = "hw_numa_"


class NotPlaced(errors.ComputeAgentError):
    """A host cannot give an instance what it lacks; the message names provider and class."""


class PlacedResources(Struct, frozen=True):
    """Resources for what an instance lacks.

    :ivar mappings: suffix of a group to the provider that gives it.
    """

    amounts: Amounts = {}
    mappings: Mapping[str, str] = {}


class GuestFacts(Struct, frozen=True):
    """A guest's devices beside the names of the providers of its host.

    :ivar root: name of the root provider.
    :ivar uuids: provider name to uuid, of the whole tree.
    """

    devices: InstanceDevices
    root: str
    uuids: Mapping[str, str]

    def allows(self, providers: Mapping[str, object]) -> bool:
        """Whether the guest can hold something of all these providers, given by uuid."""
        names_by_uuid = {uuid: name for name, uuid in self.uuids.items()}
        return all(
            self._is_allowed(names_by_uuid[uuid]) for uuid in providers if uuid in names_by_uuid
        )

    def of_cells(self, needed_amounts: Mapping[str, int]) -> Amounts:
        """Return the CPUs and memory of `needed_amounts` on the cells where the guest has them.

        Empty where that does not follow from the facts: unknown cells, CPUs of both kinds, or sums
        that are not those of the request.
        """
        kinds = [name for name in CPU_CLASSES if needed_amounts.get(name)]
        cells = self.devices.cells
        if len(kinds) != 1 or not cells:
            return {}
        if sum(cell.vcpus for cell in cells) != needed_amounts[kinds[0]]:
            return {}
        if sum(cell.memory_mib for cell in cells) != needed_amounts.get("MEMORY_MB", 0):
            return {}
        amounts: MutableAmounts = {}
        for cell in cells:
            cpus = self.uuids.get(names.cell_name(self.root, cell.cell))
            memory = self.uuids.get(self._memory_name(cell.cell))
            if cpus is None or memory is None:
                return {}
            amounts.setdefault(cpus, {})[kinds[0]] = cell.vcpus
            amounts.setdefault(memory, {})["MEMORY_MB"] = cell.memory_mib
        return amounts

    def describe(self) -> str:
        """Where the guest is, for a message."""
        cells = [f"NUMA cell {cell.cell}" for cell in self.devices.cells]
        return ", ".join([*cells, *sorted(self._addresses)])

    @property
    def _addresses(self) -> set[str]:
        return {*self.devices.pci_addresses, *(mdev.parent for mdev in self.devices.mdevs)}

    def _memory_name(self, cell: int) -> str:
        size = self.devices.page_size_kib
        if size is None:
            return names.cell_name(self.root, cell)
        return names.pages_name(self.root, cell, size)

    def _is_allowed(self, name: str) -> bool:
        if names.is_cell(self.root, name):
            own = {names.cell_name(self.root, cell.cell) for cell in self.devices.cells}
            own |= {self._memory_name(cell.cell) for cell in self.devices.cells}
            return not own or name in own
        address = names.device_address(self.root, name)
        held_addresses = self._addresses
        # a function that is not a provider itself belongs to one that cannot be seen from here
        known_addresses = {
            names.device_address(self.root, provider_name) for provider_name in self.uuids
        }
        return (
            address is None
            or not held_addresses
            or not held_addresses <= known_addresses
            or address in held_addresses
        )


class Placing(Struct, eq=False):
    """Asks placement, and the agent of the host, where missing resources come from.

    :ivar devices_of: what a guest really holds; None where it is not known.
    :ivar overcommit: offer also what exceeds the capacity of providers, for placement to refuse.
    """

    report: ReportClient
    search: HostSearch
    directory: ProviderDirectory
    devices_of: Callable[[Instance], InstanceDevices | None]
    overcommit: bool
    knows_types: bool = False
    _trees: dict[str, ProviderTree] = {}
    _names: dict[str, dict[str, str]] = {}

    def __post_init__(self) -> None:
        for provider in self.directory.providers.values():
            self._names.setdefault(provider.root, {})[provider.name] = provider.uuid
        self.knows_types = self.report.connect().maximum >= CONSUMER_TYPE

    def may_serve(self, provider: str, group: RequestGroup) -> bool:
        """Whether a provider has the traits that a group asks for."""
        if not group.required and not group.forbidden:
            return True
        tree = self._tree(self.directory.root(provider))
        return group.accepts(tree.data(provider).traits if tree.exists(provider) else frozenset())

    def places(
        self,
        instance: Instance,
        spec: RequestSpec,
        root: str,
        coverage: Coverage,
        fixed_providers: Mapping[str, str],
    ) -> Iterator[PlacedResources]:
        """Ways to give an instance what is missing, the best first; at least one.

        :param fixed_providers: suffix of a group to the only provider that may serve it.
        :raises NotPlaced: there is none.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        missing_request = coverage.missing_request
        if missing_request is None:
            return
        facts = self._facts(instance, root)
        cell_amounts = _cells_given(missing_request, facts)
        missing_request = _without_cells(missing_request) if cell_amounts else missing_request
        if not missing_request.groups:
            yield PlacedResources(cell_amounts)
            return
        part = cell_amounts or coverage.partly
        answer = self.search.on_host(_without_numa(spec) if part else spec, missing_request, root)
        candidates = [
            candidate
            for candidate in answer.candidates
            if all(
                candidate.mappings.get(suffix, (uuid,)) == (uuid,)
                for suffix, uuid in fixed_providers.items()
            )
        ]
        allowed_candidates = [
            candidate
            for candidate in candidates
            if facts is None or facts.allows(candidate.allocations)
        ]
        if allowed_candidates:
            kept_providers = set(coverage.kept_amounts)
            # first those that stay on the providers the instance is on already
            for candidate in sorted(
                candidates_in_order(allowed_candidates, answer.providers),
                key=lambda candidate: len(set(candidate.allocations) - kept_providers),
            ):
                yield PlacedResources(
                    without_zeros(add(cell_amounts, candidate.allocations)),
                    {suffix: uuids[0] for suffix, uuids in candidate.mappings.items() if uuids},
                )
            return
        rooms = roomiest(missing_request, self._providers(root))
        # of shared disk alone no candidate can be offered: it is on no host
        is_disk_alone = set(missing_request.resources) == {"DISK_GB"}
        without_candidate = (
            is_disk_alone and UNSUFFIXED in missing_request.groups and not rooms.obstacles
        )
        if rooms.complete and (without_candidate or self.overcommit):
            yield PlacedResources(without_zeros(add(cell_amounts, rooms.amounts)), rooms.mappings)
            return
        raise NotPlaced(
            self._reason(instance, missing_request, rooms, candidates, facts, fixed_providers)
        )

    def _reason(
        self,
        instance: Instance,
        missing_request: CandidateRequest,
        rooms: RoomiestProviders,
        candidates: list[Candidate],
        facts: GuestFacts | None,
        fixed_providers: Mapping[str, str],
    ) -> str:
        begin = (
            f"host {instance.provider_name} cannot give it {resources(missing_request.resources)}"
        )
        if rooms.obstacles:
            return f"{begin}: {'; '.join(rooms.obstacles)}"
        if candidates and facts is not None:
            return f"{begin} where the guest is ({facts.describe()}): there is no room on those"
        if tied_suffixes := sorted(set(fixed_providers) & set(missing_request.groups)):
            port_texts = ", ".join(
                f"{suffix} on {fixed_providers[suffix]}" for suffix in tied_suffixes
            )
            return f"{begin} where its ports are bound ({port_texts})"
        return (
            f"{begin} on providers that belong together: each class has room somewhere, but "
            f"placement has no candidate for {missing_request.query()}"
        )

    def _facts(self, instance: Instance, root: str) -> GuestFacts | None:
        uuids = self._names[root]
        if len(uuids) == 1:
            return None
        devices = instance.devices or self.devices_of(instance)
        return None if devices is None else GuestFacts(devices, self.directory.name(root), uuids)

    def _providers(self, root: str) -> list[HostProvider]:
        tree = self._tree(root)
        return [
            HostProvider(
                uuid=data.uuid,
                name=data.name,
                traits=data.traits,
                capacity={name: int(capacity(record)) for name, record in data.inventory.items()},
                used=usage_of(self.report, data.uuid),
            )
            for data in map(tree.data, tree.get_provider_uuids())
        ]

    def _tree(self, root: str) -> ProviderTree:
        if root not in self._trees:
            self._trees[root] = self.report.get_provider_tree(root)
        return self._trees[root]


def _cells_given(missing_request: CandidateRequest, facts: GuestFacts | None) -> Amounts:
    """CPUs and memory where the guest has them; empty where that is not known."""
    suffixes = set().union(*missing_request.same_subtree)
    if facts is None or any(GUEST_CELL_SUFFIX.fullmatch(suffix) for suffix in suffixes):
        return {}
    return facts.of_cells(missing_request.group(UNSUFFIXED).resources)


def _without_cells(request: CandidateRequest) -> CandidateRequest:
    group = request.group(UNSUFFIXED)
    rest = {name: n for name, n in group.resources.items() if name not in CELL_CLASSES}
    # its traits are those of the CPUs, which the guest has
    return request.with_group(UNSUFFIXED, RequestGroup(rest))


def _without_numa(spec: RequestSpec) -> RequestSpec:
    """Return the specification without NUMA nodes, to which a part of it does not add up."""
    flavor, image = spec.flavor, spec.image
    specs = {key: text for key, text in flavor.extra_specs.items() if not key.startswith(_NUMA)}
    properties = {
        key: text for key, text in image.properties.items() if not key.startswith(_NUMA_PROPERTY)
    }
    return replace(
        spec,
        flavor=replace(flavor, extra_specs=specs),
        image=replace(image, properties=properties),
    )
