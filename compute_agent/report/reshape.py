"""Writes through `POST /reshaper`: many inventories and their allocations in one request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.allocations.amounts import as_request, of_entries
from compute_agent.placement.connection import RESHAPE_TIMEOUT, Connection
from compute_agent.placement.providers import Providers, inventory_body
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.provider_tree import ASPECTS, ProviderTree
from compute_agent.provider_tree.inventory import Inventory, equal_inventories
from compute_agent.report.provider_writes import check_exists, merge_inventory
from compute_agent.report.steps import SetInventory
from compute_agent.report.tree_reader import TreeReader

LOG = logging.getLogger(__name__)


class Reshaper(Struct, eq=False):
    """Reshapes of one connection; remembers whether its user may reshape."""

    connection: Connection
    providers: Providers
    reader: TreeReader
    workers: RequestPool
    is_allowed: bool = True

    def set_inventories(self, live: ProviderTree, changes: Sequence[SetInventory]) -> bool:
        """Replace many inventories at once; when false is returned, write them one by one.

        :raises errors.PlacementUnavailable: no answer; they may have been replaced.
        """
        if not self.is_allowed:
            return False
        merged_inventories = self._merge(live, changes)
        if not merged_inventories:
            return True
        doing = f"Replacing {len(merged_inventories)} inventories at once"
        body = {"inventories": _bodies(live, merged_inventories), "allocations": {}}
        try:
            response = self.connection.call(_request(body, doing))
        except errors.PlacementUnauthorized as exc:
            if exc.status != 403:
                raise
            self.is_allowed = False
            LOG.info("%s is not permitted: %s. Inventories are written one by one.", doing, exc)
            return False
        except errors.PlacementUnavailable as exc:
            if exc.status != 500:
                raise
            LOG.warning("%s failed: %s. Inventories are written one by one.", doing, exc)
            return False
        if response.status != 204:
            LOG.info(
                "%s was refused (%s). Inventories are written one by one.",
                doing,
                responses.explanation(response),
            )
            return False
        self._absorb(live, merged_inventories, {})
        return True

    def reshape(
        self,
        live: ProviderTree,
        changes: Sequence[SetInventory],
        allocations: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Move inventory together with its allocations.

        :param allocations: consumer uuid -> record as it shall be.
        :raises errors.PlacementReshapeConflict: another writer was first; begin again from reading.
        :raises errors.ResourceProviderNotFound: likewise; it deleted a provider.
        :raises errors.ReshapeFailed: refused, or half done, which placement should exclude.
        :raises errors.PlacementUnavailable: it did not happen as placement cannot answer, or its
            outcome is unknown; begin again from reading once placement is back.
        """
        merged_inventories = self._merge(live, changes)
        if not merged_inventories:
            return
        before = {uuid: live.data(uuid).inventory for uuid in merged_inventories}
        consumers = {c: _consumer_body(c, record) for c, record in allocations.items()}
        body = {"inventories": _bodies(live, merged_inventories), "allocations": consumers}
        doing = f"Reshaping {len(merged_inventories)} provider(s) and {len(consumers)} consumer(s)"
        request = _request(body, doing)
        try:
            response = self.connection.call(request)
        except errors.PlacementUnauthorized as exc:
            if exc.status != 403:
                raise
            raise errors.ReshapeFailed(
                f"the placement user needs role service: {exc}", status=403, detail=exc.detail
            ) from exc
        except errors.PlacementUnavailable as exc:
            self._settle(live, before, merged_inventories, exc)
        else:
            _check(request, response)
        self._absorb(live, merged_inventories, consumers)

    def _merge(self, live: ProviderTree, changes: Sequence[SetInventory]) -> dict[str, Inventory]:
        """Return the wanted inventories, merged with changes by others, where they differ."""
        for change in changes:
            check_exists(live, change.uuid)
        stale_uuids = [c.uuid for c in changes if "inventories" in live.stale_aspects(c.uuid)]
        self.workers.results(
            [partial(self.reader.reread, live, uuid, ["inventories"]) for uuid in stale_uuids]
        )
        inventories: dict[str, Inventory] = {}
        for change in changes:
            theirs = live.data(change.uuid).inventory
            merged_inventory = merge_inventory(change.before, theirs, change.after)
            if not equal_inventories(merged_inventory, theirs):
                inventories[change.uuid] = merged_inventory
        return inventories

    def _settle(
        self,
        live: ProviderTree,
        before: Mapping[str, Inventory],
        wanted_inventories: Mapping[str, Inventory],
        failure: errors.PlacementUnavailable,
    ) -> None:
        """Find out, after a lost answer, which of the two states placement has."""
        # the pass schedule warns of an outage once; this is logged with every try
        LOG.info("The reshape was not answered: %s. Its outcome is read from placement.", failure)
        tasks = [
            partial(self.providers.inventories, uuid, live.data(uuid).name)
            for uuid in wanted_inventories
        ]
        now = dict(zip(wanted_inventories, self.workers.results(tasks), strict=True))
        if all(
            equal_inventories(now[uuid].content, wanted_inventories[uuid])
            for uuid in wanted_inventories
        ):
            return
        if all(equal_inventories(now[uuid].content, before[uuid]) for uuid in wanted_inventories):
            # no other writer was there, so this is not a conflict: it lasts as long as the outage
            raise errors.PlacementUnavailable(
                f"the reshape did not happen, the layout is still the old one: {failure}"
            ).of_answer(failure) from failure
        raise errors.ReshapeFailed(
            f"it was not answered, and placement has neither the old nor the new layout: {failure}"
        ) from failure

    def _absorb(
        self,
        live: ProviderTree,
        wanted_inventories: Mapping[str, Inventory],
        consumers: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Store what was written; one read returns the generations.

        A generation other than the one the reshape leads to shows another writer.
        """
        provider_uuids = {uuid for record in consumers.values() for uuid in record["allocations"]}
        for uuid in provider_uuids.union(wanted_inventories):
            if not live.exists(uuid):
                continue
            generation = live.data(uuid).generation or 0
            if uuid in wanted_inventories:
                live.update_inventory(uuid, wanted_inventories[uuid], operator_keys=())
                live.mark_fresh(uuid, ["inventories"])
                generation += 2 if wanted_inventories[uuid] else 1
            live.set_generation(uuid, generation + (uuid in provider_uuids))
        root = live.root_of(next(iter(wanted_inventories))).uuid
        for provider in self.providers.in_tree(root):
            uuid = provider["uuid"]
            if not live.exists(uuid):
                continue
            if live.data(uuid).generation != provider["generation"]:
                live.set_generation(uuid, provider["generation"])
                live.mark_stale(uuid, ASPECTS)


def _request(body: object, doing: str) -> Request:
    return Request("POST", "/reshaper", json=body, timeout=RESHAPE_TIMEOUT, doing=doing)


def _check(request: Request, response: Response) -> None:
    if response.status == 204:
        return
    refusal = responses.failure(errors.PlacementError, request, response)
    # in use: another writer claimed after the consumers were read, before the generations were
    if responses.is_conflict(response) or refusal.code == responses.INVENTORY_IN_USE:
        raise responses.failure(errors.PlacementReshapeConflict, request, response)
    raise errors.ReshapeFailed(
        str(refusal), status=refusal.status, code=refusal.code, detail=refusal.detail
    )


def _consumer_body(consumer: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a consumer's record as the reshaper takes it.

    The type is left out: written without it, placement keeps the type a consumer has, also the
    type "unknown", which cannot be written.

    :raises errors.ReshapeFailed: it names a provider without resources.
    """
    for provider, entry in record["allocations"].items():
        if not entry["resources"]:
            raise errors.ReshapeFailed(
                f"the record of consumer {consumer} names provider {provider} without resources; "
                "the driver must remove such an entry"
            )
    return {
        "allocations": as_request(of_entries(record["allocations"])),
        "project_id": record["project_id"],
        "user_id": record["user_id"],
        "consumer_generation": record["consumer_generation"],
    }


def _bodies(live: ProviderTree, wanted_inventories: Mapping[str, Inventory]) -> dict[str, Any]:
    return {
        uuid: inventory_body(live.data(uuid).generation or 0, inventory)
        for uuid, inventory in wanted_inventories.items()
    }
