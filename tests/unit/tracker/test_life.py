"""The small parts of a daemon's life: fair locks, due passes, signals, the service manager."""

import os
import resource
import signal
import socket
import threading

import pytest

from compute_agent.daemon import signals
from compute_agent.programs.systemd import LONGEST_NOTICE, ServiceManager
from compute_agent.tracker.node import FairLock
from compute_agent.tracker.pass_schedule import NEVER, PassSchedule
from tests.fixtures.clocks import ManualClock


def test_a_fair_lock_serves_in_the_order_of_arrival():
    lock, served = FairLock(), []

    def work(number: int) -> None:
        with lock:
            served.append(number)

    lock.acquire()
    threads = []
    for number in range(5):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        threads.append(thread)
        while len(lock._waiting_turns) <= number:
            thread.join(0.001)
    lock.release()
    for thread in threads:
        thread.join()
    assert served == [0, 1, 2, 3, 4]


def test_releasing_a_lock_that_is_not_held_is_an_error():
    with pytest.raises(RuntimeError):
        FairLock().release()


def test_a_node_is_due_at_its_time_and_again_after_its_period():
    clock = ManualClock(1000.0)
    schedule = PassSchedule(clock)
    schedule.set_nodes(["a"], first_due=1005.0)
    schedule.set_nodes(["a", "b"], first_due=1100.0)
    assert schedule.take_due() == []
    assert schedule.seconds_to_next() == 5.0
    clock.now = 1005.0
    assert schedule.take_due() == [("a", frozenset())]
    assert schedule.take_due() == [], "it runs already"
    assert schedule.seconds_to_next() == 95.0
    assert schedule.running_nodes() == ["a"]
    schedule.finish("a", next_due=1065.0)
    assert schedule.seconds_to_next() == 60.0
    schedule.trigger("report", "b")
    assert schedule.seconds_to_next() == 0.0


def test_triggers_during_a_pass_are_merged_into_one_more_pass():
    schedule = PassSchedule(ManualClock(1000.0))
    schedule.set_nodes(["a"], first_due=0.0)
    schedule.take_due()
    for reason in ("claim", "claim", "device"):
        schedule.trigger(reason, "a")
    assert schedule.take_due() == []
    schedule.finish("a", next_due=NEVER)
    assert schedule.seconds_to_next() == 0.0
    assert schedule.take_due() == [("a", frozenset({"claim", "device"}))]
    schedule.finish("a", next_due=NEVER)
    assert schedule.take_due() == []
    assert schedule.seconds_to_next() == NEVER


def test_a_trigger_without_a_node_is_for_all_and_an_unknown_node_is_told():
    schedule = PassSchedule(ManualClock(1000.0))
    schedule.set_nodes(["a", "b"], first_due=NEVER)
    assert schedule.trigger("reload")
    assert [node for node, _ in schedule.take_due()] == ["a", "b"]
    assert not schedule.trigger("report", "c")


def test_nodes_come_and_go():
    schedule = PassSchedule(ManualClock(1000.0))
    assert schedule.set_nodes(["a"], first_due=0.0) == []
    assert schedule.set_nodes(["a", "b"], first_due=NEVER) == []
    assert schedule.set_nodes(["b", "c"], first_due=0.0) == ["a"]
    assert schedule.take_due() == [("c", frozenset())]


def test_a_node_that_goes_during_its_pass_stays_until_that_has_ended():
    schedule = PassSchedule(ManualClock(1000.0))
    schedule.set_nodes(["a", "b"], first_due=0.0)
    schedule.take_due()
    schedule.finish("b", next_due=NEVER)
    assert schedule.set_nodes([], first_due=NEVER) == ["b"]
    assert schedule.set_nodes(["a"], first_due=NEVER) == []
    request = schedule.request_pass("report", "a")
    schedule.finish("a", next_due=NEVER)
    assert not schedule.wait_for_passes([request], 0.0), "it began before it was asked for"
    assert schedule.set_nodes([], first_due=NEVER) == ["a"]


def test_a_pass_of_a_node_that_goes_is_not_waited_for():
    schedule = PassSchedule(ManualClock(1000.0))
    schedule.set_nodes(["a"], first_due=NEVER)
    request = schedule.request_pass("report", "a")
    waiting = threading.Thread(target=schedule.wait_for_passes, args=([request], 300.0))
    waiting.start()
    while not schedule._mutex._waiters:
        waiting.join(0.001)
    schedule.set_nodes([], first_due=NEVER)
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_signal_calls_its_handler_in_a_thread_and_the_old_handlers_come_back():
    seen = threading.Event()
    caller = []

    def handle() -> None:
        caller.append(threading.current_thread())
        seen.set()

    before = signal.getsignal(signal.SIGUSR2)
    with signals.handle({signal.SIGUSR2: handle}):
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen.wait(10)
    assert caller[0] is not threading.main_thread()
    assert signal.getsignal(signal.SIGUSR2) == before


def test_a_handler_that_fails_does_not_stop_the_next_signal():
    seen = threading.Event()

    def fail() -> None:
        raise ValueError("a broken handler")

    with signals.handle({signal.SIGUSR1: fail, signal.SIGUSR2: seen.set}):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen.wait(10)


def test_a_stop_is_served_while_another_handler_hangs():
    go_on, stop = threading.Event(), threading.Event()
    with signals.handle({signal.SIGUSR2: go_on.wait, signal.SIGTERM: stop.set}):
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        go_on.set()


def test_a_stop_is_served_where_no_thread_can_be_started(monkeypatch):
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    stop = threading.Event()
    with signals.handle({signal.SIGTERM: stop.set}):
        monkeypatch.setattr(threading.Thread, "start", fail)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(10)
        yield listener, str(tmp_path / "notify")


def test_the_service_manager_is_told_what_happens(manager):
    listener, address = manager
    told = ServiceManager({"NOTIFY_SOCKET": address})
    told.ready("2 nodes")
    assert listener.recv(1024) == b"READY=1\nSTATUS=2 nodes"
    told.reloading()
    assert listener.recv(1024).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    told.watchdog()
    assert listener.recv(1024) == b"WATCHDOG=1"
    told.stopping()
    assert listener.recv(1024).startswith(b"STOPPING=1")


def test_a_status_of_several_lines_or_too_long_is_one_line_that_the_service_manager_takes(manager):
    listener, address = manager
    # not a letter may be cut in two
    ServiceManager({"NOTIFY_SOCKET": address}).ready(f"refused:\nSTOPPING=1 {'é' * 4096}")
    notice = listener.recv(65536)
    assert len(notice) <= LONGEST_NOTICE
    state, status = notice.decode().splitlines()
    assert state == "READY=1"
    assert status.startswith("STATUS=refused: STOPPING=1 éé")


def test_a_notice_for_which_there_is_no_descriptor_stops_nothing(manager):
    listener, address = manager
    told = ServiceManager({"NOTIFY_SOCKET": address})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        told.stopping()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told.watchdog()
    assert listener.recv(1024) == b"WATCHDOG=1"


def test_without_a_service_manager_nothing_happens(tmp_path):
    ServiceManager({}).ready("fine")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("fine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_fed_only_if_it_watches_this_process(variables, seconds):
    assert ServiceManager(variables).watchdog_seconds == seconds
