"""Healer of one instance: it gets the allocations that it should have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.drift.healing.coverage import Coverage, cover
from compute_agent.drift.healing.placement_choice import NotPlaced, PlacedResources, Placing
from compute_agent.drift.instances.instance import (
    PORT_ALLOCATION,
    Instance,
    Port,
    PortNotWritten,
    PortSource,
    PortsUnreadable,
)
from compute_agent.placement import provider_directory
from compute_agent.placement.allocations.allocations import INSTANCE, UNTYPED
from compute_agent.placement.allocations.amounts import (
    Amounts,
    add,
    as_request,
    of_record,
    without_zeros,
)
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.request import flavor
from compute_agent.request.errors import SchedulerError
from compute_agent.request.pci_aliases import pci_aliases
from compute_agent.request.ports import binding_allocation
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.placement.provider_directory import ProviderDirectory
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.report.client import ReportClient
    from compute_agent.virt.driver import InstanceDevices

TRIES = 3
PLACES_TRIED = 8
"""Candidates that are tried when others take what placement has just offered."""
ACCELERATORS = "accel:device_profile"
_ALIAS = "pci_passthrough:alias"


class State(Enum):
    """What became of an instance."""

    WHOLE = "nothing to heal"
    HEALED = "healed"
    SKIPPED = "skipped"
    NO_NODE = "has no compute node"
    FAILED = "could not be healed"
    PORTS_UNREADABLE = "has ports that could not be read"
    PORT_FAILED = "has a port that could not be updated"
    ROLL_BACK_FAILED = "has ports that could not be put back"
    ACCELERATORS = "needs accelerators"


class Outcome(Struct, frozen=True):
    """What was, or would be, done for an instance.

    :ivar after: its allocations when it is healed, or as they are.
    :ivar surplus: what of `before` nothing asks for.
    :ivar bindings: port to what its binding profile is to have under `allocation`.
    """

    instance: Instance
    state: State
    detail: str = ""
    before: Amounts = {}
    after: Amounts = {}
    surplus: Amounts = {}
    bindings: Mapping[str, str | dict[str, str]] = {}
    owner_changed: bool = False


class Healer(Struct, eq=False):
    """Heals one instance at a time.

    :ivar ports: who knows, and may write, the ports of instances.
    :ivar request_options: how a need is made of a flavor.
    :ivar force: take away what nothing asks for.
    :ivar with_ports: heal what ports need too.
    """

    report: ReportClient
    directory: ProviderDirectory
    placing: Placing
    ports: PortSource
    request_options: flavor.RequestOptions
    force: bool
    with_ports: bool
    _roots: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        self._roots = {provider.name: provider.uuid for provider in self.directory.roots}

    def heal(self, instance: Instance, *, dry_run: bool) -> Outcome:
        """Bring an instance's allocations to what it needs, or report why not.

        :param dry_run: only find out what would be done.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        if instance.unsettled_reason:
            return Outcome(instance, State.SKIPPED, instance.unsettled_reason)
        if ACCELERATORS in instance.spec.flavor.extra_specs and not instance.spec.requested_groups:
            profile = instance.spec.flavor.extra_specs[ACCELERATORS]
            detail = f"what device profile {profile!r} stands for is not known here"
            return Outcome(instance, State.ACCELERATORS, detail)
        root = self._roots.get(instance.provider_name)
        if root is None:
            detail = f"placement has no root provider named {instance.provider_name!r}"
            return Outcome(instance, State.NO_NODE, detail)
        try:
            ports = self.ports.of(instance) if self.with_ports else ()
            return self._heal_on(instance, root, ports, dry_run=dry_run)
        except PortsUnreadable as error:
            return Outcome(instance, State.PORTS_UNREADABLE, str(error))
        except errors.PlacementUnavailable:
            raise
        except (SchedulerError, NotPlaced, errors.PlacementError) as error:
            return Outcome(instance, State.FAILED, str(error))

    def _heal_on(
        self, instance: Instance, root: str, ports: Sequence[Port], *, dry_run: bool
    ) -> Outcome:
        for _ in range(TRIES - 1):
            try:
                return self._attempt(instance, root, ports, dry_run=dry_run)
            except errors.AllocationUpdateFailed:
                # another writer changed the instance meanwhile: what it holds is looked at again
                continue
        return self._attempt(instance, root, ports, dry_run=dry_run)

    def _attempt(
        self, instance: Instance, root: str, ports: Sequence[Port], *, dry_run: bool
    ) -> Outcome:
        spec = self._spec(instance, ports)
        need = flavor.request_of(spec, self.request_options)
        record = self.report.placement.allocations.get_allocs_for_consumer(instance.uuid)
        held_amounts = of_record(record)
        here = {
            uuid: own
            for uuid, own in held_amounts.items()
            if self.directory.root(uuid) == root or self.directory.is_shared(uuid)
        }
        fixed_providers = {
            suffix: uuid for port in ports for suffix, uuid in port.port_providers.items()
        }
        coverage = cover(
            need, here, fixed_providers=fixed_providers, may_serve=self.placing.may_serve
        )
        elsewhere = {uuid: own for uuid, own in held_amounts.items() if uuid not in here}
        surplus = without_zeros(add(coverage.surplus, elsewhere))
        found_instance = _ReadInstance(instance, ports, record, held_amounts, coverage, surplus)
        if coverage.missing_request is None:
            return self._settle(found_instance, PlacedResources(), dry_run=dry_run)
        outcome = Outcome(instance, State.FAILED)
        places = self.placing.places(instance, spec, root, coverage, fixed_providers)
        for place in islice(places, PLACES_TRIED):
            outcome = self._settle(found_instance, place, dry_run=dry_run)
            if outcome.state is not State.FAILED:
                break
        return outcome

    def _settle(self, reading: _ReadInstance, place: PlacedResources, *, dry_run: bool) -> Outcome:
        """Write what is to be written, if anything is."""
        rest = {} if self.force else reading.surplus
        after = without_zeros(add(reading.coverage.kept_amounts, rest, place.amounts))
        profiles = self._profiles(reading, {**reading.coverage.mappings, **place.mappings})
        outcome = Outcome(
            reading.instance,
            State.HEALED,
            before=reading.held_amounts,
            after=after,
            surplus=reading.surplus,
            bindings={port.uuid: profile[PORT_ALLOCATION] for port, profile in profiles},
            owner_changed=reading.owner_changed,
        )
        has_changed = after != reading.held_amounts or reading.owner_changed
        unbound = profiles if self.ports.writable else ()
        if not has_changed and not unbound:
            return replace(outcome, state=State.WHOLE, bindings={})
        if dry_run:
            return outcome
        return self._write(reading, outcome, unbound, has_changed=has_changed)

    def _write(
        self,
        reading: _ReadInstance,
        outcome: Outcome,
        profiles: Sequence[tuple[Port, Mapping[str, Any]]],
        *,
        has_changed: bool,
    ) -> Outcome:
        written_ports: list[Port] = []
        try:
            for port, profile in profiles:
                self.ports.bind(port, profile)
                written_ports.append(port)
            refusal = self._put(reading, outcome.after) if has_changed else None
        except PortNotWritten as error:
            return self._rolled_back(outcome, State.PORT_FAILED, str(error), written_ports)
        except errors.PlacementError as error:
            undone = self._rolled_back(outcome, State.FAILED, str(error), written_ports)
            if undone.state is State.ROLL_BACK_FAILED:
                return undone
            raise
        if refusal is not None:
            return self._rolled_back(outcome, State.FAILED, refusal, written_ports)
        return outcome

    def _put(self, reading: _ReadInstance, after: Amounts) -> str | None:
        """Write the allocations; why placement has no room for them, None where it has."""
        record = {
            **reading.record,
            "allocations": as_request(after),
            "project_id": reading.instance.spec.project_id,
            "user_id": reading.instance.spec.user_id,
        }
        if self.placing.knows_types and record.get("consumer_type", UNTYPED) == UNTYPED:
            record["consumer_type"] = INSTANCE
        answer = self.report.placement.allocations.put_allocations(reading.instance.uuid, record)
        if answer is None:
            return None
        where = self.directory.name(answer.provider) if answer.provider else "a provider"
        return (
            f"placement has no room for {answer.resource_class or 'a resource class'} on {where} "
            f"({answer.provider or 'which it does not name'}): {answer.detail}"
        )

    def _rolled_back(
        self, outcome: Outcome, state: State, detail: str, written_ports: Sequence[Port]
    ) -> Outcome:
        """Give the ports back the profiles they had, and return the outcome."""
        failed_outcome = replace(
            outcome, state=state, detail=detail, after=outcome.before, bindings={}
        )
        unrestored_ports = {}
        for port in written_ports:
            try:
                self.ports.bind(port, port.profile)
            except PortNotWritten as error:
                unrestored_ports[port.uuid] = str(error)
        if not unrestored_ports:
            return failed_outcome
        kept_bindings = {
            uuid: value for uuid, value in outcome.bindings.items() if uuid in unrestored_ports
        }
        port_texts = "; ".join(
            f"port {uuid}: {reason}" for uuid, reason in unrestored_ports.items()
        )
        detail = f"{detail}; and these ports have kept the new binding profile: {port_texts}"
        return replace(
            failed_outcome, state=State.ROLL_BACK_FAILED, detail=detail, bindings=kept_bindings
        )

    def _profiles(
        self, reading: _ReadInstance, mappings: Mapping[str, str]
    ) -> list[tuple[Port, dict[str, Any]]]:
        """Return the ports whose profile does not name their providers, with one that does."""
        providers_of = {suffix: [uuid] for suffix, uuid in mappings.items()}
        profiles = []
        for port in reading.ports:
            allocation = binding_allocation(port.uuid, port.resource_request, providers_of)
            if port.profile.get(PORT_ALLOCATION) != allocation:
                profiles.append((port, {**port.profile, PORT_ALLOCATION: allocation}))
        return profiles

    def _spec(self, instance: Instance, ports: Sequence[Port]) -> RequestSpec:
        spec = instance.spec_with(ports)
        if self.request_options.pci_aliases is not None:
            return spec
        # devices by alias are not counted in placement, so nothing is to be held for them
        extra_specs = {
            name: text for name, text in spec.flavor.extra_specs.items() if name != _ALIAS
        }
        return replace(spec, flavor=replace(spec.flavor, extra_specs=extra_specs), pci_requests=())


