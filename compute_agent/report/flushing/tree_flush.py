"""Execution of a plan with one request, where placement can replace a whole tree.

    body from tree and plan --> PUT   done
                                      another tree by now: one read, the plan merged into it, again
                                      refused: provider by provider, so that one that cannot be
                                      written does not stop the others; a reshape fails as a whole

It is all or nothing, so after a lost answer the tree that placement has shows which.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final

from compute_agent import errors
from compute_agent.placement.provider_trees import ProviderTrees
from compute_agent.placement.retries import Retries
from compute_agent.placement.traits_and_classes import Names
from compute_agent.provider_tree.trait_names import CUSTOM_PREFIX
from compute_agent.report.cache import TreeCache
from compute_agent.report.flushing.flush import FlushReport, Kept
from compute_agent.report.flushing.reshape import not_reshaped
from compute_agent.report.flushing.tree_body import AcceptedNames, TreeChange, tree_change
from compute_agent.report.operations import CreateProvider, Operation, Reshape
from compute_agent.report.tree_reader import TreeReader

LOG = logging.getLogger(__name__)

NO_STANDARD_CLASS: Final = re.compile(r"no standard resource class ([A-Z0-9_]+)")


class _BeyondTree(errors.ResourceProviderUpdateFailed):
    """A plan changes providers of other trees, such as shared ones."""


class TreeFlush:
    """Flushes of one connection; remembers whether they may replace trees."""

    def __init__(
        self, trees: ProviderTrees, names: Names, reader: TreeReader, retries: Retries
    ) -> None:
        self._trees = trees
        self._names = names
        self._reader = reader
        self._retries = retries
        self._is_allowed = True
        self._logged_details: dict[str, str] = {}

    @property
    def possible(self) -> bool:
        """Whether placement takes whole trees from this user, as far as is known."""
        return self._is_allowed and self._trees.is_offered

    def run(self, cache: TreeCache, operations: Sequence[Operation], report: FlushReport) -> bool:
        """Carry out ``operations``; when false is returned, do so provider by provider.

        :param cache: the tree as last known from placement; updated.
        :param report: filled in.
        :raises errors.PlacementUnavailable: no answer; it may have been done.
        :raises errors.PlacementUnauthorized: nothing was done.
        :raises errors.ResourceProviderUpdateConflict: others write all the time, or a provider
            disappeared: the pass has to start again.
        :raises errors.PlacementReshapeConflict: another writer changed what the reshape moves.
        :raises errors.ReshapeFailed: the reshape was refused.
        """
        if not self.possible:
            return False
        try:
            outcome = self._retries.while_conflicting(lambda: self._attempt(cache, operations))
        except errors.PlacementTooOld as error:
            return self._not_done(cache, error)
        except _BeyondTree as error:
            # one request cannot do it, so the reshape that begins again is not one request
            self._is_allowed &= not _reshape_in(operations)
            return self._not_done(cache, error)
        except errors.PlacementUnavailable as error:
            if error.status != 500 or _reshape_in(operations):
                raise
            return self._fall_back(cache, operations, error)
        except errors.PlacementUnauthorized as error:
            if error.status != 403:
                raise
            self._is_allowed = False
            return self._fall_back(cache, operations, error)
        except errors.ResourceProviderUpdateFailed as error:
            if error.status == 409 and _reshape_in(operations):
                self._raise_if_others_moved(cache, error)
            return self._fall_back(cache, operations, error)
        if isinstance(outcome, errors.ResourceProviderUpdateConflict):
            raise outcome
        _fill_in(report, operations, outcome)
        return True

    def _attempt(
        self, cache: TreeCache, operations: Sequence[Operation]
    ) -> TreeChange | errors.ResourceProviderUpdateConflict:
        """Send the change once; return the error that a repetition would not get past."""
        if cache.etag is None and cache.tree.exists(cache.root_uuid):
            self._reader.read(cache)
        try:
            change = self._change(cache, operations)
        except errors.ResourceProviderUpdateConflict as stale_error:
            return stale_error
        if change:
            try:
                whole = self._trees.replace(
                    cache.root_uuid, change.body, cache.etag, repeat=not change.reshapes
                )
            except errors.PlacementUnavailable as outage:
                if not change.reshapes:
                    raise
                self._settle(outage, cache, operations)
                return self._attempt(cache, operations)
            except errors.ResourceProviderUpdateConflict as conflict:
                self._read_after(conflict, cache, operations)
                raise
            except errors.ResourceProviderUpdateFailed as refusal:
                if refusal.status == 400 and self._learnt_names(change, refusal.detail):
                    return self._attempt(cache, operations)
                raise
            self._reader.take(cache, whole)
            self._names.learn(cache.tree)
        return change

    def _settle(
        self,
        failure: errors.PlacementUnavailable,
        cache: TreeCache,
        operations: Sequence[Operation],
    ) -> None:
        """Find out, after a lost answer, whether the reshape was done.

        :raises errors.PlacementUnavailable: it was not, or that cannot be found out.
        """
        # the pass schedule warns of an outage once; this is logged with every try
        LOG.info("The reshape was not answered: %s. Its outcome is read from placement.", failure)
        self._reader.read(cache)
        if self._change(cache, operations).reshapes:
            raise not_reshaped(failure) from failure

    def _read_after(
        self,
        conflict: errors.ResourceProviderUpdateConflict,
        cache: TreeCache,
        operations: Sequence[Operation],
    ) -> None:
        """Read the tree as it is by now.

        :raises errors.ResourceProviderUpdateFailed: it is the same: the conflict is elsewhere.
        :raises errors.PlacementReshapeConflict: the reshape was not done by a request before.
        """
        sent_etag = cache.etag
        self._reader.read(cache)
        kind: type[errors.PlacementError] | None = None
        if cache.etag == sent_etag:
            kind = errors.ResourceProviderUpdateFailed
        elif _reshape_in(operations) and self._change(cache, operations).reshapes:
            kind = errors.PlacementReshapeConflict
        if kind is not None:
            raise kind(
                str(conflict), status=conflict.status, code=conflict.code, detail=conflict.detail
            ) from conflict

    def _change(self, cache: TreeCache, operations: Sequence[Operation]) -> TreeChange:
        accepted_names = AcceptedNames(self._names.accepted_traits, self._names.accepted_inventory)
        change = tree_change(cache.root_uuid, cache.tree, operations, names=accepted_names)
        if not change.within_tree:
            raise _BeyondTree(
                f"the plan for the tree of {cache.root_uuid} changes providers of other trees"
            )
        return change

    def _learnt_names(self, change: TreeChange, detail: str) -> bool:
        """Return whether placement refuses a trait or a class of this change, now known."""
        known_refused = self._names.refused_names
        self._names.ensure_traits(
            trait for traits in change.difference.traits for trait in traits.after - traits.before
        )
        classes = {
            resource_class
            for inventory in change.difference.inventories
            for resource_class in inventory.after.keys() - inventory.before
            if resource_class.startswith(CUSTOM_PREFIX)
        }
        classes.update(NO_STANDARD_CLASS.findall(detail))
        for resource_class in sorted(classes):
            self._names.ensure_class(resource_class)
        return self._names.refused_names != known_refused

    def _raise_if_others_moved(
        self, cache: TreeCache, error: errors.ResourceProviderUpdateFailed
    ) -> None:
        """Look whether a reshape was refused because of a claim that it does not know of.

        :raises errors.PlacementReshapeConflict: it was.
        """
        known_allocations = cache.allocations
        self._reader.read(cache, fresh=True)
        if cache.allocations != known_allocations:
            raise errors.PlacementReshapeConflict(
                str(error), status=error.status, code=error.code, detail=error.detail
            ) from error

    def _fall_back(
        self, cache: TreeCache, operations: Sequence[Operation], error: errors.PlacementError
    ) -> bool:
        """Leave a plan to single writes, unless it is a reshape."""
        if _reshape_in(operations):
            role = "the placement user needs role service: " if error.status == 403 else ""
            raise errors.ReshapeFailed(
                f"{role}{error}", status=error.status, code=error.code, detail=error.detail
            ) from error
        return self._not_done(cache, error)

    def _not_done(self, cache: TreeCache, error: errors.PlacementError) -> bool:
        if error.detail != self._logged_details.get(cache.root_uuid):
            self._logged_details[cache.root_uuid] = error.detail
            LOG.info("%s. It is written provider by provider.", error)
        # the answer may be a lie, and claims have raised generations since they were read
        for uuid in cache.tree.get_provider_uuids():
            cache.tree.mark_stale(uuid)
        return False


def _reshape_in(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, Reshape) for operation in operations)


def _fill_in(report: FlushReport, operations: Sequence[Operation], change: TreeChange) -> None:
    def name_of(uuid: str) -> str:
        return change.live.data(uuid).name if change.live.exists(uuid) else uuid

    report.operations = tuple(operations)
    report.created_uuids += [o.uuid for o in operations if isinstance(o, CreateProvider)]
    report.kept_providers += [
        Kept(uuid, name_of(uuid), why) for uuid, why in change.kept_reasons.items()
    ]
