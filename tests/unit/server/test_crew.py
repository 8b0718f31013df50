"""Workers that hand each other connections."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from placement_server.cmd.crew import FULL, Crew


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


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leaver(socket.socket):
    """A connection; while it is handed over, the worker on seat 1 leaves."""

    crew: Crew

    def fileno(self) -> int:
        self.crew.clear(1)
        return super().fileno()


def crew_of(*loads: int, turns: int = 1, clock: Clock | None = None) -> Crew:
    crew = Crew(len(loads), turns, clock or Clock())
    for seat, load in enumerate(loads):
        crew.report(seat, load)
    return crew


def test_a_connection_goes_to_the_worker_with_least_to_do_unread(client: Client) -> None:
    crew = crew_of(3, 2, 1, 2)
    client.end.sendall(b"GET /")
    assert crew.hand_over(client.connection, 3)
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
    assert not crew.hand_over(client.connection, 1)
    client.connection.sendall(b"still here")
    assert client.end.recv(100) == b"still here"


def test_nothing_goes_to_seats_without_a_worker(client: Client) -> None:
    crew = Crew(2, 1)
    crew.report(0, 5)
    assert not crew.hand_over(client.connection, 5)
    crew.report(1, 0)
    crew.leave(1)
    assert not crew.hand_over(client.connection, 5)


def test_a_worker_that_takes_nothing_is_given_one_at_most(client: Client) -> None:
    crew, another = crew_of(1, 0), Client()
    assert crew.hand_over(client.connection, 1)
    assert not crew.hand_over(another.connection, 1)
    taken = crew.take(1)
    assert taken is not None
    assert crew.hand_over(another.connection, 1)


def test_a_worker_that_takes_nothing_does_not_keep_others_from_it(client: Client) -> None:
    crew = crew_of(2, 0, 1)
    assert crew.hand_over(Client().connection, 2)
    assert crew.hand_over(client.connection, 2)
    assert crew.take(2) is not None


def test_loads_are_evened_out_at_most_every_50_ms(client: Client) -> None:
    clock = Clock()
    crew, another = crew_of(4, 2, turns=8, clock=clock), Client()
    assert crew.hand_over(client.connection, 4)
    assert crew.take(1) is not None
    clock.now += 0.049
    assert not crew.hand_over(another.connection, 4)
    clock.now += 0.002
    assert crew.hand_over(another.connection, 4)


def test_who_would_have_to_wait_here_and_not_there_goes_at_once() -> None:
    crew = crew_of(8, 7, turns=8)
    for _ in range(3):
        assert crew.hand_over(Client().connection, 8)
        assert crew.take(1) is not None


def test_nothing_goes_to_a_worker_that_is_full(client: Client) -> None:
    crew = crew_of(1, FULL)
    assert not crew.hand_over(client.connection, 1)
    crew.report(1, 0)
    assert crew.hand_over(client.connection, 1)


def test_what_waits_for_a_worker_that_is_gone_goes_to_another(client: Client) -> None:
    crew = crew_of(3, 0, 2)
    assert crew.hand_over(client.connection, 3)
    crew.clear(1)
    assert crew.take(1) is None
    assert crew.take(2) is not None


def test_what_waits_for_a_worker_that_is_gone_is_closed_when_there_is_no_other(
    client: Client,
) -> None:
    crew = crew_of(1, 0)
    assert crew.hand_over(client.connection, 1)
    crew.leave(0)
    crew.clear(1)
    assert client.end.recv(100) == b""
    assert not crew.hand_over(Client().connection, 1)


def test_nothing_is_left_with_a_worker_that_goes_while_it_is_given_something(
    client: Client,
) -> None:
    leaver = Leaver(fileno=client.connection.detach())
    leaver.crew = crew_of(1, 0)
    assert leaver.crew.hand_over(leaver, 1)
    # Back with the one that gave it away, as there is nobody else.
    taken = leaver.crew.take(0)
    assert taken is not None
    taken.sendall(b"still here")
    assert client.end.recv(100) == b"still here"


def test_programs_that_a_worker_starts_do_not_get_its_connections(client: Client) -> None:
    crew = crew_of(1, 0)
    assert crew.hand_over(client.connection, 1)
    taken = crew.take(1)
    assert taken is not None
    assert not taken.get_inheritable()


def test_the_inbox_is_readable_when_somebody_waits(client: Client) -> None:
    crew = crew_of(1, 0)
    with pytest.raises(BlockingIOError):
        crew.inbox(1).recv(1, socket.MSG_PEEK)
    assert crew.hand_over(client.connection, 1)
    assert crew.inbox(1).recv(1, socket.MSG_PEEK)


def test_a_worker_that_may_not_open_more_files_says_so(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    crew = crew_of(1, 0)
    assert crew.hand_over(client.connection, 1)
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
    assert not crew.hand_over(client.connection, 1)
    assert "Kept a connection" in caplog.text


def test_seats_are_taken_once() -> None:
    crew = Crew(2, 1)
    assert crew.free_seat([]) == 0
    assert crew.free_seat([0, None]) == 1
    assert crew.free_seat([1]) == 0
    assert crew.free_seat([0, 1]) is None
