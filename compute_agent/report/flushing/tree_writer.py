"""Writer of plans: with one request where placement can replace a tree, else by provider."""

from __future__ import annotations

from collections.abc import Sequence

from compute_agent import errors
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.retries import Retries
from compute_agent.placement.traits_and_classes import Names
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.report.cache import TreeCache
from compute_agent.report.flushing.flush import Flush, FlushReport
from compute_agent.report.flushing.provider_writes import ProviderWrites
from compute_agent.report.flushing.reshape import Reshaper
from compute_agent.report.flushing.tree_flush import TreeFlush
from compute_agent.report.operations import KeepProvider, Operation, Reshape, SetAggregates
from compute_agent.report.tree_reader import TreeReader


class TreeWriter:
    """A writer that updates placement, and a :class:`TreeCache` with it."""

    def __init__(
        self,
        placement: PlacementApi,
        names: Names,
        reader: TreeReader,
        workers: RequestPool,
        retries: Retries,
    ) -> None:
        self._providers = placement.providers
        self._names = names
        self._reader = reader
        self._workers = workers
        self._retries = retries
        self._at_once = TreeFlush(placement.trees, names, reader, retries)
        self._reshaper = Reshaper(placement.connection, placement.providers, reader, workers)

    @property
    def may_reshape(self) -> bool:
        """Whether placement has not refused the user a reshape yet."""
        return self._reshaper.is_allowed

    @property
    def replaces_trees(self) -> bool:
        """Whether placement takes whole trees from this user, as far as is known."""
        return self._at_once.possible

    def write(self, cache: TreeCache, operations: Sequence[Operation], report: FlushReport) -> None:
        """Carry out a plan.

        :param report: filled in, also when it fails.
        :raises errors.PlacementError: as :meth:`Flush.run` and :meth:`TreeFlush.run`.
        """
        with cache.lock:
            if any(isinstance(operation, SetAggregates) for operation in operations):
                cache.sharing_due = True
            if all(isinstance(operation, KeepProvider) for operation in operations):
                self._singly(cache, operations, report)
                return
            partial = cache.allocations is not None
            if not self._at_once.run(cache, operations, report):
                if partial and any(isinstance(o, Reshape) for o in operations):
                    # read with the whole tree, they lack what the consumers have of others
                    raise errors.PlacementReshapeConflict(
                        "the reshape cannot be done with a whole tree; it has to begin again"
                    )
                cache.dirty, cache.etag = True, None
                self._singly(cache, operations, report)

    def _singly(
        self, cache: TreeCache, operations: Sequence[Operation], report: FlushReport
    ) -> None:
        writes = ProviderWrites(
            cache.tree, self._providers, self._names, self._reader, self._retries
        )
        flush = Flush(
            root_uuid=cache.root_uuid,
            live=cache.tree,
            providers=self._providers,
            names=self._names,
            writes=writes,
            reshaper=self._reshaper,
            workers=self._workers,
            report=report,
        )
        flush.run(operations)
