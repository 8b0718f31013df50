"""Providers of a host's own: after a new name, and where another agent left them."""

import json
import logging
import uuid
from itertools import product

import pytest
from msgspec.structs import asdict, astuple, replace

from compute_agent import errors
from compute_agent.placement.transports.transport import Response
from compute_agent.tracker.decisions import ExitCode
from compute_agent.tracker.node_identity import NodeSetup
from compute_agent.tracker.place import UNKNOWN, Place
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.in_process import Node
from tests.functional.agent.processes import claim, running
from tests.functional.either_placement import ours

pytestmark = pytest.mark.waiting


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


def nova_root(placement, node) -> str:
    """A root as another agent left it in placement."""
    return make_provider(placement.send, node, {"VCPU": 8}, ["COMPUTE_NODE", "CUSTOM_OPERATORS"])


def test_a_host_of_another_agent_is_taken_over_without_a_new_provider(placement, new_agent, node):
    root = nova_root(placement, node)
    guest = claim(placement, root, {"VCPU": 1})
    agent = new_agent(placement.url)
    agent.script(nodes=[node], instances=[guest])
    with running(agent):
        assert (agent.state / "compute_id").read_text().strip() == root
        (provider,) = placement.tree(node).values()
        assert provider["uuid"] == root
        assert "CUSTOM_OPERATORS" in provider["traits"]


def taken_by_a_child(placement, name) -> str:
    """Give the name to a provider below another; the child."""
    parent = make_provider(placement.send, f"{name}-above")
    return make_provider(placement.send, name, {}, ["COMPUTE_NODE"], parent=parent)


def taken_by_shared_storage(placement, name) -> str:
    """Give the name to a provider that others share."""
    traits = ["OWNER_NOVA", "MISC_SHARES_VIA_AGGREGATE"]
    return make_provider(placement.send, name, {}, traits)


@pytest.mark.parametrize("arguments", [[], ["--adopt"]])
@pytest.mark.parametrize(
    ("taken", "why"),
    [(taken_by_a_child, "parent"), (taken_by_shared_storage, "MISC_SHARES_VIA_AGGREGATE")],
)
def test_a_provider_of_this_name_that_can_be_no_host_ends_with_5_and_is_left_alone(
    placement, new_agent, node, taken, why, arguments
):
    other = taken(placement, node)
    path = f"/resource_providers/{other}"
    before = placement.get(path), placement.get(f"{path}/traits")
    agent = new_agent(placement.url)
    agent.script(nodes=[node], instances=[str(uuid.uuid4())])
    agent.start(*arguments)
    assert agent.ended() == 5
    assert other in agent.logged()
    assert why in agent.logged()
    assert "Traceback" not in agent.logged()
    assert not (agent.state / "compute_id").exists()
    assert (placement.get(path), placement.get(f"{path}/traits")) == before


@pytest.mark.parametrize(
    ("taken", "why"),
    [(taken_by_a_child, "has the parent"), (taken_by_shared_storage, "MISC_SHARES_VIA_AGGREGATE")],
)
def test_an_identity_file_that_names_what_can_be_no_host_ends_with_5_and_that_is_left_alone(
    placement, new_agent, node, taken, why
):
    name = f"{node}-other"
    other = taken(placement, name)
    path = f"/resource_providers/{other}"
    before = placement.get(path), placement.get(f"{path}/traits")
    agent = new_agent(placement.url)
    file = agent.state / "compute_id"
    agent.state.mkdir()
    file.write_text(other)
    agent.start()
    assert agent.ended() == 5
    planned = agent.run("plan")
    assert planned.returncode == 5
    for said in (agent.logged(), planned.stderr):
        assert "Traceback" not in said
        for word in (str(file), other, repr(name), why):
            assert word in said
    assert not (agent.state / "registered").exists()
    assert other not in (agent.state / "ledger.json").read_text()
    assert (placement.get(path), placement.get(f"{path}/traits")) == before
    assert placement.root(node) is None


@pytest.mark.parametrize(("option", "renames"), [("rename", True), ("refuse", False)])
def test_an_identity_file_that_names_a_root_of_another_name_is_a_host_that_was_renamed(
    placement, new_agent, node, option, renames
):
    root = nova_root(placement, f"{node}-other")
    agent = new_agent(placement.url, compute_agent={"on_hostname_change": option})
    agent.state.mkdir()
    (agent.state / "compute_id").write_text(root)
    agent.start()
    if renames:
        agent.started()
    else:
        assert agent.ended() == 5
        assert "on_hostname_change" in agent.logged()
    assert placement.get(f"/resource_providers/{root}")["name"] == (
        node if renames else f"{node}-other"
    )


