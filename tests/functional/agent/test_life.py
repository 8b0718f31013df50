"""The life of the real process: signals, reloads, kills, and what it tells those who watch it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.fixtures.ports import free_port
from tests.functional.agent.processes import PLAIN_API, eventually, read_url, running, vcpus

pytestmark = pytest.mark.waiting

PROGRAM = "compute_agent.cmd.agent.main"


def test_sigint_ends_it_like_sigterm(placement, new_agent):
    with running(new_agent(placement.url)) as agent:
        assert agent.stop(signal.SIGINT) == 0


def test_sigterm_while_it_waits_for_placement_ends_it_at_once(new_agent):
    agent = new_agent("http://127.0.0.1:1")
    agent.start()
    eventually(lambda: "cannot be reached" in agent.logged(), "a warning")
    assert agent.stop() == 0
    assert agent.logged().count("WARNING") == 1, "one line when placement goes away"


def test_sigterm_during_the_random_delay_of_the_first_pass_ends_it_at_once(placement, new_agent):
    agent = new_agent(placement.url, DEFAULT={"periodic_fuzzy_delay": 100000})
    agent.start()
    eventually(lambda: "periodic_fuzzy_delay" in agent.logged(), "the delay")
    assert agent.stop() == 0
    assert "Traceback" not in agent.logged()


def test_a_report_does_not_wait_for_the_random_delay_of_the_first_pass(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"periodic_fuzzy_delay": 100000})
    agent.start()
    eventually(agent.status, "an answer")
    assert agent.run("report").returncode == 0
    assert vcpus(placement, node) == 8
    assert agent.stop() == 0


def test_sigterm_ends_it_behind_a_log_that_nobody_reads(new_agent):
    agent = new_agent("http://127.0.0.1:1", DEFAULT={"periodic_fuzzy_delay": 100000})
    os.mkfifo(agent.log)
    reader = os.open(agent.log, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(agent.log, os.O_WRONLY | os.O_NONBLOCK)
    agent.start()
    eventually(agent.status, "an answer")
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while os.write(writer, b"." * size):
                pass
    assert agent.stop() == 0
    os.close(reader)
    os.close(writer)


def test_sigterm_ends_it_while_it_dumps_its_state_into_a_pipe_that_nobody_reads(new_agent):
    agent = new_agent("http://127.0.0.1:1", DEFAULT={"periodic_fuzzy_delay": 100000})
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"." * 4096):
            pass
    os.set_blocking(writer, True)
    with agent.log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, "run", "--config-file", str(agent.config)],
            stdout=output,
            stderr=writer,
            env=agent.environment(),
        )
    try:
        eventually(agent.status, "an answer")
        process.send_signal(signal.SIGUSR2)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


def test_sighup_reloads_options_and_provider_config_files_in_place(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    with running(agent):
        pid = agent.process.pid
        config = agent.directory / "provider_config"
        config.mkdir()
        (config / "a.yaml").write_text(
            "meta: {schema_version: '1.0'}\nproviders:\n- identification: {uuid: $COMPUTE_NODE}\n"
            "  traits: {additional: [CUSTOM_COLD_AISLE]}\n"
        )
        agent.configure(compute_agent={"audit_grace": 77})
        agent.send(signal.SIGHUP)
        eventually(
            lambda: "CUSTOM_COLD_AISLE" in placement.tree(node)[node]["traits"],
            "the trait of the file",
        )
        assert "audit_grace: None -> '77'" in agent.logged()
        assert agent.process.pid == pid
        assert agent.process.poll() is None
        (config / "a.yaml").unlink()
        agent.send(signal.SIGHUP)
        eventually(
            lambda: "CUSTOM_COLD_AISLE" not in placement.tree(node)[node]["traits"],
            "what left the files taken back",
        )
        assert agent.stop() == 0


def test_sighup_is_no_start_so_a_reshape_stays_pending(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.script(nodes=[node], reshape="once")
        agent.send(signal.SIGHUP)
        eventually(lambda: agent.node()["reshape_pending"], "the pending reshape")
        assert "VGPU" in placement.tree(node)[node]["inventories"]
        assert agent.stop() == 0


def test_a_reload_that_fails_keeps_what_was_and_says_so(placement, new_agent, node):
    with running(new_agent(placement.url)) as agent:
        agent.configure(compute_agent={"audit_grace": "long"})
        agent.send(signal.SIGHUP)
        eventually(lambda: "stay in force" in agent.logged(), "the error")
        agent.script(nodes=[node], inventory={"VCPU": {"total": 9}})
        eventually(lambda: vcpus(placement, node) == 9, "passes going on")
        assert "Reloaded" not in agent.logged()
        assert "[compute_agent]audit_grace" in agent.status()["reload"]["message"]
        agent.configure(compute_agent={"audit_grace": 77})
        agent.send(signal.SIGHUP)
        eventually(lambda: agent.status()["reload"] is None, "the end of the trouble")
        assert "Reloaded" in agent.logged()


def test_sigusr2_dumps_status_threads_and_options_without_secrets(placement, new_agent):
    agent = new_agent(placement.url, placement={"password": "hunter2"})
    with running(agent):
        agent.send(signal.SIGUSR2)
        eventually(lambda: "state of compute-agent: end" in agent.logged(), "the dump")
        for part in ("thread MainThread", "update_resources_interval", '"last_pass"'):
            assert part in agent.logged()
        assert "hunter2" not in agent.logged()
        assert agent.stop() == 0


def test_a_killed_agent_starts_from_its_state_with_one_probe_and_changes_nothing(
    placement, proxy, new_agent, node
):
    agent = new_agent(proxy.url, DEFAULT={"update_resources_interval": -1})
    agent.script(nodes=[node], children={"NUMA0": {"VCPU": {"total": 4}}})
    with running(agent):
        agent.process.kill()
        agent.process.wait()
    before, asked = placement.tree(node), len(proxy.requests)
    with running(agent):
        sent = proxy.requests[asked:]
        assert not [request for request in sent if not request.startswith("GET ")]
        assert len([request for request in sent if request != "GET /"]) == 1, sent
        assert placement.tree(node) == before


def test_a_kill_after_any_write_of_a_flush_is_made_good_by_the_next_starts(
    placement, proxy, new_agent, node
):
    agent = new_agent(
        proxy.url,
        DEFAULT={"update_resources_interval": -1},
        compute_agent={"placement_connections": 1} | PLAIN_API,
    )
    agent.script(nodes=[node], children={f"NUMA{n}": {"VCPU": {"total": 4}} for n in range(2)})

    def started_and_killed() -> bool:
        # the write reaches placement, but the agent is killed before it hears of it
        held = proxy.hold("POST|PUT", ".*")
        agent.start()
        eventually(lambda: held.is_set() or agent.finished_first_pass(), "a write or a pass")
        if held.is_set():
            agent.cleanup()
        proxy.honest()
        return held.is_set()

    kills = 0
    while started_and_killed():
        kills += 1
    assert kills >= 6, "three providers to create, and their traits and inventories"
    tree = placement.tree(node)
    assert set(tree) == {node, f"{node}_NUMA0", f"{node}_NUMA1"}
    assert all(tree[f"{node}_NUMA{n}"]["inventories"]["VCPU"]["total"] == 4 for n in range(2))
    assert tree[node]["inventories"]["VCPU"]["total"] == 8
    assert agent.run("plan").returncode == 0


@pytest.mark.parametrize("asked", [1, 2])
def test_sigterm_in_the_middle_of_a_flush_finishes_it_and_a_second_one_leaves_a_legal_state(
    placement, proxy, new_agent, node, asked
):
    agent = new_agent(
        proxy.url,
        DEFAULT={"update_resources_interval": -1},
        compute_agent={"placement_connections": 1} | PLAIN_API,
    )
    children = {f"NUMA{n}": {"VCPU": {"total": 4}} for n in range(2)}
    agent.script(nodes=[node], children=children)
    reached, go_on = proxy.pause("POST", "/resource_providers$")
    agent.start()
    eventually(reached.is_set, "a flush that has begun")
    agent.send(signal.SIGTERM)
    eventually(lambda: "a running pass is finished first" in agent.logged(), "the stop")
    if asked == 2:
        agent.send(signal.SIGTERM)
        assert agent.ended() == 0
        assert "is abandoned" in agent.logged()
        go_on.set()
        assert set(placement.tree(node)) < {node, f"{node}_NUMA0", f"{node}_NUMA1"}
        proxy.honest()
        with running(agent):
            agent.stop()
    else:
        go_on.set()
        assert agent.ended() == 0
    tree = placement.tree(node)
    assert set(tree) == {node, f"{node}_NUMA0", f"{node}_NUMA1"}
    assert all(tree[f"{node}_NUMA{n}"]["inventories"]["VCPU"]["total"] == 4 for n in range(2))
    assert "COMPUTE_NODE" in tree[node]["traits"]
    assert agent.run("plan").returncode == 0


def test_metrics_are_served_where_configured(placement, new_agent, node):
    bind = f"127.0.0.1:{free_port()}"
    with running(new_agent(placement.url, compute_agent={"metrics_bind": bind})):
        text = read_url(f"http://{bind}/metrics")
        assert f'compute_agent_node_providers{{node="{node}"}} 1.0' in text
        assert "compute_agent_placement_up 1.0" in text
        stages = re.findall(r'pass_stage_seconds_count\{stage="(\w+)"\}', text)
        assert {"discover", "read", "layout", "flush"} <= set(stages)
        capacity = rf'node_inventory_capacity\{{node="{node}",resource_class="VCPU"\}} (\d+)'
        assert int(re.findall(capacity, text)[0]) > 0


def test_report_and_status_commands_ask_the_running_agent(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    with running(agent):
        agent.script(nodes=[node], inventory={"VCPU": {"total": 4}})
        reported = agent.run("report", "--json")
        assert reported.returncode == 0, reported.stderr
        assert json.loads(reported.stdout)["nodes"][0]["last_pass"]["changes"] == 1
        assert vcpus(placement, node) == 4
        shown = agent.run("status")
        assert shown.returncode == 0
        assert node in shown.stdout
        unknown = agent.run("report", "--node", "nobody")
        assert unknown.returncode != 0
        assert "nobody" in unknown.stderr
        tree = json.loads(agent.run("show", "--json").stdout)
        root = tree["nodes"][0]["providers"][0]
        assert root["inventories"]["VCPU"]["total"] == 4
        assert 0 <= root["age_seconds"] < 600
        assert "written" in agent.run("show").stdout


def test_the_service_manager_is_told_ready_reloading_stopping_and_fed(
    placement, new_agent, tmp_path
):
    agent = new_agent(placement.url)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        agent.start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="30000000")

        def heard(word: bytes) -> bool:
            while True:
                if word in manager.recv(4096):
                    return True

        assert heard(b"STATUS=0 of 1 node(s) reported; waiting for the first pass of ")
        assert heard(b"READY=1")
        assert agent.node()["last_success"]
        assert heard(b"WATCHDOG=1")
        agent.send(signal.SIGHUP)
        assert heard(b"RELOADING=1\nMONOTONIC_USEC=")
        assert heard(b"READY=1")
        agent.configure(DEFAULT={"log_config_append": tmp_path / "nowhere"})
        agent.send(signal.SIGHUP)
        assert heard(b"RELOADING=1")
        assert heard(b"READY=1"), "a reload that fails ends too"
        assert "log_config_append" in agent.status()["reload"]["message"]
        agent.send(signal.SIGTERM)
        assert heard(b"STOPPING=1")
        assert agent.ended() == 0


def test_ready_is_told_with_the_reason_when_placement_is_down(new_agent, tmp_path):
    agent = new_agent("http://127.0.0.1:1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        agent.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        told = b""
        while b"READY=1" not in told:
            told = manager.recv(4096)
        assert b"STATUS=placement cannot be reached" in told
        assert agent.stop() == 0
