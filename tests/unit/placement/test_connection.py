"""One conversation with placement, over a transport that cannot reach it."""

import json
import random

import pytest

from compute_agent import errors
from compute_agent.placement.candidate_answers import Explanation
from compute_agent.placement.connection import Connection, Retries
from compute_agent.placement.transports.transport import Request, make_response
from tests.fixtures.clocks import WaitingClock

DOCUMENT = '{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}'


class Line:
    """Placement at the end of a line that may be cut."""

    def __init__(self) -> None:
        self.cut = False
        self.asked = 0

    def send(self, request):
        self.asked += 1
        if self.cut:
            raise errors.PlacementAPIConnectFailure("refused", path=request.path)
        return make_response(200, [("Content-Type", "application/json")], DOCUMENT)


class ReplacedPlacement:
    """Placement with extensions that is replaced by another one, whose answers are given.

    :ivar versions: how many times its versions were asked for.
    """

    def __init__(self, status: int, **headers: str) -> None:
        self._status, self._headers = status, headers
        self.versions = 0

    def send(self, request):
        if request.path == "/":
            self.versions += 1
            extended = json.loads(DOCUMENT) | {
                "extensions": [{"id": "placement-ext", "max_version": "1.1"}]
            }
            return make_response(200, [("Content-Type", "application/json")], json.dumps(extended))
        entry = {"status": self._status, "title": "", "detail": "no", "request_id": "req-1"}
        if self._status == 406:
            entry |= {"min_version": "1.0", "max_version": "1.39"}
        headers = [("Content-Type", "application/json"), *self._headers.items()]
        return make_response(self._status, headers, json.dumps({"errors": [entry]}))


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
def connection(line: Line, clock: WaitingClock) -> Connection:
    return Connection(line, Retries(clock, random.Random(1)))


def test_the_versions_are_asked_once_and_three_times_when_nobody_answers(connection, line, clock):
    connection.versions()
    connection.versions()
    assert line.asked == 1
    line.cut = True
    with pytest.raises(errors.PlacementUnavailable):
        connection.call(Request("GET", "/traits", doing="Asking"))
    line.asked = 0
    with pytest.raises(errors.PlacementUnavailable):
        connection.versions()
    assert (line.asked, len(clock.waits)) == (3, 4)


def test_whether_an_outage_is_over_is_asked_once_without_a_wait(connection, line, clock):
    connection.versions()
    line.cut = True
    line.asked = 0
    with pytest.raises(errors.PlacementUnavailable):
        connection.ask_again()
    assert (line.asked, clock.waits) == (1, [])
    assert connection.known_versions is None
    line.cut = False
    assert connection.ask_again().maximum == (1, 39)
    assert line.asked == 2


def counting(path: str) -> Request:
    error = errors.UsageRetrievalFailed
    return Request("GET", path, extensions=(1, 1), doing="Counting", error=error)


PLAIN = {"OpenStack-API-Version": "placement 1.39"}
EXTENDED = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}


@pytest.mark.parametrize(
    ("path", "status", "headers"),
    [
        ("/capacity", 406, EXTENDED),
        ("/capacity", 404, PLAIN),
        ("/allocation_candidates?explain=closest", 400, PLAIN),
    ],
)
def test_a_placement_that_lost_an_extension_is_asked_again_what_it_offers(path, status, headers):
    replaced = ReplacedPlacement(status, **headers)
    connection = Connection(replaced, use_extensions=True)
    assert connection.understands_extensions()
    with pytest.raises(errors.PlacementTooOld):
        connection.read(counting(path), Explanation)
    connection.understands_extensions()
    assert replaced.versions == 2


@pytest.mark.parametrize(("status", "headers"), [(400, EXTENDED), (404, EXTENDED), (400, PLAIN)])
def test_what_a_placement_refuses_although_it_has_the_extension_is_no_lost_extension(
    status, headers
):
    replaced = ReplacedPlacement(status, **headers)
    connection = Connection(replaced, use_extensions=True)
    connection.versions()
    with pytest.raises(errors.UsageRetrievalFailed):
        connection.read(counting("/capacity"), Explanation)
    connection.versions()
    assert replaced.versions == 1
