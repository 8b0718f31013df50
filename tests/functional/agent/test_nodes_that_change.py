"""Nodes that vanish, or get another uuid, while a pass of them runs; in this process."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

import pytest

from compute_agent.agent import metrics
from compute_agent.agent.agent import Agent
from compute_agent.agent.node_list import NODE_LIST
from compute_agent.agent.own_report import OwnReport
from compute_agent.cmd.agent.doctor import shown_faults
from compute_agent.cmd.agent.running import print_status
from compute_agent.drift.audit import Auditor
from compute_agent.state.files import NoSpace
from compute_agent.tracker.decisions import EventKind, ExitCode
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import NEVER
from tests.fixtures.agent_commands import commands_of
from tests.functional.agent.nodes_scene import NodesScene


def test_a_node_that_vanishes_during_its_pass_is_deleted_after_it(
    scene: NodesScene, nodes: dict[str, str]
) -> None:
    stays, goes = nodes
    scene.script(nodes)
    scene.run_due()
    scene.run_due()
    assert scene.tracker.started_nodes() == [stays, goes]

    searches: list[PassResult] = []
    driver: Any = scene.parts.driver
    lay_out = driver.update_provider_tree

    def vanish_first(*arguments: Any) -> None:
        lay_out(*arguments)
        if not searches:
            scene.script({stays: nodes[stays]}, deleted=[goes])
            searches.append(scene.search.find())

    driver.update_provider_tree = vanish_first
    scene.script(nodes, inventory={"VCPU": {"total": 9}})
    scene.report(goes)
    [search] = searches
    assert search.completed
    assert search.next_in < NEVER, "the node is still to be left out"

    scene.report(NODE_LIST)
    assert list(scene.tracker.nodes()) == [stays]
    assert not scene.exists(nodes[goes])
    assert scene.exists(nodes[stays])


def test_a_node_that_has_another_uuid_gets_a_pass_without_a_period(
    scene: NodesScene, nodes: dict[str, str]
) -> None:
    name, _ = nodes
    scene.script({name: nodes[name]})
    scene.run_due()
    scene.run_due()
    assert scene.run_due() == {}
    scene.script({name: str(uuid.uuid4())})
    scene.report(NODE_LIST)
    assert list(scene.run_due()) == [name]


def test_a_node_that_has_another_uuid_since_its_pass_began_is_not_audited_by_that(
    scene: NodesScene, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = nodes
    uuid_before, uuid_after = nodes[name], str(uuid.uuid4())
    audits: list[str] = []
    monkeypatch.setattr(Auditor, "after_pass", lambda _self, _name, root: audits.append(root))
    agent = Agent(scene.parts.conf, scene.parts)
    scene.script({name: uuid_before})
    agent._run_pass(NODE_LIST)
    agent._run_pass(name)
    assert audits == [uuid_before]

    driver: Any = scene.parts.driver
    lay_out = driver.update_provider_tree

    def change_first(*arguments: Any) -> None:
        lay_out(*arguments)
        scene.script({name: uuid_after})
        agent._run_pass(NODE_LIST)

    driver.update_provider_tree = change_first
    assert agent._run_pass(name).completed
    assert audits == [uuid_before], "nothing of the other is reported yet"


def test_a_node_whose_other_uuid_has_its_name_in_placement_ends_no_agent(
    scene: NodesScene, nodes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    name, other = nodes
    uuid_before, uuid_after = nodes[name], str(uuid.uuid4())
    scene.script(nodes)
    scene.run_due()
    scene.run_due()
    with caplog.at_level(logging.INFO):
        scene.script({**nodes, name: uuid_after})
        scene.report(NODE_LIST)
        [(_, result)] = scene.run_due().items()
    assert result.exit_code is None
    assert (
        f"Node {name} has another uuid now; the providers of {uuid_before} are left" in caplog.text
    )
    assert scene.report(other)[other].completed
    status = scene.parts.board.node(name)
    assert status is not None
    assert status.trouble is not None
    assert status.trouble.what == EventKind.IDENTITY_CONFLICT.value
    assert f"give the node the uuid {uuid_before} again" in status.trouble.message
    assert (status.uuid, status.last_success) == (uuid_after, None), "not that of before"

    scene.parts.report.placement.providers.delete(uuid_before, name)
    assert scene.report(name)[name].completed
    assert scene.exists(uuid_after)


def test_nodes_that_cannot_be_recorded_end_a_start_with_the_status_of_a_full_disk(
    scene: NodesScene, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_changes: Any) -> None:
        raise NoSpace("no space is left for the ledger")

    scene.script(nodes)
    with monkeypatch.context() as patch:
        patch.setattr(scene.parts.ledger, "remember_providers", fail)
        [(name, result)] = scene.run_due().items()
    assert (name, result.exit_code) == (NODE_LIST, ExitCode.DRIVER_FAILED)
    assert scene.tracker.nodes() == {}
    assert "no space is left" in result.message

    assert scene.report(NODE_LIST)[NODE_LIST].completed
    assert scene.tracker.nodes() == nodes


def test_a_search_that_fails_where_nodes_are_known_is_shown_alike_until_one_succeeds(
    scene: NodesScene,
    nodes: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO")
    parts, board = scene.parts, scene.parts.board
    commands = commands_of(parts, scene.tracker, claims=True)
    own_report = OwnReport(parts.setup.place, board, parts.options, lambda _node: [])

    def shown() -> dict[str, str]:
        document = json.loads(json.dumps(board.document()))
        print_status(document, as_json=False)
        return {
            "status": capsys.readouterr().out,
            "doctor": " ".join(diagnosis.text for diagnosis in shown_faults(document)),
            "placement": own_report(next(iter(nodes.values()))) or "",
            "schedulers": " ".join(commands.announcement(1)["nodes"][0]["caveats"]),
        }

    def are_found() -> bool:
        return metrics.registry(board).get_sample_value("compute_agent_nodes_found") == 1

    scene.script(nodes)
    for _ in range(2):
        scene.run_due()
    assert are_found()
    scene.script(nodes, **{"raise": {"get_available_nodes": "VirtDriverNotReady"}})
    scene.report(NODE_LIST)
    assert scene.tracker.nodes() == nodes
    assert not are_found()
    assert board.summary() == "the nodes of this host cannot be found: the driver is not ready"
    for place, text in {**shown(), "log": caplog.text}.items():
        assert "the script says so for get_available_nodes" in text, place
        assert "not known" not in text, place
    scene.script(nodes)
    scene.report(NODE_LIST)
    assert are_found()
    assert board.summary() == "2 node(s) reported"
    for place, text in shown().items():
        assert "the script says so" not in text, place
    assert "Resolved: the driver is not ready" in caplog.text