@pytest.fixture
def host(tmp_path):
    made = Node(ours(tmp_path), tmp_path)
    yield made
    made.parts.close()


def test_a_new_name_while_running_is_an_error_once_and_the_old_name_is_kept(
    host, monkeypatch, caplog
):
    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]

    def is_named(name: str) -> None:
        monkeypatch.setattr(host.driver, "get_available_nodes", lambda **_refresh: [name])

    own = {host.name: host.uuid}
    assert host.run().completed
    is_named("new-name")
    for _ in range(3):
        assert host.parts.setup.nodes() == own
        assert host.run().completed
    (error,) = said()
    assert "new-name" in error
    assert host.name in error
    assert "restart" in error
    assert host.parts.report.placement.providers.get(host.uuid)["name"] == host.name

    is_named(host.name)
    assert host.parts.setup.nodes() == own
    assert len(said()) == 1
    is_named("newer-name")
    for _ in range(2):
        assert host.parts.setup.nodes() == own
    assert len(said()) == 2
    assert "newer-name" in said()[1]


def test_a_root_that_is_put_below_another_provider_is_an_error_and_ends_the_next_start_with_5(
    tmp_path, caplog
):
    app = ours(tmp_path)
    host = Node(app, tmp_path)

    def is_below(parent: str | None) -> None:
        host.parts.report.placement.providers.put(host.uuid, host.name, parent, reparents=True)

    assert host.run().completed
    above = str(uuid.uuid4())
    host.parts.report.placement.providers.create(above, f"above-{host.name}", None)
    is_below(above)
    host.gain_a_gpu()
    result = host.run()
    assert (result.completed, result.exit_code) == (False, None)
    assert above in caplog.text
    assert host.parts.report.known_tree(host.uuid) is None
    assert not host.has_a_gpu()
    host.parts.close()
    host = Node(app, tmp_path, name=host.name)
    host.gain_a_gpu()
    assert host.run().exit_code == ExitCode.IDENTITY
    assert "placement-cache.json" not in caplog.text
    assert not host.parts.ledger.owns(host.uuid)
    is_below(None)
    host.start_again()
    assert host.is_made_good()
    assert host.parts.ledger.owns(host.uuid)
    host.parts.close()


def test_the_tree_of_the_provider_that_has_the_name_of_this_host_is_not_kept(host):
    other = str(uuid.uuid4())
    host.parts.report.placement.providers.create(other, host.name, None)
    assert host.run().exit_code == ExitCode.IDENTITY
    assert host.parts.report.known_tree(other) is None


def test_a_host_takes_over_only_what_it_reported_itself_and_no_clone_of_it_reports_now(tmp_path):
    host = Node(ours(tmp_path), tmp_path, whole_trees=True)
    assert host.run().completed
    here = Place("10.0.0.1", "machine", "boot", "/state")
    there = Place("10.0.0.2", "another machine", "another boot", "/another/state")

    def is_taken_over(place: Place, reporter: Place, *, is_silent: bool) -> bool:
        report = {
            "root_provider_uuid": host.uuid,
            "at": "2026-01-01T00:00:00+00:00",
            "silent": is_silent,
            "bus": {"state": "off"},
            "disabled_reason": "",
            "trouble": "",
            "place": asdict(reporter),
        }
        body = json.dumps({"agent_reports": [report]}).encode()
        host.transport.lie("GET", "^/agent_reports", lambda: Response(200, {}, body))
        setup = NodeSetup(
            host.driver,
            host.parts.report,
            host.name,
            tmp_path / "lost",
            places=(),
            place=place,
            write=False,
        )
        try:
            return setup.nodes() == {host.name: host.uuid}
        except errors.InvalidNodeConfiguration:
            return False

    for fields in product(*zip(astuple(here), astuple(there), strict=True)):
        reporter, is_booted_again = Place(*fields), fields[2] != here.boot_id
        is_same_machine = (fields[1], fields[3]) == (here.machine_id, here.state_path)
        for is_silent in (False, True):
            assert is_taken_over(here, reporter, is_silent=is_silent) == (
                # a machine that was booted again and reports is a clone of this one
                is_same_machine and (is_silent or not is_booted_again)
            )
    nameless = replace(here, machine_id=UNKNOWN)
    assert not is_taken_over(nameless, nameless, is_silent=True)
    host.parts.close()
