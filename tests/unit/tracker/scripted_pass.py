"""A pass and a report client that do what a test wrote down."""

from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from compute_agent import errors
from compute_agent.provider_config.additions import MergeResult
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.node import Proposal
from compute_agent.tracker.place import Place
from compute_agent.tracker.write_contest import WriteContest

UUID = "00000000-0000-4000-8000-000000000001"


class Report:
    """A client that only counts."""

    def __init__(self) -> None:
        self.reconnected = 0
        self.away = False

    def show_life(self, _root_uuid: str) -> None:
        """Placement hears of nothing here."""

    def reconnect(self) -> None:
        self.reconnected += 1
        if self.away:
            raise errors.PlacementUnavailable("away")

    @contextmanager
    def tracing(self):
        yield SimpleNamespace(requests=1, writes=0, global_request_id="req-1")

    offered_versions = SimpleNamespace(maximum=(1, 39))


def no_contest() -> WriteContest:
    """Nobody else writes."""
    place = Place("10.0.0.1", "machine", "boot", "/var/lib/compute-agent")
    return WriteContest(Report(), place)  # type: ignore[arg-type]


class ScriptedPass:
    """Raises or returns what it was given, call by call; the last one again and again."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.reshapes: list[bool] = []
        self.problems: list[Exception] = []

    def one_reading(self, _node: str) -> AbstractContextManager[None]:
        return nullcontext()

    def propose(self, target: Any, _last: Any = None, *, reshape: bool = False) -> Proposal:
        self.reshapes.append(reshape)
        outcome = self.outcomes[0]
        if len(self.outcomes) > 1:
            self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        tree = ProviderTree()
        tree.new_root(target.name, target.uuid, 1)
        return Proposal(
            tree,
            tree.snapshot(),
            None,
            None,
            MergeResult({}, (), (), (), frozenset()),
            target.uuid,
            list(self.problems),
        )

    def flush(self, _proposal: Proposal) -> list[Any]:
        return []
