"""The calls of placement about providers and allocations, over one connection."""

from __future__ import annotations

from compute_agent.placement.allocations.allocations import Allocations
from compute_agent.placement.connection import Connection
from compute_agent.placement.provider_trees import ProviderTrees
from compute_agent.placement.providers import MAX_LISTED, Providers


class PlacementApi:
    """What every client of placement is made of. Safe in several threads.

    :ivar connection: what all of them share: versions, repetition, counts.
    :param max_listed: uuids or names in one question about several.
    """

    def __init__(self, connection: Connection, *, max_listed: int = MAX_LISTED) -> None:
        self.connection = connection
        self.providers = Providers(connection, max_listed)
        self.trees = ProviderTrees(connection)
        self.allocations = Allocations(connection, self.providers)
