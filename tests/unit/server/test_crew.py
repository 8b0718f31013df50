"""Workers that hand each other connections."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from placement_server.cmd.crew import Crew


class Client:
    """One end of a connection; a worker has the other."""

    def __init__(self) -> None:
        self.end, self.connection = socket.socketpair()
        self.end.settimeout(30)


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.end.close()
    made.connection.close()


def crew_of(*loads: int) -> Crew:
    crew = Crew(len(loads))
    for seat, load in enumerate(loads):
        crew.report(seat, load)
    return crew


def test_a_connection_goes_to_the_worker_with_least_to_do_unread(client: Client) -> None:
    crew = crew_of(3, 2, 1, 2)
    client.end.sendall(b"GET /")
    assert crew.hand_over(client.connection, 0)
    assert crew.take(1) is None
    taken = crew.take(2)
    assert taken is not None
    with taken:
        taken.setblocking(True)
        assert taken.recv(100) == b"GET /"
        taken.sendall(b"200 OK")
        assert client.end.recv(100) == b"200 OK"
    assert client.connection.fileno() == -1
    assert client.end.recv(100) == b""


@pytest.mark.parametrize("others", [1, 2])
def test_it_stays_where_nobody_has_less_to_do(client: Client, others: int) -> None:
    crew = crew_of(1, others, others)
    assert not crew.hand_over(client.connection, 0)
    client.connection.sendall(b"still here")
    assert client.end.recv(100) == b"still here"


def test_nothing_goes_to_seats_without_a_worker(client: Client) -> None:
    crew = Crew(2)
    crew.report(0, 5)
    assert not crew.hand_over(client.connection, 0)
    crew.report(1, 0)
    crew.leave(1)
    assert not crew.hand_over(client.connection, 0)


def test_a_worker_that_takes_nothing_is_given_one_at_most(client: Client) -> None:
    crew, another = crew_of(1, 0), Client()
    assert crew.hand_over(client.connection, 0)
    assert not crew.hand_over(another.connection, 0)
    taken = crew.take(1)
    assert taken is not None
    assert crew.hand_over(another.connection, 0)


def test_what_waits_for_a_worker_that_is_gone_is_closed(client: Client) -> None:
    crew = crew_of(1, 0)
    assert crew.hand_over(client.connection, 0)
    crew.clear(1)
    assert client.end.recv(100) == b""
    assert not crew.hand_over(Client().connection, 0)


def test_the_inbox_is_readable_when_somebody_waits(client: Client) -> None:
    crew = crew_of(1, 0)
    with pytest.raises(BlockingIOError):
        crew.inbox(1).recv(1, socket.MSG_PEEK)
    assert crew.hand_over(client.connection, 0)
    assert crew.inbox(1).recv(1, socket.MSG_PEEK)


def test_a_worker_that_may_not_open_more_files_says_so(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    crew = crew_of(1, 0)
    assert crew.hand_over(client.connection, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert crew.take(1) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "LimitNOFILE" in caplog.text


def test_a_connection_that_cannot_be_sent_stays(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    crew = crew_of(1, 0)
    client.connection.close()
    assert not crew.hand_over(client.connection, 0)
    assert "Kept a connection" in caplog.text


def test_seats_are_taken_once() -> None:
    crew = Crew(2)
    assert crew.free_seat([]) == 0
    assert crew.free_seat([0, None]) == 1
    assert crew.free_seat([1]) == 0
    assert crew.free_seat([0, 1]) is None
