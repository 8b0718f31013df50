"""The real agent heals drift: what is gone is deleted, what runs gets its allocations."""

import json
import os
import signal
import time
import uuid

import pytest

from tests.functional.agent.processes import claim, eventually, running

pytestmark = pytest.mark.waiting

FLAVOR = {"vcpus": 2, "memory_mb": 512, "root_gb": 0}
NEED = {"VCPU": 2, "MEMORY_MB": 512}
AUDIT = {"audit_interval": 1, "audit_grace": 0, "instance_source": "file"}


class InstanceFile:
    """A file of instances as somebody exports it, written in the future, as it were.

    A consumer must be older than the file to be judged by it, and placement tells whole seconds.
    """

    def __init__(self, path):
        self.path = path
        self.write()

    def write(self, *lines, ahead=60):
        fresh = self.path.with_suffix(".new")
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        fresh.write_text("".join(f"{text}\n" for text in texts))
        moment = time.time() + ahead
        os.utime(fresh, (moment, moment))
        fresh.rename(self.path)


def described(node, uuid_, **flavor):
    return {
        "uuid": uuid_,
        "host": node,
        "project_id": "a-project",
        "user_id": "a-user",
        "flavor": {**FLAVOR, **flavor},
    }


@pytest.fixture
def instances(tmp_path):
    return InstanceFile(tmp_path / "instances")


@pytest.fixture
def agent(placement, new_agent, node, instances):
    """An agent that audits all the time and may heal."""
    made = new_agent(placement.url, compute_agent={**AUDIT, "instance_file": instances.path})
    made.script(nodes=[node])
    return made


def audited(agent, kind, consumer):
    """Wait until an audit has found a consumer."""
    eventually(lambda: consumer in agent.report()["drift"].get(kind, []), f"{kind} {consumer}")


def test_what_the_source_does_not_know_is_deleted_once_healing_is_switched_on(
    agent, placement, node, instances
):
    with running(agent):
        root = placement.root(node)["uuid"]
        gone, alive = claim(placement, root, {"VCPU": 1}), claim(placement, root, {"VCPU": 1})
        instances.write(alive)
        audited(agent, "orphaned", gone)
        assert placement.held(gone)
        agent.configure(compute_agent={"heal_orphans": True})
        agent.send(signal.SIGHUP)
        eventually(lambda: agent.report() and not placement.held(gone), "the orphan is deleted")
        # it is deleted first and said then
        eventually(lambda: f"{gone} does not exist any more" in agent.logged(), "it is said")
        eventually(
            lambda: agent.report()["drift"].get("orphaned") == [alive], "it is no drift any more"
        )
        assert placement.held(alive)
        assert agent.node()["trouble"] is None


def test_what_was_written_after_the_file_is_not_judged_by_it(agent, placement, node, instances):
    agent.configure(compute_agent={"heal_orphans": True})
    instances.write(ahead=-3600)
    with running(agent):
        newer = claim(placement, placement.root(node)["uuid"], {"VCPU": 1})
        audited(agent, "orphaned", newer)
        for _ in range(3):
            agent.report()
        instances.write(newer)
        gone = claim(placement, placement.root(node)["uuid"], {"VCPU": 1})
        eventually(lambda: agent.report() and not placement.held(gone), "the file is newer now")
        assert placement.held(newer)


def test_an_instance_that_runs_here_and_holds_nothing_gets_what_its_flavor_says(
    agent, placement, node, instances
):
    instance = str(uuid.uuid4())
    agent.configure(compute_agent={"heal_missing": True})
    agent.script(nodes=[node], instances=[instance])
    instances.write(described(node, instance))
    with running(agent):
        root = placement.root(node)["uuid"]
        eventually(lambda: agent.report() and placement.held(instance), "it is healed")
        assert placement.held(instance) == {root: NEED}
        record = placement.get(f"/allocations/{instance}")
        assert (record["project_id"], record["consumer_type"]) == ("a-project", "INSTANCE")
        eventually(lambda: agent.report()["drift"].get("missing") == [], "it is no drift any more")


