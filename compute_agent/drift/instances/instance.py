"""An instance as a source describes it: what it needs, where it runs; and what sources answer."""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.pci_address import pci_address
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.ports import groups_of_port
from compute_agent.request.spec import RequestSpec
from compute_agent.request.spec_reader import Fields, read_spec
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse

if TYPE_CHECKING:
    from compute_agent.placement.provider_directory import ProviderDirectory

PORT_ALLOCATION = "allocation"
"""Key of a port's binding profile that names the providers its resources come from."""


class Port(Struct, frozen=True):
    """A port that needs resources of its own.

    :ivar profile: its binding profile; what it has under `PORT_ALLOCATION` names providers.
    """

    uuid: str
    resource_request: Mapping[str, Any]
    profile: Mapping[str, Any] = {}

    @property
    def port_providers(self) -> dict[str, str]:
        """Group to the provider that the binding profile names for it; empty where it names none.

        The profile holds one uuid where the port asks in the old form, and uuids by group id
        where it asks in the extended one.
        """
        allocation = self.profile.get(PORT_ALLOCATION)
        if isinstance(allocation, Mapping):
            return {str(group): str(provider) for group, provider in allocation.items()}
        return {self.uuid: str(allocation)} if allocation else {}


class Instance(Struct, frozen=True):
    """One instance.

    :ivar host: name of the service that runs it, empty where none does.
    :ivar node: name of its node; empty: that of the host.
    :ivar unsettled_reason: why nothing is to be changed about it now; empty where something may be.
    :ivar spec: what it was asked for with, without its ports.
    :ivar devices: what of the host it really holds; None where the source does not know.
    """

    uuid: str
    host: str
    node: str
    spec: RequestSpec
    unsettled_reason: str = ""
    cell: str = ""
    ports: tuple[Port, ...] = ()
    devices: InstanceDevices | None = None

    @property
    def provider_name(self) -> str:
        """Name of the root provider of the node that it runs on."""
        return self.node or self.host

    def spec_with(self, ports: Iterable[Port]) -> RequestSpec:
        """Return what it needs altogether.

        :raises InvalidRequest: a port asks in neither of the forms there are.
        """
        groups, together = self.spec.requested_groups, self.spec.same_subtree
        for port in ports:
            more, subtrees = groups_of_port(port.uuid, port.resource_request)
            groups, together = groups + more, together | subtrees
        return replace(self.spec, requested_groups=groups, same_subtree=together)


class Listing(Struct, frozen=True):
    """What a source knew at one moment.

    :ivar known_consumers: consumers that exist.
    :ivar by_host: host to the instances that run there; empty where the source does not know.
    :ivar roots: host to the root providers it answers for.
    :ivar silent: root providers for which nobody answered: what holds something there may exist.
    :ivar untold: of these, the ones whose agent is there and does not list instances, and why.
    :ivar complete: the source knows every consumer there is, wherever it runs.
    :ivar knows_migrations: it also knows the consumers that stand for unfinished migrations.
    """

    known_consumers: frozenset[str]
    by_host: Mapping[str, frozenset[str]] = {}
    roots: Mapping[str, frozenset[str]] = {}
    silent: frozenset[str] = frozenset()
    untold: Mapping[str, str] = {}
    complete: bool = False
    knows_migrations: bool = False

    @property
    def answered_roots(self) -> frozenset[str]:
        """Roots for which an agent answered."""
        return frozenset().union(*self.roots.values())


class InstanceSource(Protocol):
    """Asked once for every look."""

    name: str

    def look(self, directory: ProviderDirectory) -> Listing:
        """Return what exists now.

        :raises ComputeAgentError: the source cannot be used.
        """

    def is_gone(self, uuid: str) -> bool:
        """Whether a consumer that was not listed does not exist, asked for it alone.

        :raises ComputeAgentError: it is not known.
        """


class InstanceCatalogue(Protocol):
    """Source of instances with what they need."""

    name: str

    def instances(self, only: str | None = None) -> Iterator[Instance]:
        """Every instance, or the one of uuid `only`; nothing where there is no such.

        :raises ComputeAgentError: they cannot be read.
        """


class PortSource(Protocol):
    """Source of the ports of instances.

    :ivar writable: whether `bind` reaches the ports, so that one without providers is a fault.
    """

    writable: bool

    def of(self, instance: Instance) -> tuple[Port, ...]:
        """Return the ports of an instance that need resources.

        :raises PortsUnreadable: it is not known which.
        """

    def bind(self, port: Port, profile: Mapping[str, Any]) -> None:
        """Give a port another binding profile.

        :raises PortNotWritten: it has the one it had.
        """


class PortsUnreadable(errors.ComputeAgentError):
    """The ports of an instance cannot be read, so that what it needs is not known."""


class PortNotWritten(errors.ComputeAgentError):
    """A port's binding profile could not be written."""


def instance_of(body: Mapping[str, Any]) -> Instance:
    """Return the instance of a JSON object; `etc/instances.jsonl.sample` shows its fields.

    :raises InvalidRequest: a field of the wrong type, or one that is missing.
    """
    fields = Fields(body)
    unsettled_reason = fields.text("unsettled") or (
        "it is deleted" if fields.flag("deleted") else ""
    )
    if fields.text("task_state"):
        unsettled_reason = unsettled_reason or f"its task state is {fields.text('task_state')}"
    if fields.flag("moving"):
        unsettled_reason = unsettled_reason or "a migration or resize of it is not finished"
    if not fields.text("host"):
        unsettled_reason = unsettled_reason or "it is on no host"
    return Instance(
        uuid=str(uuidlib.UUID(fields.text("uuid"))),
        host=fields.text("host"),
        node=fields.text("node"),
        spec=read_spec(body),
        unsettled_reason=unsettled_reason,
        cell=fields.text("cell"),
        ports=tuple(port_of(port.as_mapping()) for port in fields.objects("ports")),
        devices=devices_of(body["devices"]) if fields.has("devices") else None,
    )


def devices_of(body: Mapping[str, Any]) -> InstanceDevices:
    """Return what healing has to know of a guest's holdings, from what agents report of them.

    :raises InvalidRequest: a field of the wrong type.
    """
    fields = Fields(body, "devices")
    return InstanceDevices(
        cells=tuple(
            CellUse(cell.number("cell"), cell.number("vcpus"), cell.number("memory_mib"))
            for cell in fields.objects("cells")
        ),
        page_size_kib=fields.number("page_size_kib") or None,
        pci_addresses=tuple(pci_address(address) for address in fields.list("pci_addresses")),
        mdevs=tuple(
            MdevUse(None, pci_address(mdev.text("parent"))) for mdev in fields.objects("mdevs")
        ),
    )


def port_of(body: Mapping[str, Any]) -> Port:
    """Return a port as the Networking API shows it to an administrator.

    :raises InvalidRequest: no id, or a field of the wrong type.
    """
    fields = Fields(body, "port")
    uuid = fields.text("id")
    if not uuid:
        raise InvalidRequest(fields.name("id"), body.get("id"), "the uuid of a port")
    return Port(
        uuid=uuid,
        resource_request=fields.fields("resource_request").as_mapping(),
        profile=fields.fields("binding:profile").as_mapping(),
    )
