"""Nodes of this agent and their identity: the driver's list and the identity of the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.state import identity
from compute_agent.state.identity import IdentityDecision, Marker, Reporter, RootFacts
from compute_agent.tracker.place import MACHINE_ID, UNKNOWN, Place

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient
    from compute_agent.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)


class NodeSetup(Struct, eq=False):
    """Initialises the driver once and returns the nodes it manages, with their uuids.

    :ivar host: name of the service, for the driver.
    :ivar places: directories that may hold an identity file.
    :ivar place: where the agent runs.
    :ivar adopt_asked: the operator confirmed that a provider of this host's name is this host.
    :ivar write: False leaves the state directory as it is, for commands that only look.
    :ivar checking: surrounds what checks options, to report more about those that are wrong.
    """

    driver: ComputeDriver
    report: ReportClient
    host: str
    state_path: Path
    places: Sequence[Path]
    place: Place
    adopt_asked: bool = False
    write: bool = True
    checking: Callable[[], AbstractContextManager[None]] = nullcontext
    _has_begun: bool = False
    _is_initialised: bool = False
    _uuid: str | None = None
    _is_new: bool = False
    _is_of_this_machine: bool = False
    _name: str | None = None
    _new_name: str | None = None

    def check_files(self) -> None:
        """Look at the identity files before anything is connected to.

        :raises InvalidNodeConfiguration: they disagree, or the identity was lost.
        """
        if not self.driver.several_nodes:
            self._uuid = identity.find(self.places)
            identity.check_marker(
                self._uuid, identity.read_marker(self.state_path), self.state_path
            )

    def identity_file(self) -> Path | None:
        """Return the file that identifies this node; None: the driver does, or nothing yet."""
        return None if self.driver.several_nodes else identity.file_in(self.places)

    def nodes(self) -> dict[str, str]:
        """Return the nodes managed now, name to uuid.

        :raises InvalidNodeConfiguration: the host cannot determine who it is.
        :raises VirtDriverNotReady: the driver cannot list its nodes yet.
        :raises PlacementError: an identity has to be found in placement, which did not answer.
        """
        if not self._is_initialised:
            self._has_begun = True
            with self.checking():
                self.driver.init_host(self.host)
            self._is_initialised = True
        if self.driver.several_nodes:
            by_uuid = self.driver.get_nodenames_by_uuid(refresh=True)
            return {name: uuid for uuid, name in by_uuid.items()}
        names = list(self.driver.get_available_nodes(refresh=True))
        if len(names) != 1:
            raise errors.InvalidInput(
                f"The driver of a single node lists {len(names)} nodes: {', '.join(names)}. This "
                "is a defect of the driver."
            )
        name = self._steady_name(names[0])
        if self._uuid is None:
            self._uuid = self._found_in_placement(name)
        elif not self._is_of_this_machine:
            self._check_machine(self._uuid)
        self._is_of_this_machine = True
        return {name: self._uuid}

    @property
    def is_unwritten(self) -> bool:
        """Whether the uuid of the node is an example: the first start makes another one."""
        return self._is_new and not self.write

    def record_first_pass(self, uuid: str, name: str) -> None:
        """Record the first completed pass of a node: from now on a lost identity is an error."""
        if not self.driver.several_nodes:
            identity.write_marker(self.state_path, Marker(uuid, name, self.place.machine_id))

    def release(self) -> None:
        """Let the driver go."""
        if self._has_begun:
            self.driver.cleanup_host(self.host)
            self._has_begun = self._is_initialised = False

    def _steady_name(self, name: str) -> str:
        """Warn of a name that changes while the agent runs: it is followed at the next start."""
        if self._name is None:
            self._name = name
        elif name not in (self._name, self._new_name):
            self._new_name = name
            LOG.error(
                "The hypervisor now reports that this host is named %s. The name %s is kept until "
                "the agent is restarted.",
                name,
                self._name,
            )
        return self._name

    def _check_machine(self, uuid: str) -> None:
        """Check that the state directory is not that of another machine, which may still use it."""
        marker, machine_id = identity.read_marker(self.state_path), self.place.machine_id
        if marker is None or self.adopt_asked or UNKNOWN in (marker.machine_id, machine_id):
            return
        if marker.machine_id == machine_id:
            return
        guest_uuids = set(map(str, self.driver.list_instance_uuids() or ()))
        if guest_uuids & self.report.get_allocations_for_provider_tree(uuid).keys():
            return
        raise errors.InvalidNodeConfiguration(
            f"The state directory {self.state_path} is that of the host {marker.name} ({uuid}) on "
            f"the machine with the id {marker.machine_id}, and this machine has the id "
            f"{machine_id} ({MACHINE_ID}). If it is a copy, empty it, so that this host gets an "
            "identity of its own. If the host moved to this machine, as after a reinstallation, "
            "start once with --adopt."
        )

    def _found_in_placement(self, name: str) -> str:
        guest_uuids = self.driver.list_instance_uuids()
        root = self._root_named(name)
        adoption = identity.decide_adoption(
            root,
            guests=None if guest_uuids is None else frozenset(map(str, guest_uuids)),
            reporter=None if root is None else self._reporter_of(root.uuid),
            adopt_asked=self.adopt_asked,
        )
        if adoption.verdict is IdentityDecision.REFUSE:
            raise errors.InvalidNodeConfiguration(adoption.reason)
        uuid = adoption.uuid or str(uuid4())
        self._is_new = adoption.uuid is None
        if self.write:
            identity.write_compute_id(self.state_path, uuid)
            is_adopted = adoption.verdict is IdentityDecision.ADOPT
            LOG.log(
                logging.WARNING if is_adopted else logging.INFO,
                "Node %s has the uuid %s (%s), kept in %s.",
                name,
                uuid,
                "taken over from placement, which had a host of this name: if that is another "
                "machine, stop this agent and give one of both another name"
                if is_adopted
                else "new",
                self.state_path / identity.COMPUTE_ID,
            )
        return uuid

    def _root_named(self, name: str) -> RootFacts | None:
        provider = self.report.find_provider_by_name(name)
        if provider is None:
            return None
        facts = RootFacts(provider.uuid, name, provider.traits, provider.parent_uuid)
        if facts.why_no_host() is not None:
            return facts
        consumers = self.report.get_allocations_for_provider_tree(provider.uuid)
        return replace(facts, consumers=frozenset(consumers))

    def _reporter_of(self, root_uuid: str) -> Reporter | None:
        report = self.report.placement.trees.agent_reports([root_uuid]).get(root_uuid)
        if report is None:
            return None
        reporter = Place.of(report.place)
        at = report.at.isoformat(timespec="seconds")
        return Reporter(
            f"at {at}, from {reporter}",
            # one that still reports and was booted at another time is a clone
            is_same_machine=self.place.is_same_machine(reporter)
            and (report.is_silent or self.place.is_same(reporter)),
        )
