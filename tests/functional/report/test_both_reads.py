"""Read by provider or with one request: the same database, from any tree to any other.

HYPOTHESIS_PROFILE=long HYPOTHESIS_EXAMPLES=1000 compares 1,000 pairs of each kind.
"""

import sqlite3
import uuid as uuidlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import capacity
from compute_agent.report.client import ReportClient
from tests.fixtures.clocks import WaitingClock
from tests.functional.either_placement import ours
from tests.property.tree_pairs import CLASSES, ROOT, pairs

ELSEWHERE = "bbbbbbbb-0000-4000-8000-000000000001"
CONSUMERS = [str(uuidlib.UUID(int=number)) for number in range(1, 5)]
TABLES = (
    "allocations",
    "consumers",
    "inventories",
    "resource_provider_traits",
    "resource_provider_aggregates",
)
NORMAL_FORM = """
    select 'provider', p.uuid, p.name, parent.uuid, root.uuid, 0, 0, 0, 0 from resource_providers p
    join resource_providers root on root.id = p.root_provider_id
    left join resource_providers parent on parent.id = p.parent_provider_id
    union all
    select 'inventory', p.uuid, c.name, total, reserved, min_unit, max_unit, step_size,
    allocation_ratio from inventories i
    join resource_providers p on p.id = i.resource_provider_id
    join resource_classes c on c.id = i.resource_class_id
    union all
    select 'trait', p.uuid, t.name, 0, 0, 0, 0, 0, 0 from resource_provider_traits pt
    join resource_providers p on p.id = pt.resource_provider_id join traits t on t.id = pt.trait_id
    union all
    select 'aggregate', p.uuid, a.uuid, 0, 0, 0, 0, 0, 0 from resource_provider_aggregates pa
    join resource_providers p on p.id = pa.resource_provider_id
    join placement_aggregates a on a.id = pa.aggregate_id
    union all
    select 'allocation', p.uuid, a.consumer_id, c.name, used, 0, 0, 0, 0 from allocations a
    join resource_providers p on p.id = a.resource_provider_id
    join resource_classes c on c.id = a.resource_class_id
    union all
    select 'consumer', c.uuid, p.external_id, u.external_id, c.generation, 0, 0, 0, 0
    from consumers c join projects p on p.id = c.project_id join users u on u.id = c.user_id
"""

Claims = list[tuple[str, int, int, bool]]
"""Consumer, number of the inventory, amount, and whether it has as much elsewhere."""

