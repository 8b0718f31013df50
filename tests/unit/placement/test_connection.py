"""One conversation with placement, over a transport that cannot reach it."""

import random
from dataclasses import dataclass, field

import pytest

from compute_agent import errors
from compute_agent.placement.connection import Connection
from compute_agent.placement.retries import Retries
from compute_agent.placement.transports.transport import make_response

DOCUMENT = '{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}'


@dataclass
class Clock:
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return sum(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


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


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection(line: Line, clock: Clock) -> Connection:
    return Connection(line, Retries(clock, random.Random(1)))


def test_the_versions_are_asked_once_and_three_times_when_nobody_answers(connection, line, clock):
    connection.versions()
    connection.versions()
    assert line.asked == 1
    line.cut = True
    with pytest.raises(errors.PlacementUnavailable):
        connection.call("GET", "/traits", "Asking")
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
