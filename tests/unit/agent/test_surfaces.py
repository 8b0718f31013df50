"""Surfaces of the agent: status document, local socket, metrics; and what it remembers."""

import json
import os
import select
import socket
import stat
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from compute_agent import errors
from compute_agent.agent import local_socket, metrics
from compute_agent.agent.local_socket import AgentNotRunning, LocalServer
from compute_agent.daemon.trouble import Trouble
from compute_agent.programs.metrics_server import MetricsServer
from compute_agent.provider_tree import ProviderTree
from compute_agent.state.ledger import Ledger, ServiceState
from compute_agent.tracker.passes.corrections import Corrections, normalise, synchronise_traits
from compute_agent.tracker.status import PassOutcome, StatusBoard

UUID = "00000000-0000-4000-8000-000000000001"
OUTCOME = PassOutcome(
    at=1.0, seconds=0.5, requests=3, writes=1, providers=7, changes=2, outcome="completed"
)


def metrics_server(bind: str, board: StatusBoard) -> MetricsServer:
    registry = metrics.registry(board)
    return MetricsServer("[compute_agent]metrics_bind", bind, registry, errors.InvalidConfiguration)


@pytest.fixture
def board() -> StatusBoard:
    board = StatusBoard("agent1")
    board.set_node("host1", UUID, last_pass=OUTCOME, last_success=1.0, startup=False)
    board.count_request("GET", 200)
    board.count_request("GET", 200)
    board.count_request("PUT", 409)
    board.count_pass("completed", 0.5)
    board.placement_is(up=True, max_version="1.39")
    return board


def test_the_status_document_is_plain_json_with_times_as_text(board):
    document = json.loads(json.dumps(board.document()))
    assert document["host"] == "agent1"
    assert document["placement"]["up"] is True
    (node,) = document["nodes"]
    assert node["uuid"] == UUID
    assert node["last_pass"]["at"] == "1970-01-01T00:00:01+00:00"
    assert node["trouble"] is None
    assert document["totals"]["requests"] == {"GET 200": 2, "PUT 409": 1}


def test_placement_is_down_since_it_went_down(board):
    board.placement_is(up=False)
    first = board.placement.since
    board.placement_is(up=False)
    assert board.placement.since == first
    assert "cannot be reached" in board.summary()


def test_the_summary_names_the_trouble(board):
    assert board.summary() == "1 node(s) reported"
    board.set_node("host1", UUID, trouble=Trouble("the driver failed", "it did", 1.0, 1))
    assert "the driver failed" in board.summary()


def test_the_summary_names_the_nodes_whose_first_pass_is_waited_for(board):
    board.set_node("host2", UUID)
    assert board.summary() == "1 of 2 node(s) reported; waiting for the first pass of host2"
    board.set_node("host2", UUID, startup=False)
    assert board.summary() == "2 node(s) reported"


@contextmanager
def serving(path, commands=None, **options):
    """The path of a socket that is served."""
    server = LocalServer(path, commands or {"status": lambda: 1}, **options)
    server.start()
    try:
        yield path
    finally:
        server.stop()


@pytest.fixture
def served(tmp_path):
    def fail():
        raise errors.ComputeHostNotFound("there is no such node")

    def break_down():
        raise ZeroDivisionError

    def mistake():
        return len(1)

    commands = {"fail": fail, "break": break_down, "mistake": mistake}
    with serving(tmp_path / "s", {"echo": lambda **given: given, **commands}) as path:
        yield path


def test_a_command_on_the_socket_is_answered(served):
    assert local_socket.ask(served, "echo", 10, a=1) == {"a": 1}


@pytest.mark.parametrize(
    ("command", "said"),
    [("fail", "no such node"), ("break", "unexpectedly"), ("nonsense", "break, echo, fail")],
)
def test_a_command_that_fails_says_why(served, command, said):
    with pytest.raises(errors.ComputeAgentError, match=said):
        local_socket.ask(served, command, 10)


def test_arguments_that_a_command_does_not_take_are_told_and_a_defect_inside_is_logged(
    served, caplog
):
    with pytest.raises(errors.ComputeAgentError, match="unexpected keyword argument 'a'"):
        local_socket.ask(served, "fail", 10, a=1)
    assert not caplog.records
    with pytest.raises(errors.ComputeAgentError, match="see its log"):
        local_socket.ask(served, "mistake", 10)
    assert "The command mistake of the status socket failed" in caplog.text


