"""The total of a storage pool that several hosts share, kept up to date by the agents of all.

    pass: what the driver measured -- differs from what is known by more than 1 % --> a random delay
    then, in a thread of its own: read the provider -- still differs --> write

Every agent waits for another time, so that one of them writes and the others find it right.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree.inventory import InventoryRecord, complete_record
from compute_agent.provider_tree.provider import SHARING_TRAIT

if TYPE_CHECKING:
    from compute_agent.provider_tree.provider import ProviderData
    from compute_agent.report.client import ReportClient

LOG = logging.getLogger(__name__)

DISK: Final = "DISK_GB"
TOLERANCE: Final = 0.01
TRIES: Final = 3
"""Looks at the provider while others write to it; the next pass looks again."""


def differs(measured_total: int, total: int | None) -> bool:
    """Whether a total, in GiB, is so far from what was measured that it is to be written.

    Hosts measure the same pool at different moments: 1 % is left to that.

    :param total: None: there is no record yet.
    """
    return total is None or abs(measured_total - total) > TOLERANCE * total


def with_total(record: InventoryRecord | None, total: int) -> InventoryRecord:
    """Return a record with another total; all else is the operator's.

    A greatest unit that was the whole pool stays the whole pool.
    """
    if record is None:
        return complete_record({"total": total})
    new_record = {**record, "total": total}
    if record["max_unit"] == record["total"]:
        new_record["max_unit"] = total
    return new_record


def _in_a_thread(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


class SharedDisk(Struct, eq=False):
    """Keeps the total of one sharing provider. Safe for threads.

    :ivar uuid: of the provider.
    :ivar spread: seconds within which the agents that see a difference look again.
    :ivar later: calls something after so many seconds, in another thread.
    """

    report: ReportClient
    uuid: str
    spread: float
    later: Callable[[float, Callable[[], None]], None] = _in_a_thread
    rng: random.Random = field(default_factory=random.Random)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _measured_totals: dict[str, int] = {}
    _is_planned: bool = False
    _seen_record: tuple[int, int | None] = (-1, None)
    """Generation and total of the provider when it was looked at last."""
    _conditions: LastingConditions = field(default_factory=LastingConditions)

    def after_pass(self, node: str, root: str, facts: Mapping[str, Any]) -> None:
        """Plan a look at the provider if its total is not what this node measured; no request.

        :param facts: what the driver reports of the node.
        """
        self._measured_totals[node] = int(facts["local_gb"])
        provider = self._connected_provider(root)
        if provider is None:
            self._trouble(
                f"connection of {node}",
                "none",
                f"Node {node}: [compute_agent]shared_disk_provider {self.uuid} shares no disk "
                f"with it, so its total is not kept up to date: it must have trait {SHARING_TRAIT} "
                "and be in an aggregate of the node's root provider.",
            )
            return
        self._over(f"connection of {node}")
        measured_total = self._measured_totals.get(node, 0)
        # nothing is measured where the pool is not mounted
        if not measured_total or not differs(measured_total, self._total(provider)):
            return
        with self._lock:
            if self._is_planned:
                return
            self.later(self.rng.uniform(0.0, self.spread), lambda: self._look(node))
            self._is_planned = True

    def _connected_provider(self, root: str) -> ProviderData | None:
        tree = self.report.known_tree(root)
        if tree is None or not tree.exists(root) or not tree.exists(self.uuid):
            return None
        provider = tree.data(self.uuid)
        shares = SHARING_TRAIT in provider.traits
        return provider if shares and provider.aggregates & tree.data(root).aggregates else None

    def _total(self, provider: ProviderData) -> int | None:
        """Return the newest total that is known: a tree may be older than the last look."""
        generation, total = self._seen_record
        if provider.generation is not None and provider.generation > generation:
            return _total_of(provider.inventory.get(DISK))
        return total

    def _look(self, node: str) -> None:
        try:
            with self.report.tracing():
                self._bring_up_to_date(node)
        except Exception as error:  # noqa: BLE001 - a later pass plans another look
            self._trouble(
                "look",
                type(error).__name__,
                f"The disk that provider {self.uuid} shares cannot be kept up to date now: {error}",
                defect=not isinstance(error, errors.ComputeAgentError),
            )
        else:
            self._over("look")
        finally:
            with self._lock:
                self._is_planned = False

    def _bring_up_to_date(self, node: str) -> None:
        for _ in range(TRIES - 1):
            try:
                self._write_if_it_differs(node)
            except errors.ResourceProviderUpdateConflict:
                # another writer was first, perhaps with just this
                continue
            return
        self._write_if_it_differs(node)

    def _write_if_it_differs(self, node: str) -> None:
        providers, measured_total = self.report.placement.providers, self._measured_totals[node]
        stored_inventory = providers.inventories(self.uuid, self.uuid)
        record = stored_inventory.content.get(DISK)
        total = _total_of(record)
        self._seen_record = (stored_inventory.generation, total)
        if not differs(measured_total, total):
            LOG.debug("The disk of provider %s is up to date: another agent wrote it.", self.uuid)
            return
        records = {**stored_inventory.content, DISK: with_total(record, measured_total)}
        answer = providers.put_inventories(
            self.uuid, self.uuid, stored_inventory.generation, records
        )
        self._seen_record = (answer.generation, measured_total)
        LOG.info(
            "Provider %s shares %d GiB of disk now, as node %s measured; before, it shared %s.",
            *(self.uuid, measured_total, node, "nothing" if total is None else f"{total} GiB"),
        )

    def _trouble(self, topic: str, about: str, text: str, *, defect: bool = False) -> None:
        """Log a condition when it begins; what it is about distinguishes it from another."""
        if self._conditions.is_new(topic, about):
            LOG.error("%s", text, exc_info=defect)

    def _over(self, topic: str) -> None:
        if self._conditions.is_over(topic):
            LOG.info("The disk that provider %s shares is kept up to date again.", self.uuid)


def _total_of(record: InventoryRecord | None) -> int | None:
    return None if record is None else int(record["total"])
