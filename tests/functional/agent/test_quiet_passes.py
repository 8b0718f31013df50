"""After passes that found nothing new, which are not worked out again, everything new is seen."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.agent.own_report import OwnReport
from compute_agent.placement.transports.transport import Request, make_response
from compute_agent.provider_config import merger as merger_module
from compute_agent.provider_config.merger import ProviderConfigMerger
from compute_agent.state.ledger import Ledger, ServiceState
from compute_agent.tracker.decisions import EventKind
from compute_agent.tracker.passes import node_pass
from compute_agent.tracker.passes.corrections import Corrections, normalise
from compute_agent.tracker.write_contest import MOST_UNDONE
from compute_agent.virt.fake import Misdeed
from tests.fixtures.allocations import claim_body
from tests.functional.agent.in_process import Node

pytestmark = pytest.mark.waiting

ENTRY = """
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    traits: {additional: [CUSTOM_RACK]}
"""
SHELVES = """
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [CUSTOM_SHELF: {total: 4}]}
"""


@pytest.fixture(params=[True, False], ids=["whole trees", "plain"])
def node(request: pytest.FixtureRequest, app: Any, tmp_path: Path) -> Iterator[Node]:
    """A node with a GPU that has had quiet passes."""
    node = Node(app, tmp_path, whole_trees=request.param)
    node.gain_a_gpu()
    pass_by(node, 4)
    yield node
    node.parts.close()


def pass_by(node: Node, times: int = 1) -> None:
    for _ in range(times):
        assert node.run().completed


def root(node: Node) -> Any:
    return node.parts.report.get_provider_tree(node.uuid, fresh=True).data(node.uuid)


def ask(node: Node, method: str, path: str, body: object = None) -> Any:
    answer = node.transport.send(Request(method, path, (1, 38), body))
    assert answer.status < 300, answer.text
    return json.loads(answer.content or b"null")


def hold(node: Node, provider: str, resource_class: str) -> str:
    """Let a consumer hold a unit, and return the path of its allocations."""
    path = f"/allocations/{uuid.uuid4()}"
    ask(node, "PUT", path, claim_body({provider: {resource_class: 1}}))
    return path


class Work:
    """What is done in passes: calls of the driver to edit the tree, and proposals worked out."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.edits = self.proposals = 0
        self._update = node.driver.update_provider_tree
        monkeypatch.setattr(node.driver, "update_provider_tree", self._edit)
        monkeypatch.setattr(node_pass, "normalise", self._work_out)

    def _edit(self, *arguments: Any) -> None:
        self.edits += 1
        self._update(*arguments)

    def _work_out(self, *arguments: Any) -> Corrections:
        self.proposals += 1
        return normalise(*arguments)


