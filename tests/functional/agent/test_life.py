"""The life of the real process: signals, reloads, outages, kills, several nodes."""

import json
import signal
import socket
import uuid

import pytest

from tests.fixtures.placement import free_port
from tests.functional.agent.processes import (
    PlacementProcess,
    claim,
    eventually,
    read_url,
    running,
)


def vcpus(placement, node) -> int | None:
    tree = placement.tree(node)
    return tree[node]["inventories"].get("VCPU", {}).get("total") if node in tree else None


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


def test_a_quiet_pass_is_one_request_and_logs_nothing(placement, proxy, new_agent):
    with running(new_agent(proxy.url, DEFAULT={"update_resources_interval": -1})) as agent:
        logged = agent.logged()
        for _ in range(3):
            before = len(proxy.requests)
            node = agent.report()
            (request,) = proxy.requests[before:]
            assert request.startswith("GET /resource_providers?in_tree=")
            assert node["last_pass"]["requests"] == 1
            assert node["last_pass"]["writes"] == 0
        assert agent.logged() == logged


def test_a_change_of_the_machine_is_reported_by_the_next_periodic_pass(placement, new_agent, node):
    with running(new_agent(placement.url)) as agent:
        agent.script(nodes=[node], inventory={"VCPU": {"total": 12}})
        eventually(lambda: vcpus(placement, node) == 12, "the change in placement")
        assert "change(s) written" in agent.logged()


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
        compute_agent={"placement_connections": 1},
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
        compute_agent={"placement_connections": 1},
    )
    children = {f"NUMA{n}": {"VCPU": {"total": 4}} for n in range(2)}
    agent.script(nodes=[node], children=children)
    reached, go_on = proxy.pause("POST", "/resource_providers$")
    agent.start()
    eventually(reached.is_set, "a flush that has begun")
    agent.send(signal.SIGTERM)
    eventually(lambda: "a pass at work is finished first" in agent.logged(), "the stop")
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


def test_placement_down_at_start_and_later_is_waited_for_and_told_once(tmp_path, new_agent, node):
    (tmp_path / "placement").mkdir()
    placement = PlacementProcess(tmp_path / "placement")
    agent = new_agent(placement.url)
    agent.start()
    try:
        eventually(lambda: "cannot be reached" in agent.logged(), "a warning")
        status = eventually(agent.status, "an answer although placement is down")
        assert status["placement"]["up"] is False
        placement.start()
        agent.started()
        assert vcpus(placement, node) == 8
        placement.kill()
        eventually(lambda: agent.status()["placement"]["up"] is False, "the outage in the status")
        agent.script(nodes=[node], inventory={"VCPU": {"total": 10}})
        placement.start()
        eventually(lambda: vcpus(placement, node) == 10, "the change after the outage")
        eventually(lambda: agent.node()["trouble"] is None, "no trouble any more")
        warnings = [line for line in agent.logged().splitlines() if "WARNING" in line]
        assert 2 <= len(warnings) <= 3, "one for each outage, by node or by the search for nodes"
        assert "it is over that placement cannot be reached" in agent.logged()
        assert agent.stop() == 0
    finally:
        placement.kill()


