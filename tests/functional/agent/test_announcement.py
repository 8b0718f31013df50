"""Announcements of an agent's nodes on the bus, which a scheduler can read."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.agent.own_report import OwnReport
from compute_agent.cmd.agent.running import OtherVersion, print_status
from compute_agent.fitting import guest as wanted
from compute_agent.fitting.announced import host_of
from compute_agent.fitting.plan import Refusal
from compute_agent.fitting.planner import plan
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.state.claim import AssignedUnit, Claim
from placement_server.api.extensions import agent_reports
from placement_server.negotiation.microversion import MIN
from tests.fixtures.agent_commands import commands_of
from tests.functional.agent.in_process import Node

pytestmark = pytest.mark.waiting

EXTRA = (
    "cpu_dedicated_set = 0-1,16-17\ncpu_shared_set = 2-7,18-23\n"
    "[neutron]\nphysnets = left\n[neutron_physnet_left]\nnuma_nodes = 1\n"
    "[neutron_tunnel]\nnuma_nodes = 0\n[fake]\ncells = 2\n"
)


class Agent:
    """An agent with one node, and its answers."""

    def __init__(self, app: Any, directory: Any, *, nested: bool) -> None:
        self.node = Node(app, directory, extra=EXTRA)
        driver = self.node.driver
        driver.options = replace(driver.options, is_nested=nested)
        self.commands = commands_of(self.node.parts, self.node.tracker, claims=True)

    def announced(self) -> dict[str, Any]:
        """The announcement of the node, as it arrives at a scheduler."""
        state = json.loads(json.dumps(self.commands.announcement(1)))
        announcements = Announcements()
        announcements.receive(state)
        heard = announcements.of(self.node.uuid)
        assert heard is not None
        return dict(heard.attributes)


@pytest.fixture
def flat(app, tmp_path):
    made = Agent(app, tmp_path, nested=False)
    yield made
    made.node.parts.close()


@pytest.fixture
def nested(app, tmp_path):
    made = Agent(app, tmp_path, nested=True)
    yield made
    made.node.parts.close()


def test_an_announcement_says_who_and_in_what_state_each_node_is(flat):
    assert flat.node.run().completed
    state = flat.commands.announcement(7)
    assert state["host"] == flat.node.name
    assert (state["seq"], state["service_version"]) == (7, 1)
    assert state["placement_max_version"] == "1.39"
    (node,) = state["nodes"]
    assert node["uuid"] == flat.node.uuid
    assert (node["name"], node["layout"]) == (flat.node.name, "flat")
    assert (node["enabled"], node["disabled_reason"], node["instances"]) == (True, "", 0)
    assert node["last_pass"]["outcome"] == "the pass completed"
    assert node["last_success"]
    assert node["reshape_pending"] is False


def test_schedulers_are_told_the_hypervisor_and_the_address_that_flavors_and_hints_name(flat):
    assert flat.node.run().completed
    told = flat.announced()
    assert told["hypervisor_type"] == "fake"
    assert told["hypervisor_version"] == 0
    assert told["cpu_info"]["arch"] == "x86_64"
    assert told["host_ip"] == flat.node.parts.conf.my_ip


def test_a_scheduler_finds_the_cells_of_a_flat_host_that_a_guest_fits_on(flat):
    assert flat.node.run().completed
    cells = flat.announced()["cells"]
    assert [(cell["id"], cell["vcpu"], cell["pcpu"]) for cell in cells] == [(0, 6, 2), (1, 6, 2)]
    host = host_of(flat.announced())
    assert host is not None
    two = wanted.Guest((wanted.Node(6, 2, 512),) * 2)
    assert [part.cell for part in plan(host, two).parts] == [0, 1]
    assert isinstance(plan(host, wanted.Guest((wanted.Node(7, 0, 512),))), Refusal)
    near = wanted.Guest((wanted.Node(1, 0, 1),), physnets=frozenset(("left",)))
    assert [part.cell for part in plan(host, near).parts] == [1]


def test_a_nested_host_announces_its_cells_too(nested):
    assert nested.node.run().completed
    cells = nested.announced()["cells"]
    assert [(cell["id"], cell["vcpu"], cell["pcpu"]) for cell in cells] == [(0, 6, 2), (1, 6, 2)]


def test_a_node_that_was_never_reported_is_announced_without_its_facts(flat):
    assert "hypervisor_type" not in flat.announced()


def test_a_hypervisor_that_is_away_does_not_silence_the_agent(flat):
    assert flat.node.run().completed

    def away() -> list[str]:
        raise errors.HypervisorUnavailable("gone")

    flat.node.driver.list_instance_uuids = away
    told = flat.announced()
    assert told["instances"] is None
    assert told["hypervisor_type"] == "fake"
    assert "cells" not in told


def test_claims_of_guests_that_are_not_here_yet_and_of_those_that_leave_are_under_way(flat):
    assert flat.node.run().completed
    (here, coming, leaving), node = (str(uuid.uuid4()) for _ in range(3)), flat.node
    node.parts.ledger.change_claims(
        add=[
            Claim(consumer=consumer, node=node.name, amounts={}, instance=instance, claimed_at=0.0)
            for consumer, instance in ((here, here), (coming, coming), (leaving, here))
        ]
    )
    node.driver.spawn(here)
    (told,) = flat.commands.announcement(1)["nodes"]
    assert told["io_ops"] == 2


def test_status_and_report_show_which_guest_has_which_cores(flat, capsys):
    assert flat.node.run().completed
    one, two = sorted(str(uuid.uuid4()) for _ in range(2))
    held = {one: ("0", "16"), two: ("1",)}
    flat.node.parts.ledger.change_claims(
        add=[
            Claim(
                consumer=instance,
                node=flat.node.name,
                amounts={},
                instance=instance,
                claimed_at=0.0,
                units=tuple(AssignedUnit(flat.node.uuid, "PCPU", cpu) for cpu in cpus),
            )
            for instance, cpus in held.items()
        ]
    )
    document = json.loads(json.dumps(flat.commands.status()))
    print_status(document, as_json=False)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    expected = ["cell 0, cores (0a 1b)", "cell 1, cores (16a 17)", f"a: {one}", f"b: {two}"]
    assert [line for line in lines if line in expected] == expected
    parts = flat.node.parts
    own_report = OwnReport(parts.setup.place, parts.board, parts.options, flat.commands.cores)
    reported = json.loads(own_report(flat.node.uuid) or "{}")
    agent_reports.REPORT.check(reported, MIN)
    assert [cell["cores"] for cell in reported["cells"]] == [
        [[[0, one[:8]], [1, two[:8]]]],
        [[[16, one[:8]], [17, None]]],
    ]


def test_the_status_of_an_agent_of_another_version_says_to_restart_it(flat):
    document = json.loads(json.dumps(flat.commands.status()))
    del document["state"]
    print_status(document, as_json=True)
    with pytest.raises(OtherVersion, match=r"no 'state', .* Restart the agent"):
        print_status(document, as_json=False)