claims = st.lists(
    st.tuples(
        st.sampled_from(CONSUMERS),
        st.integers(0, 20),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=6,
)
EXAMPLES = settings(max_examples=max(20, settings.default.max_examples // 5))
if settings.default.max_examples > 100:
    EXAMPLES = settings()


@dataclass
class Way:
    """A placement of its own, and an agent that reads it in one of the two ways."""

    path: Path
    transport: InProcessTransport
    whole_trees: bool

    def client(self) -> ReportClient:
        """An agent that was started now."""
        client = ReportClient(
            self.transport, use_extensions=self.whole_trees, connections=1, clock=WaitingClock()
        )
        client.connect()
        return client

    def begin(self, old: ProviderTree, held: Claims) -> None:
        """Let placement have one tree and what consumers have of it, and nothing else."""
        with closing(sqlite3.connect(self.path)) as database, database:
            for table in TABLES:
                database.execute(f"delete from {table}")
            database.execute("update resource_providers set parent_provider_id = null")
            database.execute("delete from resource_providers")
        plain = ReportClient(self.transport, connections=1, clock=WaitingClock())
        nothing, elsewhere = ProviderTree(), ProviderTree()
        elsewhere.new_root("elsewhere", ELSEWHERE)
        elsewhere.update_inventory("elsewhere", {rc: {"total": 100} for rc in CLASSES})
        plain.update_from_provider_tree(nothing, elsewhere)
        try:
            plain.update_from_provider_tree(nothing, old)
        except errors.ResourceProviderSyncFailed:
            event("an inventory that placement refuses")
        stock = [(u, rc) for u in old.get_provider_uuids() for rc in old.data(u).inventory]
        for consumer, number, amount, also_elsewhere in held if stock else ():
            provider, resource_class = stock[number % len(stock)]
            resources = {"resources": {resource_class: amount}}
            allocations = {provider: resources}
            if also_elsewhere:
                allocations[ELSEWHERE] = resources
            try:
                shortage = plain.placement.allocations.claim_resources(
                    consumer, {"allocations": allocations}, "p", "u", "1.39"
                )
            except errors.PlacementError:
                continue
            if shortage is None:
                event("a claim")
        plain.close()

    def flush(self, new: ProviderTree, foreign: frozenset[str]) -> str:
        """Make the pass of an agent; return what became of it."""
        client = self.client()
        base = client.get_provider_tree(ROOT)
        try:
            client.update_from_provider_tree(base, new, is_ours=lambda uuid: uuid not in foreign)
        except errors.ComputeAgentError as error:
            return type(error).__name__
        finally:
            client.close()
        return "done"

    def reshape(self, new: ProviderTree) -> tuple[str, object]:
        """Make the pass of an agent that moves allocations along.

        :returns: what became of it, and the allocations that were read.
        """
        client = self.client()
        with client.tracing():
            base = client.get_provider_tree(ROOT, fresh=True)
            found = client.get_allocations_for_provider_tree(ROOT)
            members = set(base.get_provider_uuids(ROOT))
            try:
                client.update_from_provider_tree(
                    base, new, moved(found, members, new), original_allocations=found
                )
            except errors.ComputeAgentError as error:
                return type(error).__name__, found
            finally:
                client.close()
        return "done", found

    def content(self) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as database:
            return sorted(database.execute(NORMAL_FORM), key=repr)


def moved(
    found: dict[str, dict[str, Any]], members: set[str], new: ProviderTree
) -> dict[str, dict[str, Any]]:
    """Place what each consumer has in the tree where the new tree has room for it."""
    free = {
        (uuid, rc): int(capacity(record))
        for uuid in new.get_provider_uuids()
        for rc, record in new.data(uuid).inventory.items()
    }
    result = {}
    for consumer, record in sorted(found.items()):
        holding: dict[str, dict[str, int]] = {}
        for provider, entry in sorted(record["allocations"].items()):
            for rc, amount in sorted(entry["resources"].items()):
                place = (
                    place_of(new, free, provider, rc, amount) if provider in members else provider
                )
                if place is None:
                    continue
                if provider in members:
                    free[place, rc] -= amount
                resources = holding.setdefault(place, {})
                resources[rc] = resources.get(rc, 0) + amount
        allocations = {p: {"resources": resources} for p, resources in holding.items()}
        result[consumer] = {**record, "allocations": allocations}
    return result


def place_of(
    new: ProviderTree, free: dict[tuple[str, str], int], provider: str, rc: str, amount: int
) -> str | None:
    for uuid in (provider, *new.get_provider_uuids()):
        if free.get((uuid, rc), 0) >= amount and amount <= new.data(uuid).inventory[rc]["max_unit"]:
            return uuid
    return None


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> tuple[Way, Way]:
    """By provider, and as a whole."""
    made = []
    for whole_trees in (False, True):
        directory = tmp_path_factory.mktemp("way")
        transport = InProcessTransport(ours(directory))
        made.append(Way(directory / "placement.db", transport, whole_trees))
    return made[0], made[1]


@EXAMPLES
@given(pairs(), claims, st.frozensets(st.integers(0, 7), max_size=2))
def test_a_flush_leaves_the_same_database(ways, pair, held, numbers):
    old, new = pair
    uuids = old.get_provider_uuids()
    foreign = frozenset(uuids[number] for number in numbers if number < len(uuids))
    for way in ways:
        way.begin(old, held)
    assert ways[0].content() == ways[1].content()
    outcomes = [way.flush(new, foreign) for way in ways]
    event(outcomes[0])
    assert outcomes[0] == outcomes[1]
    assert ways[0].content() == ways[1].content()


@EXAMPLES
@given(pairs(), claims)
def test_a_reshape_leaves_the_same_database(ways, pair, held):
    old, new = pair
    for way in ways:
        way.begin(old, held)
    outcomes = [way.reshape(new) for way in ways]
    event(outcomes[0][0])
    assert outcomes[0] == outcomes[1]
    assert ways[0].content() == ways[1].content()
