"""The schedule of passes against a log of all that happened, which is read through each time."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from compute_agent.tracker.pass_schedule import NEVER, PassRequest, PassSchedule
from tests.fixtures.clocks import ManualClock

NODES = ("a", "b", "c")
NODE = st.sampled_from(NODES)
REASON = st.sampled_from(("report", "claim"))
DELAY = st.sampled_from((0.0, 1.0, 5.0, NEVER))


class Entry(NamedTuple):
    """What happened to a node: it came, was asked for, or a pass of it began or ended."""

    what: str
    due_at: float = NEVER
    reason: str = ""


class NodeLog(list[Entry]):
    """All that happened to a node since it came."""

    def is_running(self) -> bool:
        return self.count_of("began") > self.count_of("ended")

    def count_of(self, what: str) -> int:
        return sum(entry.what == what for entry in self)

    def reasons(self) -> set[str]:
        """Return what it was asked for since the last pass began."""
        since = itertools.takewhile(lambda entry: entry.what != "began", reversed(self))
        return {entry.reason for entry in since if entry.what == "asked"}

    def due_at(self) -> float:
        return [entry.due_at for entry in self if entry.what in ("came", "ended")][-1]

    def is_due(self, now: float) -> bool:
        return not self.is_running() and (bool(self.reasons()) or self.due_at() <= now)

    def has_answered(self, place: int) -> bool:
        """Return whether a pass that began after this place in the log has ended."""
        later = [entry.what for entry in self[place:]]
        return "began" in later and "ended" in later[later.index("began") :]


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(1000.0)
        self.schedule = PassSchedule(self.clock)
        self.logs: dict[str, NodeLog] = {}
        self.requests: list[tuple[PassRequest, NodeLog, int]] = []

    @rule(nodes=st.sets(NODE), delay=DELAY)
    def set_nodes(self, nodes: set[str], delay: float) -> None:
        gone = {n for n, log in self.logs.items() if n not in nodes and not log.is_running()}
        due_at = self.clock.now + delay
        assert set(self.schedule.set_nodes(sorted(nodes), due_at)) == gone
        for node in gone:
            del self.logs[node]
        for node in nodes - self.logs.keys():
            self.logs[node] = NodeLog([Entry("came", due_at)])

    @rule(seconds=st.sampled_from((1.0, 5.0)))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(reason=REASON, node=NODE)
    def request(self, reason: str, node: str) -> None:
        request = self.schedule.request_pass(reason, node)
        assert (request is not None) == (node in self.logs)
        if request is not None:
            log = self.logs[node]
            log.append(Entry("asked", reason=reason))
            self.requests.append((request, log, len(log)))

    @rule(reason=REASON)
    def trigger_all(self, reason: str) -> None:
        assert self.schedule.trigger(reason) == bool(self.logs)
        for log in self.logs.values():
            log.append(Entry("asked", reason=reason))

    @rule()
    def take(self) -> None:
        due_logs = {n: log for n, log in self.logs.items() if log.is_due(self.clock.now)}
        taken_nodes = self.schedule.take_due()
        assert dict(taken_nodes) == {node: log.reasons() for node, log in due_logs.items()}
        assert len(taken_nodes) == len(due_logs)
        for log in due_logs.values():
            log.append(Entry("began"))

    @precondition(lambda self: any(log.is_running() for log in self.logs.values()))
    @rule(data=st.data(), delay=DELAY)
    def finish(self, data: st.DataObject, delay: float) -> None:
        running_nodes = sorted(node for node, log in self.logs.items() if log.is_running())
        node = data.draw(st.sampled_from(running_nodes))
        self.schedule.finish(node, self.clock.now + delay)
        self.logs[node].append(Entry("ended", self.clock.now + delay))

    @invariant()
    def it_knows_what_runs_and_what_comes_next(self) -> None:
        logs = self.logs.values()
        assert set(self.schedule.running_nodes()) == {
            node for node, log in self.logs.items() if log.is_running()
        }
        assert self.schedule.all_have_run() == all(log.count_of("ended") for log in logs)
        waits = [
            0.0 if log.is_due(self.clock.now) else log.due_at() - self.clock.now
            for log in logs
            if not log.is_running()
        ]
        assert self.schedule.seconds_to_next() == min(waits, default=NEVER)

    @invariant()
    def requests_are_answered_by_a_pass_that_began_after_them(self) -> None:
        for request, log, place in self.requests:
            is_over = log.has_answered(place) or self.logs.get(request.node) is not log
            assert self.schedule.wait_for_passes([request], 0.0) == is_over


TestPassSchedule = ScheduleMachine.TestCase
