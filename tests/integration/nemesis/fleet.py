"""The nemesis of a fleet: standstills, clocks and full disks of agents, schedulers and the bus.

    python -m tests.integration.nemesis.fleet --hosts 6 --claims 120 --longest 60 --seed 1

It is the burst of `tests/integration/burst` with its reckoning, and other faults.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import psutil

from tests.fixtures import clocks
from tests.fixtures.clocks import Clock
from tests.fixtures.databases import mariadb_missing, postgresql_missing
from tests.fixtures.private_databases import FleetParts, fleet_parts, print_wrong
from tests.fixtures.rabbitmq import rabbitmq_missing
from tests.integration.burst.burst import Trouble, reckon, run
from tests.integration.burst.fleet import Fleet
from tests.integration.nemesis.machine import stopped
from tests.integration.nemesis.small_disk import SmallDisk, mounts_of_our_own

_PARTS: Final = ("placement", "agent", "scheduler")
_STEPS: Final = (3600, -3600)


@dataclass
class FleetTrouble(Trouble):
    """Every fault once a round, in a drawn order, evenly over the claims.

    :ivar longest: seconds for which something stands still at most.
    :ivar clocks: by part.
    :ivar disks: by what is on them.
    """

    longest: float = 3.0
    rounds: int = 1
    clocks: dict[str, Clock] = field(default_factory=dict)
    disks: dict[str, SmallDisk] = field(default_factory=dict)

    def schedule(self) -> list[tuple[float, Callable[[], str]]]:
        faults: list[Callable[[], str]] = [self.stop_broker]
        faults += (partial(self.stop, part) for part in _PARTS)
        faults += (partial(self.step_clock, part) for part in self.clocks)
        faults += (partial(self.fill_disk, content) for content in self.disks)
        drawn: list[Callable[[], str]] = []
        for _ in range(self.rounds):
            self.rng.shuffle(faults)
            drawn += faults
        return [(0.1 + 0.8 * number / len(drawn), fault) for number, fault in enumerate(drawn)]

    def pause(self) -> float:
        return self.rng.uniform(self.longest / 4, self.longest)

    def stop_broker(self) -> str:
        seconds = self.pause()
        with self.fleet.broker.stopped():
            time.sleep(seconds)
        return f"the broker stopped for {seconds:.1f} s"

    def stop(self, part: str) -> str:
        """A process of a part stands still, with its children."""
        seconds = self.pause()
        main = psutil.Process(self.rng.choice(self.fleet.pids(part)))
        with stopped([main, *main.children(recursive=True)]):
            time.sleep(seconds)
        return f"{part} stopped for {seconds:.1f} s"

    def step_clock(self, part: str) -> str:
        """The clock of a part is an hour off for a while."""
        step, seconds = self.rng.choice(_STEPS), self.pause()
        self.clocks[part].set(step)
        time.sleep(seconds)
        self.clocks[part].set(0)
        return f"clock of {part} {step} s ahead for {seconds:.1f} s"

    def fill_disk(self, content: str) -> str:
        """A disk is full for a while."""
        seconds = self.pause()
        with self.disks[content].full():
            time.sleep(seconds)
        return f"disk of {content} full for {seconds:.1f} s"


def main() -> int:
    """Run one burst and print what happened; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.nemesis.fleet")
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--schedulers", type=int, default=2)
    parser.add_argument("--claims", type=int, default=120)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of one standstill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", action="store_true", help="the faults of the burst instead")
    help_of_published = "against the published openstack-placement, on MariaDB"
    parser.add_argument("--published", action="store_true", help=help_of_published)
    options = parser.parse_args()
    no_database = mariadb_missing() if options.published else postgresql_missing()
    for missing in (no_database, rabbitmq_missing()):
        if missing:
            parser.error(missing)
    may_mount = mounts_of_our_own()
    kind = "mariadb" if options.published else "postgresql"
    with fleet_parts("nemesis", kind) as parts, ExitStack() as disks:
        wrong = _run(parts, disks, options, may_mount=may_mount)
    print_wrong(wrong)
    return bool(wrong)


def _run(
    parts: FleetParts, stack: ExitStack, options: argparse.Namespace, *, may_mount: bool
) -> list[str]:
    directory = parts.directory
    with_clock = _PARTS if clocks.missing() is None else ()
    clock_of = {part: Clock(directory / f"clock-{part}") for part in with_clock}
    disks = {}
    if may_mount:
        disks["the state directory of an agent"] = SmallDisk(directory / "host1" / "state", 1)
        disks["the journal"] = SmallDisk(directory / "scheduler0" / "journals", 1)
        for disk in disks.values():
            stack.callback(disk.unmount)

    def environment(part: str) -> dict[str, str]:
        # a preloaded library needs a process that is started, not forked
        return {**clock_of[part].environment, "PRELOADED": "no"} if part in clock_of else {}

    def trouble(fleet: Fleet, rng: random.Random) -> FleetTrouble:
        return FleetTrouble(
            fleet, rng, longest=options.longest, rounds=options.rounds, clocks=clock_of, disks=disks
        )

    fleet = Fleet(*parts, published=options.published, environment=environment)
    begun = time.monotonic()
    with fleet.running(options.hosts, options.schedulers):
        outcome, made = run(
            fleet,
            options.claims,
            at_once=options.at_once,
            seed=options.seed,
            make_trouble=Trouble if options.kills else trouble,
        )
        wrong = reckon(fleet, outcome)
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{outcome}, in {seconds:.0f} s\n")
    sys.stdout.write("".join(f"  fault: {what}\n" for what in made.happened))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