def test_what_exceeds_the_capacity_is_logged_once_and_healed_when_there_is_room(
    agent, placement, node, instances
):
    instance = str(uuid.uuid4())
    agent.configure(compute_agent={"heal_missing": True})
    agent.script(nodes=[node], instances=[instance])
    instances.write(described(node, instance, vcpus=9))
    with running(agent):
        said = f"provider {node} ({placement.root(node)['uuid']}) has 8 of 8 VCPU left"
        eventually(lambda: agent.report() and said in agent.logged(), "the refusal is logged")
        for _ in range(3):
            agent.report()
        assert agent.logged().count(said) == 1
        assert agent.node()["trouble"] is None
        room = {"VCPU": {"total": 16}, "MEMORY_MB": {"total": 1024}}
        agent.script(nodes=[node], instances=[instance], inventory=room)
        eventually(lambda: agent.report() and placement.held(instance), "there is room now")


def test_an_instance_that_the_source_has_on_another_host_gets_nothing(
    agent, placement, node, instances
):
    instance = str(uuid.uuid4())
    agent.configure(compute_agent={"heal_missing": True})
    agent.script(nodes=[node], instances=[instance])
    instances.write(described("elsewhere", instance))
    with running(agent):
        eventually(lambda: agent.report() and "is on elsewhere" in agent.logged(), "it is told")
        assert placement.held(instance) == {}


def test_a_source_that_fails_is_logged_once_and_passes_go_on(agent, placement, node, instances):
    agent.configure(compute_agent={"heal_orphans": True})
    instances.path.unlink()
    with running(agent):
        gone = claim(placement, placement.root(node)["uuid"], {"VCPU": 1})
        eventually(lambda: agent.report() and "cannot be healed now" in agent.logged(), "told")
        for _ in range(3):
            assert agent.report()["trouble"] is None
        assert agent.logged().count("cannot be healed now") == 1
        instances.write("no uuid")
        assert agent.report()["trouble"] is None
        assert "Traceback" not in agent.logged()
        instances.write()
        eventually(lambda: agent.report() and not placement.held(gone), "the source is back")


def test_a_reload_that_switches_on_what_cannot_heal_says_so_and_heals_nothing(
    agent, placement, node
):
    instance = str(uuid.uuid4())
    agent.configure(compute_agent={"instance_source": "agents", "instance_file": None})
    agent.script(nodes=[node], instances=[instance])
    with running(agent):
        audited(agent, "missing", instance)
        agent.configure(compute_agent={"heal_missing": True})
        agent.send(signal.SIGHUP)
        eventually(lambda: "agents do not know the flavors" in agent.logged(), "the reload says so")
        eventually(
            lambda: agent.report() and "cannot be healed now" in agent.logged(), "so do audits"
        )
        assert agent.report()["trouble"] is None
        assert placement.held(instance) == {}
        assert "Traceback" not in agent.logged()


def test_what_an_instance_that_is_gone_too_holds_of_a_node_is_healed_and_the_node_deleted(
    placement, new_agent, nodes, instances
):
    agent = new_agent(
        placement.url,
        DEFAULT={"compute_driver": "tests.functional.agent.scripted_driver.ScriptedNodesDriver"},
        compute_agent={**AUDIT, "instance_file": instances.path, "heal_orphans": True},
    )
    agent.script(nodes=nodes)
    name, stays = nodes
    with running(agent):
        alive, dead = (claim(placement, nodes[name], {"VCPU": 1}) for _ in range(2))
        instances.write(alive)
        agent.script(nodes={stays: nodes[stays]}, deleted=[name])
        eventually(lambda: not placement.held(dead), "what the dead instance held")
        assert placement.held(alive)
        assert placement.root(name)
        instances.write()
        eventually(lambda: placement.root(name) is None, "its providers deleted")
