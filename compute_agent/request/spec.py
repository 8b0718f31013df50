"""Request specifications: the fields that the scheduler reads.

Values only. `spec_reader` makes them from JSON; `flavor` and `prefilters` turn them into a
question to placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from compute_agent.request.candidate_request import RequestGroup


class Flavor(Struct, frozen=True):
    """Sizes of an instance: `memory_mb` and `swap` in MiB, disks in GiB."""

    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = {}
    name: str = ""


class Image(Struct, frozen=True):
    """The image an instance boots from; `properties` as the image service names them."""

    id: str = ""
    properties: Mapping[str, str] = {}
    disk_format: str = ""


class Destination(Struct, frozen=True):
    """The destination that the caller wants; empty strings where any will do.

    `aggregates`: sets of aggregates, the host must be in one of each. `cell`: the one to be in,
    or, with `allow_cross_cell_move`, to be in rather than in another.
    """

    host: str = ""
    node: str = ""
    aggregates: frozenset[frozenset[str]] = frozenset()
    forbidden_aggregates: frozenset[str] = frozenset()
    cell: str = ""
    allow_cross_cell_move: bool = False


class InstanceGroup(Struct, frozen=True):
    """A server group: its policy, the hosts its members run on, and the members."""

    policy: str = ""
    rules: Mapping[str, int] = {}
    hosts: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()


class RequestedGroup(NamedTuple):
    """A request group from outside the flavor: a port, an accelerator, a device.

    `requester_id` becomes the suffix unchanged, so that its requester finds its provider in the
    mappings of the claim.
    """

    requester_id: str
    group: RequestGroup


class PciRequest(Struct, frozen=True):
    """Devices requested by the name of an alias."""

    request_id: str
    alias_name: str
    count: int = 1


class RequestedNetwork(Struct, frozen=True):
    """A network or port of the request.

    `physnet` and `is_tunneled`: how it leaves the host, for guests that must be near.
    """

    physnet_aggregates: frozenset[str] = frozenset()
    remote_managed: bool = False
    physnet: str = ""
    is_tunneled: bool = False


class GuestCell(Struct, frozen=True):
    """One NUMA node of the guest from the caller; memory in MiB.

    `page_size`: as the extra spec `hw:mem_page_size` has it, empty for the usual pages.
    """

    shared_cpus: int
    pinned_cpus: int
    memory_mb: int
    page_size: str = ""


class RequestSpec(Struct, frozen=True):
    """One request, for one or more instances of the same kind.

    `instance`: the one that is there already, where the caller names it.
    """

    project_id: str
    user_id: str
    flavor: Flavor = Flavor()
    image: Image = Image()
    is_bfv: bool = False
    availability_zone: str = ""
    destination: Destination = Destination()
    ignore_hosts: frozenset[str] = frozenset()
    force_hosts: frozenset[str] = frozenset()
    force_nodes: frozenset[str] = frozenset()
    retried_hosts: frozenset[str] = frozenset()
    instance_group: InstanceGroup | None = None
    unsuffixed_group: RequestGroup = field(default_factory=RequestGroup)
    guest_cells: tuple[GuestCell, ...] = ()
    requested_groups: tuple[RequestedGroup, ...] = ()
    pci_requests: tuple[PciRequest, ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: frozenset[frozenset[str]] = frozenset()
    requested_networks: tuple[RequestedNetwork, ...] = ()
    scheduler_hints: Mapping[str, tuple[str, ...]] = {}
    instance: str = ""
    consumer_type: str = "INSTANCE"

    def flavor_setting(self, name: str) -> str | None:
        """Return a `hw:` or `os:` setting of the flavor."""
        return self.flavor.extra_specs.get(name)

    def image_setting(self, name: str) -> str | None:
        """Return a setting of the image, where it is the property `hw_` or `os_`."""
        return self.image.properties.get(name.replace(":", "_", 1))

    def setting(self, name: str) -> str | None:
        """Return a setting: the flavor's, else the image's."""
        value = self.flavor_setting(name)
        return self.image_setting(name) if value is None else value

    @property
    def realtime_mask(self) -> str | None:
        """The CPUs with a realtime policy; an image narrows what the flavor has."""
        name = "hw:cpu_realtime_mask"
        return self.image_setting(name) or self.flavor_setting(name)

    @property
    def page_size(self) -> str | None:
        """The size of the pages, or a wish for one: of the settings, else of the guest's cells.

        An image has one only where the flavor leaves the choice to it.
        """
        name = "hw:mem_page_size"
        size = self.image_setting(name) or self.flavor_setting(name)
        return size or next((cell.page_size for cell in self.guest_cells if cell.page_size), None)

    def group_of(self, *policies: str) -> InstanceGroup | None:
        """Return the server group if it has one of these policies."""
        group = self.instance_group
        return group if group is not None and group.policy in policies else None

    def names_group_host(self, host: str) -> bool:
        """Return whether the caller knows of another member of the group on a host.

        An instance that moves may be the only member there: then the host is asked who is.
        """
        group = self.instance_group
        return group is not None and host in group.hosts and self.instance not in group.members

    def hint(self, name: str) -> tuple[str, ...]:
        """Return the values of a scheduler hint, empty without one."""
        return self.scheduler_hints.get(name, ())
