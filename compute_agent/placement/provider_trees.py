"""Whole provider trees, read and replaced with one request, where placement has that extension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from compute_agent import errors
from compute_agent.placement import response_schemas, responses
from compute_agent.placement.connection import (
    CONSUMER_TYPE,
    RESHAPE_TIMEOUT,
    Connection,
)
from compute_agent.placement.transports.transport import Microversion, Request, Response

SINCE: Final[Microversion] = (1, 1)
"""The version of the extensions that brought these requests."""


@dataclass(frozen=True, slots=True)
class WholeTree:
    """A provider tree at one moment.

    :ivar etag: of its names, parents, inventories, traits and aggregates; claims leave it alone.
    :ivar providers: parents first; each with its inventories, traits and aggregates.
    :ivar allocations: consumer uuid -> record of what it has in this tree, where asked for.
    """

    etag: str
    providers: Sequence[Mapping[str, Any]]
    allocations: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The answer that the tree is still the one that the caller knows."""


class ProviderTrees:
    """The requests for whole trees over one connection.

    Every method raises ``PlacementTooOld`` when placement does not have them any more, as after a
    return to an older version; the next question about versions asks it again.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def is_offered(self) -> bool:
        """Whether placement announces these requests and they are to be used."""
        return self._connection.understands_extensions(SINCE)

    def read(
        self, uuid: str, *, etag: str | None = None, allocations: bool = False
    ) -> WholeTree | Unchanged | None:
        """Return the tree that a provider is a member of, None when there is no such provider.

        :param etag: of the tree that the caller knows; `Unchanged` is returned while it is that.
        """
        request = Request(
            "GET",
            _path(uuid) + ("?include=allocations" if allocations else ""),
            CONSUMER_TYPE,
            extensions=SINCE,
            conditions={} if etag is None else {"If-None-Match": etag},
            doing=f"Reading the provider tree of {uuid}",
            good=(200, 404) if etag is None else (200, 304, 404),
            shape=response_schemas.PROVIDER_TREE,
            error=errors.ResourceProviderRetrievalFailed,
        )
        response = self._connection.call(request)
        if response.status == 304:
            return Unchanged()
        return None if response.status == 404 else _tree_in(request, response, uuid)

    def replace(
        self, root_uuid: str, body: Mapping[str, Any], etag: str | None, *, repeat: bool = True
    ) -> WholeTree:
        """Change a tree, and what consumers have of it, in one transaction.

        A request that had no answer may be repeated: when it was carried out after all, that is a
        conflict, and the tree that the caller reads then is the one wanted.

        :param etag: of the tree as the caller knows it; None: there must be none.
        :raises errors.ResourceProviderUpdateConflict: the tree is another by now.
        :raises errors.PlacementReshapeConflict: a consumer is.
        :raises errors.ResourceProviderUpdateFailed: refused; nothing was changed.
        """
        request = Request(
            "PUT",
            _path(root_uuid),
            CONSUMER_TYPE,
            body,
            timeout=RESHAPE_TIMEOUT,
            extensions=SINCE,
            conditions={"If-None-Match": "*"} if etag is None else {"If-Match": etag},
            doing=f"Replacing the provider tree of {root_uuid}",
            shape=response_schemas.PROVIDER_TREE,
            error=errors.ResourceProviderUpdateFailed,
            refusals={
                412: errors.ResourceProviderUpdateConflict,
                responses.CONCURRENT_UPDATE: errors.PlacementReshapeConflict,
            },
            repeat=repeat,
        )
        return _tree_in(request, self._connection.call(request), root_uuid)


def _tree_in(request: Request, response: Response, uuid: str) -> WholeTree:
    providers = response.json["providers"]
    # a proxy that compresses answers makes it a weak one
    etag = response.headers.get("etag", "").removeprefix("W/")
    if not etag.startswith('"') or all(provider["uuid"] != uuid for provider in providers):
        raise responses.malformed(request, response, f"the tree of {uuid} with its ETag")
    return WholeTree(etag, providers, response.json.get("allocations", {}))


def _path(uuid: str) -> str:
    return f"/provider_trees/{uuid}"
