"""Guests from build to delete: a conductor over a scheduler, the agents of hosts, and libvirt.

python conductor.py SCHEDULER.conf 'qemu+ssh://{host}/system' build SPEC.json INSTANCE

The scheduler claims a host in placement, the agent of that host gives named units for the claim,
and libvirt starts the guest with just these. If a host cannot, its agent is notified, and the next
one is claimed. The service of each agent (`[DEFAULT]host`) has the name of its hypervisor here.
"""

import argparse
import contextlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hosts import AgentsOnBus, AgentsOnSockets, HostFailed, Libvirt

from compute_agent.scheduler.python_api import LifeCycle, MoveKind, MoveStart, connect, read_spec

LOG = logging.getLogger(__name__)

Spec = Mapping[str, Any]
"""A request, as `read_spec` and `instance_claim` take it."""
Mappings = Mapping[str, Iterable[str]]


class Place(NamedTuple):
    """A host: the name of its hypervisor, and the uuid of its root provider."""

    host: str
    root: str


class Conductor:
    """The steps of a guest's life.

    :param agents: calls of the agents of hosts, which raise `HostFailed`.
    :param hypervisors: starts and ends guests on hosts, and raises `HostFailed`.
    """

    def __init__(
        self, scheduler: LifeCycle, agents: AgentsOnBus | AgentsOnSockets, hypervisors: Libvirt
    ) -> None:
        self._scheduler = scheduler
        self._agents = agents
        self._hypervisors = hypervisors

    def build(self, spec: Spec, instance: str) -> Place:
        """Start a guest on the best host that can; return where.

        :raises NoValidHost: there is none; the instance holds nothing.
        """
        claim, tried = self._scheduler.claim(read_spec(spec), instance), []
        while True:
            try:
                self._start(claim.host, spec, instance, claim.mappings)
            except HostFailed as failure:
                LOG.warning("%s cannot start %s: %s", claim.host, instance, failure)
                tried.append(claim.host)
                claim = self._scheduler.reschedule(read_spec(spec), instance, tried)
            else:
                return Place(claim.host, claim.root)

    def move(self, spec: Spec, instance: str, source: Place) -> Place:
        """Start a guest on another host instead, and here again where that one cannot.

        :raises NoValidHost: there is no other.
        :raises HostFailed: the other cannot; the guest is on its source with what it had.
        """
        elsewhere = read_spec({**spec, "ignore_hosts": [source.host]})
        begun = self._scheduler.begin_move(MoveKind.COLD, elsewhere, instance, str(uuid.uuid4()))
        try:
            self._hypervisors.end(source.host, instance)
        except HostFailed:
            self._scheduler.revert_move(begun.move)
            raise
        try:
            place = self._start_moved(begun, spec, instance)
        except HostFailed:
            mappings = self._scheduler.revert_move(begun.move)
            self._start(source.host, spec, instance, mappings)
            raise
        self._forget(source.host, instance)
        self._scheduler.confirm_move(begun.move)
        return place

    def evacuate(self, spec: Spec, instance: str, source: Place) -> Place:
        """Start a guest elsewhere whose host is dead, and fenced.

        :raises NoValidHost: there is no other host.
        :raises HostFailed: the other cannot; the instance holds its source as before.
        """
        begun = self._scheduler.evacuate(read_spec(spec), instance, source.root)
        try:
            return self._start_moved(begun, spec, instance)
        except HostFailed:
            self._scheduler.revert_move(begun.move)
            raise

    def source_returned(self, instance: str, source: Place) -> None:
        """Take what is left of an evacuated guest off its old host, which is back."""
        self.clean(instance, source.host)
        self._scheduler.source_returned(instance, source.root)

    def delete(self, instance: str, host: str) -> None:
        """End a guest, and release what it held."""
        self.clean(instance, host)
        self._scheduler.delete(instance)

    def local_delete(self, instance: str) -> None:
        """Release what a guest holds whose host is away; `clean` that host when it is back.

        :raises MoveRefused: its agent is alive.
        """
        self._scheduler.local_delete(instance)

    def clean(self, instance: str, host: str) -> None:
        """Let a host be without a guest and without its units."""
        self._hypervisors.end(host, instance)
        self._agents(host, "drop_claim", instance=instance)

    def _start_moved(self, begun: MoveStart, spec: Spec, instance: str) -> Place:
        [selection] = begun.selections
        mappings = json.loads(selection.allocation_request)["mappings"]
        self._start(selection.nodename, spec, instance, mappings)
        return Place(selection.nodename, selection.compute_node_uuid)

    def _start(self, host: str, spec: Spec, instance: str, mappings: Mappings) -> None:
        request = {**spec, "instance_uuid": instance}
        groups = {group: list(uuids) for group, uuids in mappings.items()}
        given = self._agents(host, "instance_claim", spec=request, mappings=groups)
        try:
            self._hypervisors.start(host, instance, spec, given)
        except HostFailed as failure:
            # counts against the host, which is disabled after some failures in a row
            self._forget(host, instance, error=str(failure))
            raise

    def _forget(self, host: str, instance: str, error: str = "") -> None:
        # an agent that does not answer drops the claim when it compares its guests with placement
        with contextlib.suppress(HostFailed):
            self._agents(host, "drop_claim", instance=instance, error=error)


STEPS = {
    "build": ["spec", "instance"],
    "move": ["spec", "instance", "place"],
    "evacuate": ["spec", "instance", "place"],
    "source_returned": ["instance", "place"],
    "delete": ["instance", "host"],
    "local_delete": ["instance"],
    "clean": ["instance", "host"],
}
"""What each step is called with, on the command line too."""
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "spec": {"type": lambda path: json.loads(Path(path).read_text()), "help": "file of a request"},
    "place": {"nargs": 2, "metavar": ("HOST", "ROOT"), "help": "as a step before has printed it"},
}


def main() -> None:
    """Do one step, and print where the guest is now."""
    parser = argparse.ArgumentParser(description="Bring a guest through its life.")
    parser.add_argument("config", type=Path, help="configuration of compute-scheduler")
    parser.add_argument("address", help="libvirt of a host, such as qemu+ssh://{host}/system")
    parser.add_argument("--virt-type", default="kvm", help="qemu: guests without KVM")
    steps = parser.add_subparsers(dest="step", required=True)
    for name, arguments in STEPS.items():
        step = steps.add_parser(name)
        for argument in arguments:
            step.add_argument(argument, **ARGUMENTS.get(argument, {}))
    given = parser.parse_args()
    agents, guests = AgentsOnBus(given.config), Libvirt(given.address, given.virt_type)
    conductor = Conductor(connect(str(given.config)), agents, guests)
    if "place" in given:
        given.place = Place(*given.place)
    place = getattr(conductor, given.step)(*(getattr(given, name) for name in STEPS[given.step]))
    if place is not None:
        print(*place)


if __name__ == "__main__":
    main()
