"""Allocation candidates as the HTTP API asks for them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from placement_server.candidates.capacity import Capacity
from placement_server.candidates.errors import CandidatesError
from placement_server.candidates.evaluator import (
    Fragmentation,
    QueryEvaluator,
    SearchOptions,
    SupposedFleet,
)
from placement_server.candidates.explain import Explanation
from placement_server.candidates.fragmentation import Amounts
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import (
    Account,
    Deadline,
    HeavySearches,
    SearchEffort,
    SearchMemory,
)
from placement_server.candidates.make_room.process import RoomProcesses
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.eligible import passing_providers
from placement_server.candidates.tree_reader import StoredTreeReader
from placement_server.candidates.what_if import Holding, Release, SupposedTrees, Supposition
from placement_server.store.allocations.allocations import read_context
from placement_server.store.allocations.room import on_providers
from placement_server.store.providers.capacity import single_precision
from placement_server.store.records import ConsumerWrite
from placement_server.store.store import Store
from placement_server.store.transaction import ReadTransaction

# From about here on the store is faster without a list of ids.
FEW_PROVIDERS = 100

_Result = TypeVar("_Result")


class Answer(Struct, frozen=True):
    """The JSON body of an answer.

    :param chunks: its bytes in order.
    :param account: where they are counted until it is closed: when they have been sent.
    """

    chunks: list[bytes]
    account: Account


class CandidateService:
    """Answers queries from an index that it keeps equal to a store. Thread safe.

    :ivar trees: reads whole trees.
    :ivar room: makes plans for room, each of which takes long.
    :param memory: what searches may hold; by default there is no bound.
    :param heavy: the places for heavy searches; by default no search is heavy.
    :param follower: a follower of the store; a new one when absent.
    """

    def __init__(
        self,
        store: Store,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
        *,
        memory: SearchMemory | None = None,
        heavy: HeavySearches | None = None,
        follower: IndexFollower | None = None,
    ) -> None:
        self.follower = follower or IndexFollower(store)
        self.trees = StoredTreeReader(store, self.follower)
        self._store = store
        self._options = options
        self._memory = memory
        self._heavy = heavy
        self.room = RoomProcesses(
            store, self.follower, options.deadline, memory, heavy.most if heavy is not None else 1
        )
        self._summaries = SummaryCache(memory.summaries) if memory is not None else SummaryCache()

    def answer(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Return the JSON body for a query.

        :param on_heavy: called once if the search becomes heavy, before it may have to wait.
        :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
        :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory, or too many
            found.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        chunks, account = self._evaluate(
            on_heavy, lambda evaluator: evaluator.candidates(query, microversion)
        )
        account.settle(sum(map(len, chunks)))
        return Answer(chunks, account)

    def provider_ids(self, group: RequestGroup) -> list[int] | None:
        """Return the ids of the few providers that pass a group, as of this moment or later.

        None when the store finds them as fast: there are many, and most of the work is to show
        them; or a name is not known here; or this process has no index yet, which takes longer
        to load than the store takes to answer.

        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        if not self.follower.is_loaded:
            return None
        ids = passing_providers(group, self.follower.index())
        return ids if ids is not None and len(ids) <= FEW_PROVIDERS else None

    def explain(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
        *,
        closest: bool = False,
    ) -> Explanation:
        """Explain why a query has the candidates that it has; raises what `answer` does.

        :param closest: explain also what would give a query candidates that has none. Its limit is
            how many sets of changes are reported at most.
        """
        explanation, account = self._evaluate(
            on_heavy,
            lambda evaluator: evaluator.explanation(query, microversion, closest=closest),
        )
        account.close()
        if explanation.closest is not None:
            explanation.closest.read_rooms(
                lambda ids, class_ids: self._store.read_single(on_providers, ids, class_ids)
            )
        return explanation

    def capacity(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> Capacity:
        """Count the further claims of a query; raises what `answer` does.

        All microversions that know of nested trees count alike.
        """
        del microversion
        count, account = self._evaluate(on_heavy, lambda evaluator: evaluator.capacity(query))
        account.close()
        return count

    def fragmentation(
        self,
        shapes: Sequence[Amounts],
        members: RequestGroup,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> Fragmentation:
        """Report what is free and how much of some shapes fits; raises what `answer` does.

        :param members: the filters on aggregates of a group, which bound what is reported on.
        """
        report, account = self._evaluate(
            on_heavy, lambda evaluator: evaluator.fragmentation(shapes, members)
        )
        account.close()
        return report

    def suppose(
        self,
        suppositions: Sequence[Supposition],
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> SupposedFleet:
        """Return the fleet as it is supposed to be, to be asked and then left.

        The caller closes its account when the answers have been sent.

        :raises SuppositionError: one cannot be made.
        :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        released_consumers = [it.consumer for it in suppositions if isinstance(it, Release)]
        if released_consumers:
            index, held_allocations = self.follower.index_with(
                partial(_holdings_of, released_consumers)
            )
        else:
            index, held_allocations = self.follower.index(), {}
        is_mysql = self._store.engine.dialect.name in ("mysql", "mariadb")
        account, effort = Account(self._memory), SearchEffort(self._heavy, on_heavy)
        try:
            trees = SupposedTrees(
                index,
                held_allocations,
                account,
                stored_ratio=single_precision if is_mysql else float,
                reserved_may_equal_total=microversion >= (1, 26),
            )
            summaries = self._summaries
            return SupposedFleet(trees, suppositions, self._options, summaries, account, effort)
        except BaseException as error:
            if isinstance(error, CandidatesError):
                # The frames it comes from hold the rows.
                error.__traceback__ = None
            effort.end()
            account.close()
            raise

    def _evaluate(
        self, on_heavy: Callable[[], None], ask: Callable[[QueryEvaluator], _Result]
    ) -> tuple[_Result, Account]:
        """Run a search; afterwards its place is free, and its memory if it gave up or failed."""
        # Loading the index does not count as effort of the search.
        index, options = self.follower.index(), self._options
        account, effort = Account(self._memory), SearchEffort(self._heavy, on_heavy)
        limits = Deadline(options.deadline), account, effort
        try:
            return ask(QueryEvaluator(index, options, self._summaries, *limits)), account
        except BaseException as error:
            if isinstance(error, CandidatesError):
                # The frames it comes from hold what was found, for as long as the error is around.
                error.__traceback__ = None
            account.close()
            raise
        finally:
            effort.end()


def _holdings_of(consumers: Sequence[str], tx: ReadTransaction) -> dict[str, list[Holding]]:
    writes = [ConsumerWrite(uuid, {}, "", "") for uuid in dict.fromkeys(consumers)]
    seen_consumers = read_context(tx, writes, providers=False).consumers
    return {consumer.write.uuid: consumer.old_allocations for consumer in seen_consumers}
