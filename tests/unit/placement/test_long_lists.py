"""Lists that would make a URL too long are asked for in several requests."""

import json
import uuid as uuidlib
from urllib.parse import parse_qs, urlsplit

import pytest

from compute_agent.placement.connection import Connection
from compute_agent.placement.providers import MAX_LISTED, Providers
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.report.client import ReportClient


class AllKnowing:
    """Knows every trait and every aggregate that it is asked about."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []

    def send(self, request: Request) -> Response:
        parts = urlsplit(request.path)
        query = parse_qs(parts.query)
        wanted = query.get("name") or query["member_of"]
        names = wanted[0].removeprefix("in:").split(",")
        self.lists.append(names)
        body = {"/traits": {"traits": names}}.get(parts.path, {"resource_providers": []})
        return make_response(200, [], json.dumps(body))


@pytest.mark.parametrize(
    ("amount", "sizes"), [(1, [1]), (200, [200]), (201, [200, 1]), (401, [200, 200, 1])]
)
def test_traits_are_asked_for_200_at_a_time_and_each_once(amount, sizes):
    placement = AllKnowing()
    wanted = {f"CUSTOM_{number:04}" for number in range(amount)}
    assert Providers(Connection(placement)).known_traits(wanted) == wanted
    assert [len(names) for names in placement.lists] == sizes
    assert {name for names in placement.lists for name in names} == wanted


def test_how_many_are_asked_for_at_a_time_is_up_to_the_caller():
    placement = AllKnowing()
    Providers(Connection(placement), max_listed=2).known_traits(["A", "B", "C"])
    assert placement.lists == [["A", "B"], ["C"]]


def test_no_traits_are_no_request():
    placement = AllKnowing()
    assert Providers(Connection(placement)).known_traits([]) == set()
    assert placement.lists == []


def test_sharing_providers_are_asked_for_200_aggregates_at_a_time():
    placement = AllKnowing()
    aggregates = {str(uuidlib.UUID(int=number)) for number in range(MAX_LISTED + 1)}
    Providers(Connection(placement)).sharing(aggregates)
    assert [len(names) for names in placement.lists] == [200, 1]


def test_the_client_asks_for_as_many_when_nothing_else_is_said():
    placement = AllKnowing()
    client = ReportClient(placement)
    client.names.ensure_traits([f"CUSTOM_{number}" for number in range(201)])
    client.close()
    assert [len(names) for names in placement.lists] == [200, 1]
