"""Nodes that a driver of several nodes lists no more: their providers are deleted, left or kept.

    is_node_deleted()?
     ├ no:  left as they are; with `rebalances_nodes` another agent looks after them from now on
     └ yes: written by others since our last pass, or has children of others? left
            held by a consumer? kept, and looked at again; who it is may be healed
            else deleted, children first

The ledger knows the nodes, so that those which vanish while the agent is down are seen too.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.passes.corrections import is_marked

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient
    from compute_agent.state.ledger import Ledger
    from compute_agent.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)


class Departures(Struct, eq=False):
    """Looks after the providers of nodes that are not here any more.

    :ivar interval: seconds between two tellings of who holds something of a node; 0 for never.
    """

    driver: ComputeDriver
    report: ReportClient
    ledger: Ledger
    interval: Callable[[], float] = lambda: 0.0
    _conditions: LastingConditions = field(default_factory=LastingConditions)
    _told_at: dict[str, float] = {}
    on_holders: Callable[[str, str, frozenset[str]], None] = lambda _name, _uuid, _holders: None

    def settle(self, nodes: Mapping[str, str]) -> None:
        """Deal with every node that was here and is not; a failure is tried again next time.

        :param nodes: those managed now, name to uuid.
        """
        if not self.driver.several_nodes:
            return
        here = {uuid: name for name, uuid in nodes.items()}
        known_nodes = self.ledger.nodes()
        kept_nodes = {}
        for uuid, name in known_nodes.items():
            if uuid in here:
                continue
            if self._is_settled(name, uuid, has_other=name in nodes):
                self.report.drop_cache(uuid)
                claims = self.ledger.claims()
                self.ledger.change_claims(drop=[c for c in claims if claims[c].node == name])
            else:
                kept_nodes[uuid] = name
        self.ledger.remember_nodes({**kept_nodes, **here})

    def _is_settled(self, name: str, uuid: str, *, has_other: bool) -> bool:
        """Whether nothing is left to do for a node that is gone.

        :param has_other: a node of its name is here, with another uuid.
        """
        try:
            if not self.driver.is_node_deleted(name):
                what = "has another uuid now" if has_other else "is no longer managed here"
                self._say(uuid, f"Node {name} {what}; the providers of {uuid} are left.")
                return self.driver.rebalances_nodes
            with self.report.tracing():
                obstacle, for_good = self._remove(name, uuid)
        except errors.ResourceProviderInUse as error:
            obstacle, for_good = f"something of it was allocated meanwhile ({error})", False
        except Exception as error:
            LOG.warning(
                "Node %s is gone and its providers are not removed yet: %s",
                name,
                error,
                exc_info=not isinstance(error, errors.ComputeAgentError),
            )
            return False
        if obstacle:
            self._say(uuid, f"Node {name} is gone; its providers stay: {obstacle}.")
            return for_good
        LOG.info("Node %s is gone, and its providers are deleted.", name)
        self._conditions.is_over(uuid)
        return True

    def _remove(self, name: str, uuid: str) -> tuple[str, bool]:
        """Delete the tree of a node that is gone for good.

        :returns: why it cannot be, empty if it was; and whether that will not change.
        """
        before = self.report.known_tree(uuid)
        tree = self.report.get_provider_tree(uuid, fresh=True)
        if not tree.exists(uuid):
            return "", True
        members = tree.get_provider_uuids(uuid)
        if self.driver.rebalances_nodes and not _as_we_left_it(before, tree, uuid):
            return "another agent has written to them", True
        foreign = [
            provider.name
            for provider in map(tree.data, members)
            if not self.ledger.owns(provider.uuid) and not is_marked(provider)
        ]
        if foreign:
            return f"{', '.join(foreign)} was made by another service", False
        holders = {
            c for member in members for c in self.report.get_allocations_for_provider(member)
        }
        if holders:
            interval, now = self.interval(), time.monotonic()
            if 0 < interval <= now - self._told_at.get(uuid, -math.inf):
                self._told_at[uuid] = now
                self.on_holders(name, uuid, frozenset(holders))
            return (
                f"{len(holders)} consumer(s) hold something of them: "
                f"{', '.join(sorted(holders)[:5])}; see `compute-manage placement audit`",
                False,
            )
        self.report.delete_resource_provider(uuid)
        self.ledger.remember_providers(additions=(), removals=members)
        return "", True

    def _say(self, uuid: str, sentence: str) -> None:
        """Log what lasts once."""
        if self._conditions.is_new(uuid, sentence):
            LOG.info("%s", sentence)


def _as_we_left_it(before: ProviderTree | None, now: ProviderTree, root_uuid: str) -> bool:
    """Whether nobody else wrote to the providers since this agent last saw them.

    Generations do not decide it: a claim raises one and changes no content, and one that is known
    may come from a probe, which reads no content.
    """
    if before is None or not before.exists(root_uuid):
        return False
    uuids = now.get_provider_uuids(root_uuid)
    if set(uuids) != set(before.get_provider_uuids(root_uuid)):
        return False
    return all(
        (then.inventory, then.traits, then.aggregates)
        == (current.inventory, current.traits, current.aggregates)
        for then, current in ((before.data(uuid), now.data(uuid)) for uuid in uuids)
    )
