"""Whole provider trees, read with one request, and the last reports of the agents of hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlencode

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.answers import (
    AgentReport,
    ReportList,
    Tree,
    TreeMember,
    UsedTreeMember,
    inventory_of,
)
from compute_agent.placement.connection import CONSUMER_TYPE, Connection
from compute_agent.placement.transports.transport import EXTENSIONS_VERSION, Request, Response

REPORT_HEADER: Final = "X-Compute-Agent-Report"
MOST_ROOTS: Final = 50
"""Hosts in one question; of more, all are asked for."""


class Part(Enum):
    """Parts of a tree that are left out unless they are asked for."""

    ALLOCATIONS = "allocations"
    USAGES = "usages"
    SHARING = "sharing"


class WholeTree(Struct, frozen=True):
    """A provider tree at one moment.

    :ivar etag: of its names, parents, inventories, traits and aggregates; claims leave it alone.
    :ivar providers: parents first; each with its inventories, traits and aggregates, and its
        usages where asked for.
    :ivar sharing_providers: where asked for, those of other trees that share with it by an
        aggregate; the etag covers them.
    :ivar allocations: where asked for, each consumer that has some of this tree: uuid -> its whole
        record, as the consumer itself is read.
    """

    etag: str
    providers: Sequence[Mapping[str, Any]]
    sharing_providers: Sequence[Mapping[str, Any]] = ()
    allocations: Mapping[str, dict[str, Any]] = {}


M = TypeVar("M", bound=TreeMember)


class UnchangedTree:
    """The answer that the tree is still the one that the caller knows."""


class ProviderTrees:
    """The reads of trees, and of reports about them, over one connection.

    :ivar own_report: returns what an agent reports of itself with the read of a tree, by the uuid
        of the root; None where the caller is not the agent of that host.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.own_report: Callable[[str], str | None] = lambda _root_uuid: None

    @property
    def is_offered(self) -> bool:
        """Whether placement announces this request and it is to be used."""
        return self._connection.understands_extensions()

    def read(
        self,
        uuid: str,
        *,
        etag: str | None = None,
        include: Collection[Part] = (),
        is_for_report: bool = False,
    ) -> WholeTree | UnchangedTree | None:
        """Return the tree that a provider is a member of, None when there is no such provider.

        :param include: what the answer has too.
        :param etag: of the tree that the caller knows; `UnchangedTree` is returned while it is so.
        :param is_for_report: read nothing where the caller has nothing to report with it.
        :raises errors.PlacementTooOld: placement does not have the request any more, as after a
            return to an older version; the next question about versions asks it again.
        """
        headers = {} if etag is None else {"If-None-Match": etag}
        if (report := self.own_report(uuid)) is not None:
            headers[REPORT_HEADER] = report
        elif is_for_report:
            return None
        request = Request(
            "GET",
            f"/provider_trees/{uuid}"
            + (f"?include={','.join(part.value for part in include)}" if include else ""),
            CONSUMER_TYPE,
            extensions=EXTENSIONS_VERSION,
            own_headers=headers,
            doing=f"Reading the provider tree of {uuid}",
            good=(200, 404) if etag is None else (200, 304, 404),
            error=errors.ResourceProviderRetrievalFailed,
        )
        response = self._connection.call(request)
        if response.status == 304:
            return UnchangedTree()
        if response.status == 404:
            return None
        if Part.USAGES in include:
            used_tree = responses.body_of(request, response, Tree[UsedTreeMember])
            return _tree_in(request, response, uuid, used_tree)
        tree = responses.body_of(request, response, Tree[TreeMember])
        return _tree_in(request, response, uuid, tree)

    def agent_reports(self, roots: Collection[str]) -> dict[str, AgentReport]:
        """Return the last report of the agents of hosts, by the uuid of the root.

        Of an agent that has never sent one there is none, and of none where placement keeps none.

        :param roots: the hosts that are asked for; others may be in the answer.
        :raises errors.PlacementError: placement cannot be read.
        """
        if not roots or not self._connection.understands_extensions():
            return {}
        query = [("root", root) for root in sorted(roots)] if len(roots) <= MOST_ROOTS else []
        request = Request(
            "GET",
            f"/agent_reports?{urlencode(query)}",
            extensions=EXTENSIONS_VERSION,
            doing="Reading the last reports of agents",
            good=(200, 404),
        )
        try:
            response = self._connection.call(request)
        except errors.PlacementTooOld:
            return {}
        if response.status == 404:
            return {}
        reports = responses.body_of(request, response, ReportList).agent_reports
        return {report.root_provider_uuid: report for report in reports}


def _tree_in(request: Request, response: Response, uuid: str, tree: Tree[M]) -> WholeTree:
    # a proxy that compresses answers makes it a weak one
    etag = response.headers.get("etag", "").removeprefix("W/")
    if not etag.startswith('"') or all(provider["uuid"] != uuid for provider in tree.providers):
        raise responses.malformed(request, response, f"the tree of {uuid} with its ETag")
    sharing_providers = _with_inventories(tree.sharing_providers)
    allocations = cast("dict[str, dict[str, Any]]", tree.allocations)
    return WholeTree(etag, _with_inventories(tree.providers), sharing_providers, allocations)


def _with_inventories(providers: Sequence[TreeMember]) -> list[dict[str, Any]]:
    """Return providers whose inventory records are those of a tree."""
    return [
        {**provider, "inventories": inventory_of(provider["inventories"])} for provider in providers
    ]