def test_a_start_during_an_outage_is_still_a_start_when_placement_is_back(
    placement, proxy, new_agent, node
):
    agent = new_agent(proxy.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.stop()
    proxy.error(".*", ".*", 503)
    agent.script(nodes=[node], reshape="once")
    agent.start()
    eventually(lambda: "cannot be reached" in agent.logged(), "a warning")
    proxy.honest()
    agent.started()
    tree = placement.tree(node)
    assert tree[f"{node}_gpu"]["inventories"]["VGPU"]["total"] == 4
    assert "being migrated" in agent.logged()


def test_a_reshape_at_start_takes_the_allocations_along(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.stop()
    root = placement.root(node)["uuid"]
    consumer = claim(placement, root, {"VGPU": 2, "VCPU": 1})
    agent.script(nodes=[node], reshape="once")
    with running(agent):
        tree = placement.tree(node)
        child = tree[f"{node}_gpu"]
        held = placement.get(f"/allocations/{consumer}")["allocations"]
        assert {p: e["resources"] for p, e in held.items()} == {
            root: {"VCPU": 1},
            child["uuid"]: {"VGPU": 2},
        }
        assert "VGPU" not in tree[node]["inventories"]


def test_a_reshape_needed_in_a_period_is_refused_and_waits_for_a_restart(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.script(nodes=[node], reshape="once")
        eventually(lambda: agent.node()["reshape_pending"], "the pending reshape")
        assert "Restart the agent" in agent.logged()
        assert "VGPU" in placement.tree(node)[node]["inventories"]
        assert f"{node}_gpu" not in placement.tree(node)
        assert agent.stop() == 0
    with running(agent):
        assert "VGPU" in placement.tree(node)[f"{node}_gpu"]["inventories"]
        assert not agent.node()["reshape_pending"]


@pytest.mark.parametrize(
    ("behaviour", "level", "words"),
    [
        ({"raise": {"update_provider_tree": "ZeroDivisionError"}}, "ERROR", "Traceback"),
        ({"raise": {"update_provider_tree": "ReshapeFailed"}}, "ERROR", "the reshape failed"),
        ({"raise": {"update_provider_tree": "VirtDriverNotReady"}}, "WARNING", "not ready"),
        ({"raise": {"get_available_resource": "ComputeHostNotFound"}}, "WARNING", "does not know"),
        ({"raise": {"update_provider_tree": "InvalidConfiguration"}}, "ERROR", "configuration"),
        ({"raise": {"update_provider_tree": "PciConfigurationConflict"}}, "ERROR", "configuration"),
        ({"missing_facts": ["vcpus"]}, "ERROR", "lack vcpus"),
    ],
)
def test_a_driver_that_fails_in_a_period_is_logged_once_and_recovered_from(
    placement, new_agent, node, behaviour, level, words
):
    with running(new_agent(placement.url)) as agent:
        agent.script(nodes=[node], inventory={"VCPU": {"total": 1}}, **behaviour)
        eventually(lambda: (agent.node()["trouble"] or {"seen": 0})["seen"] >= 3, "3 failures")
        said = [line for line in agent.logged().splitlines() if f" {level} " in line]
        assert len([line for line in said if f"Node {node}" in line]) == 1, said
        assert words in agent.logged()
        assert vcpus(placement, node) == 8, "nothing was flushed"
        agent.script(nodes=[node], inventory={"VCPU": {"total": 2}})
        eventually(lambda: vcpus(placement, node) == 2, "the recovery")
        assert agent.stop() == 0


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ((400, ""), "400 was scripted"),
        ((404, ""), "404 was scripted"),
        ((409, "placement.inventory.inuse"), "409 was scripted"),
        ((401, ""), "does not let this agent in"),
        ((403, ""), "does not let this agent in"),
        ((500, ""), "cannot be reached"),
        ((503, ""), "cannot be reached"),
    ],
)
def test_an_error_of_placement_in_a_period_is_logged_and_recovered_from(
    placement, proxy, new_agent, node, lie, words
):
    with running(new_agent(proxy.url)) as agent:
        status, code = lie
        proxy.error("PUT", "/inventories$", status, code)
        agent.script(nodes=[node], inventory={"VCPU": {"total": 5}})
        eventually(lambda: words in agent.logged(), f"{words} in the log")
        assert agent.node()["trouble"] is not None
        proxy.honest()
        eventually(lambda: vcpus(placement, node) == 5, "the recovery")
        assert agent.stop() == 0


@pytest.mark.parametrize("body", [b"<html>login</html>", b"", b"{}", b'{"resource_providers": 7}'])
def test_garbage_with_status_200_is_no_truth(placement, proxy, new_agent, node, body):
    with running(new_agent(proxy.url)) as agent:
        before = placement.tree(node)
        proxy.answer("GET", "in_tree", 200, body)
        eventually(lambda: agent.node()["trouble"] is not None, "the trouble")
        assert placement.tree(node) == before
        proxy.honest()
        eventually(lambda: agent.node()["trouble"] is None, "the recovery")
        assert agent.stop() == 0


def test_a_conflict_is_repeated_and_then_waited_out(placement, proxy, new_agent, node):
    with running(new_agent(proxy.url)) as agent:
        proxy.error("PUT", "/inventories$", 409, "placement.concurrent_update", times=1)
        agent.script(nodes=[node], inventory={"VCPU": {"total": 6}})
        eventually(lambda: vcpus(placement, node) == 6, "the change")
        assert "ERROR" not in agent.logged()
        assert "WARNING" not in agent.logged()


def test_a_renamed_host_keeps_its_providers_under_new_names(placement, new_agent, node):
    agent = new_agent(placement.url)
    children = {"NUMA0": {"VCPU": {"total": 4}}}
    agent.script(nodes=[node], children=children)
    with running(agent):
        agent.stop()
    before = {provider["uuid"] for provider in placement.tree(node).values()}
    agent.script(nodes=[f"{node}-new"], children=children)
    with running(agent):
        tree = placement.tree(f"{node}-new")
        assert set(tree) == {f"{node}-new", f"{node}-new_NUMA0"}
        assert {provider["uuid"] for provider in tree.values()} == before
        assert placement.root(node) is None


def nova_root(placement, node, *, allocated: bool = False) -> str:
    """A root as another agent left it in placement."""
    root = str(uuid.uuid4())
    for method, path, body in (
        ("PUT", "/traits/CUSTOM_OPERATORS", None),
        ("POST", "/resource_providers", {"uuid": root, "name": node}),
        (
            "PUT",
            f"/resource_providers/{root}/traits",
            {"resource_provider_generation": 0, "traits": ["COMPUTE_NODE", "CUSTOM_OPERATORS"]},
        ),
        (
            "PUT",
            f"/resource_providers/{root}/inventories",
            {"resource_provider_generation": 1, "inventories": {"VCPU": {"total": 8}}},
        ),
    ):
        assert placement.request(method, path, json=body).ok
    if allocated:
        claim(placement, root, {"VCPU": 1})
    return root


def test_a_host_of_another_agent_is_taken_over_without_a_new_provider(placement, new_agent, node):
    root = nova_root(placement, node, allocated=True)
    agent = new_agent(placement.url)
    agent.script(nodes=[node], instances=[str(uuid.uuid4())])
    with running(agent):
        assert (agent.state / "compute_id").read_text().strip() == root
        (provider,) = placement.tree(node).values()
        assert provider["uuid"] == root
        assert "CUSTOM_OPERATORS" in provider["traits"]


def test_a_name_with_allocations_but_no_instances_is_taken_over_only_when_confirmed(
    placement, new_agent, node
):
    root = nova_root(placement, node, allocated=True)
    agent = new_agent(placement.url)
    agent.start()
    assert agent.ended() == 5
    assert "--adopt" in agent.logged()
    assert not (agent.state / "compute_id").exists()
    agent.start("--adopt")
    agent.started()
    assert (agent.state / "compute_id").read_text().strip() == root


def test_one_nodes_failure_leaves_the_others_alone(placement, new_agent, node):
    names = {f"{node}-{n}": str(uuid.uuid4()) for n in range(3)}
    driver = "tests.functional.agent.scripted_driver.ScriptedNodesDriver"
    agent = new_agent(placement.url, DEFAULT={"compute_driver": driver})
    agent.script(nodes=names)
    with running(agent):
        assert not (agent.state / "compute_id").exists()
        for name, identity in names.items():
            assert placement.root(name)["uuid"] == identity
        broken = {f"update_provider_tree {node}-1": "ZeroDivisionError"}
        agent.script(nodes=names, inventory={"VCPU": {"total": 3}}, **{"raise": broken})
        eventually(lambda: vcpus(placement, f"{node}-2") == 3, "the node after the broken one")
        eventually(lambda: vcpus(placement, f"{node}-0") == 3, "the node before it")
        assert vcpus(placement, f"{node}-1") == 8
        agent.script(nodes={f"{node}-0": names[f"{node}-0"]})
        eventually(lambda: len(agent.status()["nodes"]) == 1, "the others dropped")
        assert placement.root(f"{node}-2"), "their providers are left as they are"
        assert agent.stop() == 0


def test_a_provider_the_driver_drops_is_deleted_and_a_foreign_child_is_kept(
    placement, new_agent, node
):
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    agent.script(nodes=[node], children={"NUMA0": {"VCPU": {"total": 4}}})
    with running(agent):
        root = placement.root(node)["uuid"]
        foreign = {"uuid": str(uuid.uuid4()), "name": f"{node}_x", "parent_provider_uuid": root}
        assert placement.request("POST", "/resource_providers", json=foreign).ok
        assert set(placement.tree(node)) == {node, f"{node}_NUMA0", f"{node}_x"}
        # the driver drops both, and one of them is not the agent's
        agent.script(nodes=[node])
        agent.report()
        assert set(placement.tree(node)) == {node, f"{node}_x"}
        agent.report()
        assert set(placement.tree(node)) == {node, f"{node}_x"}


def test_drift_between_instances_and_allocations_is_shown_and_nothing_is_touched(
    placement, new_agent, node
):
    agent = new_agent(placement.url, compute_agent={"audit_interval": 1, "audit_grace": 1})
    instance, stranger = str(uuid.uuid4()), str(uuid.uuid4())
    agent.script(nodes=[node], instances=[instance])
    with running(agent):
        claim(placement, placement.root(node)["uuid"], {"VCPU": 1}, stranger)
        wanted = {"orphaned": [stranger], "missing": [instance], "differing": []}
        eventually(lambda: agent.node()["drift"] == wanted, "the drift in the status")
        assert f"drift, orphaned: {stranger}" in agent.run("status").stdout
        assert placement.get(f"/allocations/{stranger}")["allocations"]
        agent.script(nodes=[node], instances=[stranger])
        none = {"orphaned": [], "missing": [], "differing": []}
        eventually(lambda: agent.node()["drift"] == none, "agreement")


def test_metrics_are_served_where_configured(placement, new_agent, node):
    bind = f"127.0.0.1:{free_port()}"
    with running(new_agent(placement.url, compute_agent={"metrics_bind": bind})):
        text = read_url(f"http://{bind}/metrics")
        assert f'compute_agent_node_providers{{node="{node}"}} 1.0' in text
        assert "compute_agent_placement_up 1.0" in text


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

        assert heard(b"READY=1")
        assert agent.node()["last_success"]
        assert heard(b"WATCHDOG=1")
        agent.send(signal.SIGHUP)
        assert heard(b"RELOADING=1\nMONOTONIC_USEC=")
        assert heard(b"READY=1")
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
