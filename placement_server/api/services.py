"""Services of the handlers, made once when the application starts."""

from __future__ import annotations

from msgspec import Struct

from placement_server.candidates.service import CandidateService
from placement_server.feed.service import ChangeFeed
from placement_server.policies.enforcer import Enforcer
from placement_server.store.agent_reports import GatheredReports
from placement_server.store.store import Store


class Services(Struct, frozen=True):
    """Everything that outlives a request.

    :param incomplete_project_id: the project of allocations written before 1.8.
    :param incomplete_user_id: the user of these allocations.
    :param max_body_size: the most bytes that a body may have.
    """

    store: Store
    agent_reports: GatheredReports
    candidates: CandidateService
    changes: ChangeFeed
    enforcer: Enforcer
    incomplete_project_id: str
    incomplete_user_id: str
    max_body_size: int