def test_garbage_on_the_socket_is_answered_and_does_no_harm(served):
    for line in (b"\xff\n", b"[]\n", b'{"command": []}\n', b"{}\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(served))
            client.sendall(line)
            assert b"not understood" in client.makefile("rb").readline()
    assert local_socket.ask(served, "echo", 10) == {}


def test_a_client_that_says_nothing_or_too_slowly_is_hung_up_on(tmp_path):
    with serving(tmp_path / "s", read_timeout=0.3) as path:
        for said, pause in ((b"", 1), (b'{"command"', 1), (b" " * 10_000, 0.01)):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(str(path))
                for number in range(len(said) if pause < 1 else 1):
                    try:
                        client.sendall(said[number : number + 1] if pause < 1 else said)
                    except BrokenPipeError:
                        break
                    if select.select([client], [], [], pause)[0]:
                        break
                assert client.recv(1) == b""
        assert local_socket.ask(path, "status", 10) == 1


@pytest.mark.parametrize(
    ("owners", "is_allowed"), [(None, True), ((os.getuid(),), True), ((os.getuid() + 1,), False)]
)
def test_what_changes_the_host_is_refused_to_others_than_the_owners(
    tmp_path, caplog, owners, is_allowed
):
    changed = []
    commands = {"status": lambda: 1, "change": lambda: changed.append(1)}
    with serving(tmp_path / "s", commands, changes=["change"], owners=owners) as path:
        assert local_socket.ask(path, "status", 10) == 1
        if is_allowed:
            local_socket.ask(path, "change", 10)
        else:
            with pytest.raises(errors.ComputeAgentError, match=f"user id {os.getuid()} did"):
                local_socket.ask(path, "change", 10)
            assert f"to user id {os.getuid()}" in caplog.text
    assert bool(changed) is is_allowed


def test_the_socket_is_open_to_its_user_and_group_only(served):
    assert stat.S_IMODE(served.stat().st_mode) == 0o660


def test_clients_that_are_too_many_are_closed_and_the_others_answered(tmp_path):
    with serving(tmp_path / "s", read_timeout=60) as path, ExitStack() as connections:
        clients = []
        for _ in range(local_socket.MAX_CLIENTS + 1):
            clients.append(connections.enter_context(socket.socket(socket.AF_UNIX)))
            clients[-1].connect(str(path))
            clients[-1].settimeout(30)
        assert clients[-1].recv(1) == b"", "closed without an answer"
        with pytest.raises(errors.ComputeAgentError, match="64 clients are connected") as refused:
            local_socket.ask(path, "status", 30)
        assert not isinstance(refused.value, AgentNotRunning)
        clients[0].sendall(b'{"command": "status"}\n')
        assert clients[0].recv(100) == b'{"result": 1}\n'
        assert clients[0].recv(1) == b""


def test_without_an_agent_the_way_to_start_one_is_told(tmp_path):
    with pytest.raises(AgentNotRunning, match="compute-agent run"):
        local_socket.ask(tmp_path / "s", "status", 10)


def test_a_user_who_may_not_ask_is_told_who_may(tmp_path, monkeypatch):
    def refuse(_socket, _path):
        raise PermissionError(13, "Permission denied")

    # the user of the tests may be root, whom no socket refuses
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(AgentNotRunning, match="Only root, the user of the agent"):
        local_socket.ask(tmp_path / "s", "status", 10)


def test_a_stale_socket_is_replaced_and_a_stopped_server_leaves_none(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    with serving(tmp_path / "s") as path:
        assert local_socket.ask(path, "status", 10) == 1
    assert not path.exists()


def test_a_socket_path_that_is_too_long_is_a_configuration_error(tmp_path):
    with pytest.raises(errors.InvalidConfiguration, match="107 bytes"):
        LocalServer(tmp_path / ("x" * 108), {}).start()


def test_metrics_are_served_as_prometheus_reads_them(board):
    board.set_node("host1", UUID, reshape_pending=True, drift={"orphaned": ["a", "b"]})
    server = metrics_server("127.0.0.1:0", board)
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.stop()
    assert 'compute_agent_passes_total{outcome="completed"} 1.0' in text
    assert 'compute_agent_placement_requests_total{method="PUT",status="409"} 1.0' in text
    assert "compute_agent_placement_up 1.0" in text
    assert 'compute_agent_node_reshape_pending{node="host1"} 1.0' in text
    assert 'compute_agent_node_providers{node="host1"} 7.0' in text
    assert 'compute_agent_node_drift{kind="orphaned",node="host1"} 2.0' in text


def test_an_address_for_metrics_that_is_malformed_or_taken_is_a_configuration_error(board):
    with pytest.raises(errors.InvalidConfiguration, match="ADDRESS:PORT"):
        metrics_server("9101", board).start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(errors.InvalidConfiguration, match="cannot be served"):
            metrics_server(f"127.0.0.1:{taken.getsockname()[1]}", board).start()


def test_the_ledger_remembers_over_restarts(tmp_path):
    ledger = Ledger(tmp_path)
    assert ledger.service_state(default_enabled=False) == ServiceState(
        False, "new hosts start disabled"
    )
    ledger.remember_providers(["a", "b"])
    ledger.remember_providers([], removals=["b"])
    ledger.remember_additions({"a": {"traits": ["CUSTOM_B", "CUSTOM_A"], "inventories": []}})
    again = Ledger(tmp_path)
    assert again.owns("a")
    assert not again.owns("b")
    assert again.additions() == {"a": {"traits": ["CUSTOM_A", "CUSTOM_B"], "inventories": []}}
    assert not again.service_state(default_enabled=True).enabled, "the default is for a first start"
    again.set_service_state(ServiceState(True))
    assert Ledger(tmp_path).service_state(default_enabled=False).enabled


def test_nothing_is_written_when_nothing_changed(tmp_path):
    Ledger(tmp_path).remember_providers(["a"])
    before = (tmp_path / "ledger.json").stat()
    Ledger(tmp_path).remember_providers(["a"])
    assert (tmp_path / "ledger.json").stat().st_ino == before.st_ino


def tree_with(inventory) -> ProviderTree:
    tree = ProviderTree()
    tree.new_root("host1", UUID, 1)
    tree.update_inventory(UUID, inventory)
    return tree


def test_a_class_with_nothing_is_left_out_and_large_numbers_are_capped():
    tree = tree_with({"VCPU": {"total": 0}, "MEMORY_MB": {"total": 2**31, "max_unit": 2**31}})
    corrections = normalise(tree, [UUID])
    assert (len(corrections.capped), corrections.clamped) == (1, [])
    inventory = tree.data(UUID).inventory
    assert set(inventory) == {"MEMORY_MB"}
    assert inventory["MEMORY_MB"]["total"] == inventory["MEMORY_MB"]["max_unit"] == 2147483647


def test_a_reserve_above_the_total_is_clamped_and_reported():
    tree = tree_with({"MEMORY_MB": {"total": 10, "reserved": 512}})
    (sentence,) = normalise(tree, [UUID]).clamped
    assert "512" in sentence
    assert tree.data(UUID).inventory["MEMORY_MB"]["reserved"] == 10
    assert normalise(tree, [UUID]) == Corrections([], [])


def test_the_agents_traits_are_kept_in_step_and_all_others_left_alone():
    tree = tree_with({})
    child = tree.new_child("host1_NUMA0", UUID)
    foreign = tree.new_child("host1:agent", UUID)
    tree.update_traits(UUID, ["CUSTOM_OPERATORS", "COMPUTE_RESCUE_BFV", "COMPUTE_STATUS_DISABLED"])
    capabilities = {
        "COMPUTE_RESCUE_BFV": False,
        "COMPUTE_NODE": True,
        "COMPUTE_DEVICE_TAGGING": True,
    }
    synchronise_traits(
        tree, UUID, capabilities=capabilities, is_enabled=True, owned_uuids={UUID, child}
    )
    assert tree.data(UUID).traits == {
        "CUSTOM_OPERATORS",
        "COMPUTE_NODE",
        "COMPUTE_DEVICE_TAGGING",
        "OWNER_NOVA",
    }
    assert tree.data(child).traits == {"OWNER_NOVA"}
    assert tree.data(foreign).traits == frozenset()
    synchronise_traits(tree, UUID, capabilities={}, is_enabled=False, owned_uuids={UUID})
    assert "COMPUTE_STATUS_DISABLED" in tree.data(UUID).traits


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_is_not_a_socket_is_not_replaced_by_one(tmp_path, kind):
    path, target = tmp_path / "s", tmp_path / "target"
    target.write_text("content")
    if kind == "file":
        path.write_text("content")
    elif kind == "link":
        path.symlink_to(target)
    else:
        path.mkdir()
    with pytest.raises(errors.InvalidConfiguration, match=r"is not a socket.*status_socket"):
        LocalServer(path, {}).start()
    assert target.read_text() == "content"
    assert path.is_symlink() == (kind == "link")
    if kind == "file":
        assert path.read_text() == "content"


def test_the_socket_of_an_agent_that_runs_is_not_taken(tmp_path):
    with serving(tmp_path / "s") as path:
        with pytest.raises(errors.InvalidConfiguration, match="another agent serves"):
            LocalServer(path, {"status": lambda: 2}).start()
        assert local_socket.ask(path, "status", 10) == 1


def test_a_server_whose_socket_another_replaced_stops_and_leaves_that_one(tmp_path):
    with socket.socket(socket.AF_UNIX) as other:
        with serving(tmp_path / "s") as path:
            path.unlink()
            other.bind(str(path))
        assert path.is_socket()
