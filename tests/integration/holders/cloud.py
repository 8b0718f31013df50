"""The cloud of a history: the fleet of a burst on hypervisor hosts, its faults, and looks at it."""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import requests

from compute_agent.errors import ComputeAgentError
from tests.data import machines as catalogue
from tests.fixtures.libvirtd import running_libvirtd
from tests.fixtures.rabbitmq import RabbitMq
from tests.functional.agent.processes import HEADERS, AgentProcess
from tests.integration.burst.fleet import Fleet
from tests.integration.holders.contents import content_of
from tests.integration.holders.machines import CapturedMachine, Machine
from tests.integration.holders.model import Content, History, Look, Record


@dataclass
class HostFleet(Fleet):
    """A fleet whose hosts are machines."""

    machines: Sequence[Machine] = ()

    def _new_agent(self, host: str, **options: Any) -> AgentProcess:
        machine = next(machine for machine in self.machines if machine.name == host)
        machine.agent = machine.new_agent(self.directory / host, self.url, **options)
        machine.agent.configure(**machine.options())
        return machine.agent


class Cloud:
    """The fleet as clients have it, and all that is recorded of it.

    :ivar forgotten: what clients forgot, which the audit is to find.
    :ivar wrong: sentences.
    """

    def __init__(self, fleet: HostFleet) -> None:
        self.fleet = fleet
        self.hosts = {machine.name: machine for machine in fleet.machines}
        self.placements = [machine.placement for machine in fleet.machines]
        self.forgotten: list[Record] = []
        self.wrong: list[str] = []
        self._roots = fleet.roots()
        totals: dict[str, Content] = {}
        for machine in fleet.machines:
            totals[machine.claim_book] = totals[machine.libvirt] = machine.totals()
            totals[machine.placement] = {
                f"{name} of {provider['uuid']}": int(
                    (stock["total"] - stock["reserved"]) * stock["allocation_ratio"]
                )
                for provider in self._tree(machine)["providers"]
                for name, stock in provider["inventories"].items()
            }
        self.history = History(totals)

    def host_of_root(self, root: str) -> Machine:
        return next(self.hosts[name] for name, uuid in self._roots.items() if uuid == root)

    def write_instances(self) -> None:
        """Let agents that heal know which instances exist: all that are not gone or forgotten.

        A request that ends one may have to be repeated, and has to find it as it was.
        """
        moment = time.time()
        living = {h.consumer for h in self.history.holdings.copy() if h.gone == math.inf}
        living -= {h.consumer for record in self.forgotten.copy() for h in record.holdings}
        for machine in self.fleet.machines:
            written = machine.instances.with_suffix(".new")
            written.write_text("\n".join(sorted(living)))
            # what was made since is not judged by it, however long the writing took
            os.utime(written, (moment, moment))
            written.rename(machine.instances)

    # -- looks --------------------------------------------------------------------------------

    def look(self) -> list[Look]:
        """Look at every place, and record it; at those that answer."""
        looks = []
        for machine in self.hosts.values():
            for place, read in (
                (machine.libvirt, machine.guests),
                (machine.claim_book, lambda machine=machine: _claimed(machine)),
                (machine.placement, lambda machine=machine: self._allocated(machine)),
            ):
                begin = time.monotonic()
                # requests has errors of this kind, too
                with contextlib.suppress(libvirt.libvirtError, ComputeAgentError, OSError):
                    seen = read()
                    looks.append(Look(place, begin, time.monotonic(), seen))
        self.history.looks += looks
        return looks

    def _allocated(self, machine: Machine) -> dict[str, Content]:
        there = self.history.totals[machine.placement]
        return {
            consumer: {
                thing: amount
                for provider, held in record["allocations"].items()
                for name, amount in held["resources"].items()
                if (thing := f"{name} of {provider}") in there
            }
            for consumer, record in self._tree(machine)["allocations"].items()
        }

    def _tree(self, machine: Machine) -> Any:
        url = f"{self.fleet.url}/provider_trees/{self._roots[machine.name]}?include=allocations"
        answer = requests.get(url, headers=HEADERS, timeout=30)
        answer.raise_for_status()
        return answer.json()

    # -- faults -------------------------------------------------------------------------------

    def faults(self, dice: random.Random) -> Iterator[str]:
        """Kill something and start it again with each step, each part once in a round."""
        while True:
            round_of_faults: list[tuple[str, Callable[[], None]]] = [
                ("scheduler", lambda: self._kill_scheduler(dice.choice(self.fleet.schedulers))),
                ("placement", self._kill_placement),
            ]
            for machine in self.fleet.machines:
                round_of_faults.append(("agent", machine.kill_agent))
                round_of_faults.append(("libvirtd", machine.kill_libvirt))
            dice.shuffle(round_of_faults)
            for name, strike in round_of_faults:
                strike()
                yield name

    def _kill_scheduler(self, config: Path) -> None:
        self.fleet.kill_scheduler(config)
        self.fleet.start_scheduler(config)

    def _kill_placement(self) -> None:
        self.fleet.kill_placement()
        self.fleet.start_placement()


def _claimed(machine: Machine) -> dict[str, Content]:
    return {claim["consumer"]: content_of(claim) for claim in machine.agent.ask("claims")}


@contextlib.contextmanager
def running_cloud(
    directory: Path, database: str, broker: RabbitMq, machines: Sequence[Machine]
) -> Iterator[Cloud]:
    """Run machines with two schedulers for the length of the block."""
    for machine in machines:
        machine.instances.write_text("")
    fleet = HostFleet(directory, database, broker, machines=machines)
    with fleet.running(hosts=len(machines), schedulers=2):
        fleet.all_heard()
        yield Cloud(fleet)


@contextlib.contextmanager
def captured_machines(directory: Path, libvirt_directory: Path) -> Iterator[Sequence[Machine]]:
    """Run a nested host and a flat one."""
    with ExitStack() as ends:
        machines = []
        for number, is_nested in enumerate((True, False)):
            capture = catalogue.make("two-sockets", directory / f"captured{number}")
            name, instances = f"host{number}", directory / f"instances{number}"
            daemon = ends.enter_context(running_libvirtd(libvirt_directory, capture, name))
            machines.append(CapturedMachine(name, instances, daemon, is_nested=is_nested))
        yield machines