class _ReadInstance(Struct, frozen=True):
    """An instance as it was found.

    :ivar surplus: what it holds and nothing asks for, here and on other hosts.
    """

    instance: Instance
    ports: Sequence[Port]
    record: Mapping[str, Any]
    held_amounts: Amounts
    coverage: Coverage
    surplus: Amounts

    @property
    def owner_changed(self) -> bool:
        spec = self.instance.spec
        own = (self.record.get("project_id"), self.record.get("user_id"))
        return bool(self.held_amounts) and own != (spec.project_id, spec.user_id)


def healer_of(
    conf: cfg.ConfigOpts,
    way: Transport,
    report: ReportClient,
    ports: PortSource,
    *,
    devices_of: Callable[[Instance], InstanceDevices | None],
    force: bool = False,
    with_ports: bool = True,
    overcommit: bool = False,
) -> Healer:
    """Return a healer that knows the providers of this moment.

    :param way: to placement, which `report` uses too.
    :param devices_of: what a guest really holds; None where nobody can tell.
    :param force: take away what nothing asks for.
    :param with_ports: heal what ports need too.
    :param overcommit: ask for what exceeds the capacity of providers, for placement to refuse.
    :raises PlacementError: placement cannot be used.
    """
    report.connect()
    pci_is_counted = conf.filter_scheduler.pci_in_placement
    request = flavor.RequestOptions(
        limit=conf.scheduler.max_placement_results,
        pci_aliases=pci_aliases(conf.pci.alias) if pci_is_counted else None,
    )
    directory = provider_directory.read(PlacementApi(Connection(way)))
    placing = Placing(
        report,
        HostSearch(PlacementClient(way), HostSearchOptions(request=request)),
        directory,
        devices_of,
        overcommit,
    )
    return Healer(report, directory, placing, ports, request, force, with_ports)
