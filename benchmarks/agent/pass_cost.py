"""Server CPU of a pass of a quiet fleet, beside that of the same request sent by one client.

Three things take turns while the agents are left alone: passes of the fleet as they come, passes
that no other process interrupts, and requests of one client to a second server. Of each the best
part counts, as other work of the machine only ever adds to the CPU.

A worker is not interrupted while its threads have real-time priority; that needs CAP_SYS_NICE.
Nothing here is judged: between two passes the server has nothing to do, and other work empties the
caches. `large_fleet` measures a server that is as busy as with 100,000 hosts.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.agent.large_fleet import HOSTS
from benchmarks.parts.servers import Server, family
from benchmarks.server.trees import Meter, machine

WINDOW_PASSES = 200
"""Passes of a turn."""
_REQUESTS = 60
"""Requests of one client in a turn."""


@dataclass
class PassCost:
    """CPU seconds of the server for a pass.

    :ivar undisturbed: infinite where real-time priority is not permitted.
    :ivar alone: of a 304 that one client asks for.
    """

    period: float
    as_they_come: float = math.inf
    undisturbed: float = math.inf
    alone: float = math.inf
    turns: int = 0
    passes: int = 0
    _total: float = field(default=0.0, repr=False)

    def add(self, *, is_undisturbed: bool, passes: int, cpu: float) -> None:
        """Count what one turn had."""
        if not passes:
            return
        self.turns += 1
        if is_undisturbed:
            self.undisturbed = min(self.undisturbed, cpu / passes)
        else:
            self.as_they_come = min(self.as_they_come, cpu / passes)
            self.passes += passes
            self._total += cpu

    def cores(self, cost: float) -> float:
        """What a large fleet needs with this cost of a pass."""
        return HOSTS / self.period * cost

    def note(self) -> str:
        """Say what was measured and what it makes of a large fleet."""
        mean = self._total / self.passes if self.passes else math.nan
        costs = [
            ("304 of one client", self.alone),
            ("pass as they come", self.as_they_come),
            ("pass that nothing interrupts", self.undisturbed),
        ]
        texts = [
            f"{title} {1000 * cost:.2f} ms = {self.cores(cost):.2f} cores"
            for title, cost in costs
            if cost < math.inf
        ]
        return (
            f"server CPU and cores for {HOSTS:,} hosts, best of {self.turns} turns: "
            f"{', '.join(texts)}; {1000 * mean:.2f} ms a pass on average of {self.passes}"
        )


def measure(
    passes: Callable[[], int],
    server: Server,
    beside: Server,
    seconds: float,
    period: float,
    turn: float,
) -> PassCost:
    """Watch a fleet for so many seconds.

    :param passes: how many its agents have completed so far.
    :param beside: a server that the fleet does not use.
    :param turn: seconds of a turn.
    """
    cost = PassCost(period)
    meter = Meter(beside)
    providers = machine()
    path = f"/provider_trees/{providers[0]['uuid']}"
    tag = meter.send("PUT", path, {"providers": providers}, If_None_Match="*")[0]

    def ask() -> None:
        meter.send("GET", path, If_None_Match=tag)

    ends = time.monotonic() + seconds
    is_undisturbed = False
    while time.monotonic() < ends:
        cost.alone = min(cost.alone, meter.cost(_REQUESTS, ask).cpu_ms / 1000)
        left = max(0.0, ends - time.monotonic())
        with undisturbed(server) if is_undisturbed else contextlib.nullcontext(True) as permitted:
            done, cpu = passes(), server.cpu_seconds()
            time.sleep(min(turn, left))
            done, cpu = passes() - done, server.cpu_seconds() - cpu
        # The last turn is a short one, in which a few passes say little.
        if left >= turn or not cost.turns:
            cost.add(is_undisturbed=is_undisturbed and permitted, passes=done, cpu=cpu)
        is_undisturbed = not is_undisturbed
    return cost


@contextlib.contextmanager
def undisturbed(server: Server) -> Iterator[bool]:
    """Give the threads of a server real-time priority; yields whether that is permitted."""
    permitted = True
    for thread in _threads(server):
        permitted &= _schedule(thread, os.SCHED_FIFO, 1)
    try:
        yield permitted
    finally:
        # Threads that were started meanwhile have inherited the priority.
        for thread in _threads(server):
            _schedule(thread, os.SCHED_OTHER, 0)


def _threads(server: Server) -> list[int]:
    return [
        int(path.name)
        for process in family(server.pid)
        for path in Path(f"/proc/{process.pid}/task").iterdir()
    ]


def _schedule(thread: int, policy: int, priority: int) -> bool:
    try:
        os.sched_setscheduler(thread, policy, os.sched_param(priority))
    except PermissionError:
        return False
    except ProcessLookupError:
        # a thread that has ended since it was listed
        return True
    return True
