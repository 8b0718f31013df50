"""`compute-agent plan`: what a start would do, for this machine and for one that was captured."""

import json
import re
import shutil

import pytest

from tests.functional.agent.processes import REPOSITORY, claim, running

pytestmark = pytest.mark.waiting


def test_plan_ends_with_6_when_something_would_change_and_changes_nothing(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    planned = agent.run("plan", "--json")
    assert planned.returncode == 6, planned.stderr
    (document,) = json.loads(planned.stdout)["nodes"]
    assert any("create provider" in line for line in document["operations"])
    assert placement.root(node) is None
    assert not agent.state.exists()
    with running(agent):
        agent.stop()
    again = agent.run("plan")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "nothing to do" in again.stdout


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_plan_ends_as_a_start_would_when_there_is_a_problem_and_nothing_to_change(
    placement, new_agent, node, arguments
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], inventory={"MEMORY_MB": {"total": 100, "reserved": 100}})
    with running(agent):
        agent.stop()
    agent.script(nodes=[node], inventory={"MEMORY_MB": {"total": 100, "reserved": 512}})
    planned = agent.run("plan", *arguments)
    assert planned.returncode == 1, planned.stdout + planned.stderr
    assert "512" in planned.stderr
    assert "Traceback" not in planned.stderr
    if arguments:
        (document,) = json.loads(planned.stdout)["nodes"]
        assert document["operations"] == []
        (problem,) = document["problems"]
        assert problem in planned.stderr
    else:
        assert "512" in planned.stdout
    agent.start()
    assert agent.ended() == 1


def test_plan_ends_as_a_start_would_when_there_is_a_problem_besides_what_would_change(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], inventory={"MEMORY_MB": {"total": 100, "reserved": 512}})
    planned = agent.run("plan")
    assert planned.returncode == 1, planned.stderr
    assert "create provider" in planned.stdout
    assert "512" in planned.stderr
    agent.start()
    assert agent.ended() == 1


def test_the_wanted_tree_shows_what_would_be_used(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], inventory={"VCPU": {"total": 8}})
    with running(agent):
        claim(placement, placement.root(node)["uuid"], {"VCPU": 2})
        claim(placement, placement.root(node)["uuid"], {"VCPU": 1})
    agent.script(nodes=[node], inventory={"VCPU": {"total": 10}})
    planned = agent.run("plan", "--tree")
    assert planned.returncode == 6, planned.stderr
    assert "VCPU 3/10" in planned.stdout


def test_a_captured_machine_is_planned_for_where_no_placement_is_configured(placement, new_agent):
    agent = new_agent(placement.url)
    agent.configure(placement={"auth_type": None})
    machine = REPOSITORY / "tests" / "data" / "two-cells"
    planned = agent.run("plan", "--tree", "--from-capture", str(machine))
    assert planned.returncode == 6, planned.stderr
    assert "create provider two-cells.example.org" in planned.stdout
    assert "compared with an empty one" in planned.stderr
    assert agent.run("plan").returncode == 3


def test_a_captured_machine_can_be_planned_for_anywhere(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"compute_driver": "host.HostDriver", "host": node})
    target = agent.directory / "captured"
    written = agent.run("capture", str(target))
    assert written.returncode == 0, written.stderr
    assert agent.run("capture", str(target)).returncode == 1
    planned = agent.run("plan", "--from-capture", str(target))
    assert planned.returncode == 6, planned.stderr
    assert "VCPU" in planned.stdout
    two_cells = REPOSITORY / "tests" / "data" / "two-cells"
    other = agent.run("plan", "--from-capture", str(two_cells))
    assert "create provider two-cells.example.org" in other.stdout, other.stderr
    assert agent.run("plan", "--from-capture", str(agent.directory)).returncode == 1


def test_a_capture_replays_identically_wherever_it_is_looked_at(
    placement, new_agent, node, tmp_path
):
    two_cells = REPOSITORY / "tests" / "data" / "two-cells"
    copied = tmp_path / "copied"
    shutil.copytree(two_cells, copied, symlinks=True)
    options = {"compute": {"enable_numa_reporting_to_placement": True}}
    here = new_agent(placement.url, DEFAULT={"compute_driver": "host.HostDriver"}, **options)
    there = new_agent(placement.url, DEFAULT={"compute_driver": "fake.FakeDriver"}, **options)
    plans = [
        agent.run("plan", "--json", "--from-capture", str(directory))
        for agent, directory in ((here, two_cells), (there, copied))
    ]
    assert [plan.returncode for plan in plans] == [6, 6], plans[1].stderr
    first, second = (json.loads(plan.stdout)["nodes"][0] for plan in plans)
    # no identity was written, so that each makes up uuids of its own
    uuids = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    assert (first["uuid"], second["uuid"]) == (None, None)
    texts = [uuids.sub("UUID", "\n".join(node["operations"])) for node in (first, second)]
    assert "DISK_GB" in texts[0]
    assert texts[0] == texts[1]


def test_a_captured_machine_is_compared_with_its_own_tree_though_guests_hold_some_of_it(
    placement, new_agent, node
):
    agent = new_agent(placement.url, DEFAULT={"compute_driver": "host.HostDriver", "host": node})
    target = agent.directory / "captured"
    assert agent.run("capture", str(target)).returncode == 0
    description = json.loads((target / "capture.json").read_text())
    (target / "capture.json").write_text(json.dumps({**description, "hostname": node}))
    with running(agent):
        root = placement.root(node)["uuid"]
        claim(placement, root, {"VCPU": 1})
        planned = agent.run("plan", "--json", "--from-capture", str(target))
    assert planned.returncode in (0, 6), planned.stderr
    assert json.loads(planned.stdout)["nodes"][0]["uuid"] == root