def test_a_quiet_pass_is_not_worked_out_again_and_a_driver_that_says_what_it_goes_by_not_called(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(node, monkeypatch)
    pass_by(node, 3)
    assert (work.edits, work.proposals) == (0, 0)


def test_a_driver_that_goes_by_what_is_held_is_called_in_every_pass(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    (gpu,) = (uuid for uuid in tree.get_provider_uuids() if "VGPU" in tree.data(uuid).inventory)
    hold(node, gpu, "VGPU")
    node.driver.machine = replace(node.driver.machine, gpus=())
    pass_by(node, 3)
    work = Work(node, monkeypatch)
    pass_by(node, 3)
    assert work.edits == 3


def test_a_driver_that_does_not_say_what_it_goes_by_is_called_and_no_more_is_done(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.driver, "reading", lambda _node: None)
    pass_by(node, 2)
    work = Work(node, monkeypatch)
    pass_by(node, 3)
    assert (work.edits, work.proposals) == (3, 0)


@pytest.mark.parametrize("says", [True, False], ids=["says what it goes by", "does not"])
def test_facts_and_warnings_are_those_of_the_last_pass_also_where_the_tree_stays(
    node: Node, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    if not says:
        monkeypatch.setattr(node.driver, "reading", lambda _node: None)
    pass_by(node, 3)
    facts = node.driver.get_available_resource(node.name)
    for number in (1, 2):
        more = {**facts, "vcpus_used": number, "gpus": [{"address": f"0000:{number}:00.0"}]}
        caveats = (f"warning {number}",)
        monkeypatch.setattr(node.driver, "get_available_resource", lambda _node, more=more: more)
        monkeypatch.setattr(node.driver, "caveats", lambda _node, caveats=caveats: caveats)
        pass_by(node)
        assert node.tracker.facts(node.name)["vcpus_used"] == number
        shown = node.parts.board.node(node.name)
        assert shown is not None
        assert shown.gpus == more["gpus"]
        # one that says so was not asked to edit the tree, by which it finds what to warn of
        assert shown.caveats == (() if says else caveats)


def test_a_change_of_the_machine_is_seen_and_so_is_its_return(node: Node) -> None:
    machine = node.driver.machine
    disk = root(node).inventory["DISK_GB"]["total"]
    for size, total in ((2, 2 * disk), (1, disk)):
        grown = replace(machine.disk, size_bytes=size * machine.disk.size_bytes)
        node.driver.machine = replace(machine, disk=grown)
        pass_by(node, 2)
        assert root(node).inventory["DISK_GB"]["total"] == total
        assert node.tracker.facts(node.name)["local_gb"] == total


def test_a_changed_option_of_the_driver_is_seen(node: Node) -> None:
    node.driver.options = replace(node.driver.options, reserved_memory_mib=1024)
    pass_by(node)
    trees = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    records = [
        trees.data(provider).inventory["MEMORY_MB"]
        for provider in trees.get_provider_uuids()
        if "MEMORY_MB" in trees.data(provider).inventory
    ]
    assert [record["reserved"] for record in records] == [1024]


def test_a_provider_config_file_is_added_and_taken_back(node: Node, tmp_path: Path) -> None:
    directory = tmp_path / "none"
    directory.mkdir()
    (directory / "rack.yaml").write_text(ENTRY)
    pass_by(node, 3)
    assert "CUSTOM_RACK" in root(node).traits
    (directory / "rack.yaml").unlink()
    pass_by(node)
    assert "CUSTOM_RACK" not in root(node).traits


def test_what_a_flush_wrote_that_failed_half_way_is_still_this_agents_to_take_back(
    node: Node, tmp_path: Path
) -> None:
    """Neither the traits that mark a GPU as the agent's nor the end of the flush were reached."""
    directory = tmp_path / "none"
    directory.mkdir()
    node.driver.machine = replace(node.driver.machine, gpus=())
    pass_by(node, 2)
    before = node.parts.report.get_provider_tree(node.uuid).get_provider_uuids(node.uuid)
    (directory / "rack.yaml").write_text(ENTRY)
    node.gain_a_gpu()
    node.transport.lie("PUT", f"(?<!{node.uuid})/traits$", lambda: make_response(400, [], "no"))
    assert not node.run().completed
    tree = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    assert len(tree.get_provider_uuids(node.uuid)) > len(before)
    assert "CUSTOM_RACK" in root(node).traits
    node.transport.honest()
    node.start_again()
    (directory / "rack.yaml").unlink()
    node.driver.machine = replace(node.driver.machine, gpus=())
    # the first one marks what is the agent's, which the driver goes by
    pass_by(node, 2)
    tree = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    assert tree.get_provider_uuids(node.uuid) == before
    assert "CUSTOM_RACK" not in root(node).traits


def test_what_the_driver_can_do_is_followed(node: Node) -> None:
    assert "COMPUTE_RESCUE_BFV" not in root(node).traits
    node.driver.capabilities = {**node.driver.capabilities, "supports_bfv_rescue": True}
    pass_by(node)
    assert "COMPUTE_RESCUE_BFV" in root(node).traits


def test_a_host_that_is_disabled_says_so(node: Node) -> None:
    pass_by(node, 3)
    for is_enabled in (False, True):
        node.parts.ledger.set_service_state(ServiceState(is_enabled))
        pass_by(node, 2)
        assert ("COMPUTE_STATUS_DISABLED" in root(node).traits) is not is_enabled


def test_what_other_writers_do_is_kept_or_put_right(node: Node) -> None:
    path = f"/resource_providers/{node.uuid}/traits"
    for _ in range(MOST_UNDONE + 1):  # now and then, so that this is not another agent
        stored = ask(node, "GET", path)
        theirs = {*stored["traits"], "CUSTOM_THEIRS"} - {"COMPUTE_NODE"}
        ask(node, "PUT", "/traits/CUSTOM_THEIRS")
        ask(node, "PUT", path, {**stored, "traits": sorted(theirs)})
        node.parts.report.written_elsewhere(node.uuid)
        pass_by(node)
        assert {"CUSTOM_THEIRS", "COMPUTE_NODE"} <= root(node).traits
        pass_by(node, 3)


def test_a_child_that_another_service_made_is_not_marked_as_the_agents(node: Node) -> None:
    """What has the mark, the agent may delete."""
    child = str(uuid.uuid4())
    body = {"uuid": child, "name": f"{node.name}_x", "parent_provider_uuid": node.uuid}
    ask(node, "POST", "/resource_providers", body)
    node.driver.machine = replace(node.driver.machine, gpus=())
    pass_by(node, 3)
    assert ask(node, "GET", f"/resource_providers/{child}/traits")["traits"] == []
    tree = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    own = [u for u in tree.get_provider_uuids(node.uuid) if u != child]
    assert all("OWNER_NOVA" in tree.data(provider).traits for provider in own)


def test_a_device_that_is_gone_stays_as_long_as_it_is_held(node: Node) -> None:
    tree = node.parts.report.get_provider_tree(node.uuid, fresh=True)
    (gpu,) = (uuid for uuid in tree.get_provider_uuids() if "VGPU" in tree.data(uuid).inventory)
    held = hold(node, gpu, "VGPU")
    node.driver.machine = replace(node.driver.machine, gpus=())
    pass_by(node, 4)
    kept = node.parts.report.get_provider_tree(node.uuid, fresh=True).data(gpu)
    assert kept.inventory["VGPU"]["total"] == 1
    assert node.driver.held(gpu) == {"VGPU": 1}
    ask(node, "DELETE", held)
    pass_by(node)
    assert not node.parts.report.get_provider_tree(node.uuid, fresh=True).exists(gpu)


def test_a_class_that_left_the_files_stays_as_long_as_it_is_held(
    node: Node, tmp_path: Path
) -> None:
    directory = tmp_path / "none"
    directory.mkdir()
    (directory / "shelves.yaml").write_text(SHELVES)
    pass_by(node, 3)
    held = hold(node, node.uuid, "CUSTOM_SHELF")
    (directory / "shelves.yaml").unlink()
    pass_by(node, 4)
    inventories = f"/resource_providers/{node.uuid}/inventories"
    assert "CUSTOM_SHELF" in ask(node, "GET", inventories)["inventories"]
    ask(node, "DELETE", held)
    pass_by(node)
    assert "CUSTOM_SHELF" not in ask(node, "GET", inventories)["inventories"]


def test_files_count_as_read_only_when_passes_merge_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merger = ProviderConfigMerger(tmp_path, Ledger(tmp_path, read_only=True))
    merger.load()
    during: list[int] = []

    def slow_load(path: Path) -> Any:
        during.append(merger.refresh())  # as the pass of another node
        return load(path)

    load = merger_module.load
    monkeypatch.setattr(merger_module, "load", slow_load)
    (tmp_path / "rack.yaml").write_text(ENTRY)
    assert merger.refresh() not in during
    assert len(during) == 1


def test_a_driver_may_change_the_capabilities_that_it_returned(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = node.driver.capabilities_as_traits()
    monkeypatch.setattr(node.driver, "capabilities_as_traits", lambda: capabilities)
    node.parts.merger.load()
    pass_by(node, 3)
    capabilities["COMPUTE_RESCUE_BFV"] = True
    pass_by(node)
    assert "COMPUTE_RESCUE_BFV" in root(node).traits


def test_a_fault_that_is_cleared_during_a_pass_is_confirmed_by_the_next(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = node.driver.machine.gpus
    broken = tuple(replace(gpu, critical_xid=79) for gpu in gpus)
    node.driver.machine = replace(node.driver.machine, gpus=broken)
    pass_by(node, 3)
    ledger = node.parts.ledger
    (gpu,) = ledger.faults()

    def clear_and_update(*arguments: Any) -> None:
        ledger.change_faults(cleared_providers=[gpu])
        update(*arguments)

    update = node.driver.update_provider_tree
    monkeypatch.setattr(node.driver, "update_provider_tree", clear_and_update)
    monkeypatch.setattr(node.driver, "reading", lambda _node: None)
    pass_by(node)
    monkeypatch.undo()
    assert ledger.faults() == {gpu: ""}
    pass_by(node)
    assert ledger.faults()[gpu]


def test_placement_hears_what_keeps_a_node_from_being_read(node: Node) -> None:
    trees, heard = node.parts.report.placement.trees, []
    trees.own_report = OwnReport(
        node.parts.setup.place, node.parts.board, node.parts.options, lambda _node: []
    )

    def hear(method: str, path: str) -> None:
        if (method, path.partition("?")[0]) == ("GET", f"/provider_trees/{node.uuid}"):
            heard.append(json.loads(trees.own_report(node.uuid) or "{}")["trouble"])

    node.transport.before = hear
    node.driver.misbehave(Misdeed("get_available_resource", OSError("away")))
    assert not node.run().completed
    if trees.is_offered:
        assert [text.partition(":")[0] for text in heard] == ["the driver failed unexpectedly"]
    node.transport.lie("GET", "^/provider_trees/", lambda: make_response(500, [], "no"))
    node.driver.misbehave(Misdeed("get_available_resource", OSError("away")))
    assert node.run().kind is EventKind.DRIVER_FAILED
