"""`delete-host`, `rename` and `adopt`: what they do, what they refuse, and how they end."""

import json
import signal
import uuid
from collections.abc import Callable

import pytest

from compute_agent.agent.local_socket import LocalServer
from tests.functional.manage.conftest import Agent, Operator

pytestmark = pytest.mark.waiting


def reported(operator: Operator) -> str:
    """Report the operator's own host; the uuid of its root."""
    assert operator.migrate().status == 0
    return str(operator.placement.providers(operator.name)[operator.name]["uuid"])


# -- delete-host ---------------------------------------------------------------------------------


def test_a_host_without_allocations_is_deleted_with_its_whole_tree(operator: Operator) -> None:
    reported(operator)
    others = operator.placement.new_host()
    result = operator.run("delete-host", operator.name, "--json", status=0)
    assert operator.name in result.document["host"]["providers"]
    assert operator.placement.providers(operator.name) == {}
    assert operator.placement.ask("GET", f"/resource_providers/{others}")


def test_no_host_has_the_empty_name(operator: Operator) -> None:
    operator.placement.new_host()
    result = operator.run("delete-host", "", "--dry-run")
    assert "Placement has no resource provider ''" in result.err
    assert result.status not in (0, 6)


def test_a_host_in_use_is_refused_and_its_consumers_are_listed(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    consumer = operator.placement.claim({root: {"VCPU": 1}})
    result = operator.run("delete-host", operator.name, status=4)
    assert consumer in result.err
    assert operator.placement.held(consumer) == {root: {"VCPU": 1}}
    assert operator.placement.providers(operator.name)


def test_a_consumer_that_runs_elsewhere_gives_up_what_it_held_here(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    child = operator.placement.new_provider(f"{operator.name}_child", {"VGPU": 4}, (), root)
    elsewhere = operator.placement.new_host()
    consumer = operator.placement.claim(
        {root: {"VCPU": 2}, child: {"VGPU": 1}, elsewhere: {"VCPU": 2}}
    )
    assert operator.run("delete-host", operator.name).status == 4
    assert operator.run("delete-host", operator.name, "--evacuated", "--dry-run").status == 6
    assert set(operator.placement.held(consumer)) == {root, child, elsewhere}
    assert operator.run("delete-host", operator.name, "--evacuated").status == 0
    assert operator.placement.held(consumer) == {elsewhere: {"VCPU": 2}}
    assert operator.placement.providers(operator.name) == {}


def test_a_consumer_that_runs_only_here_was_not_evacuated(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    elsewhere = operator.placement.new_host()
    stays = operator.placement.claim({root: {"VCPU": 1}})
    moved = operator.placement.claim({root: {"VCPU": 1}, elsewhere: {"VCPU": 1}})
    result = operator.run("delete-host", operator.name, "--evacuated", status=4)
    assert stays in result.err
    assert moved not in result.err
    assert set(operator.placement.held(moved)) == {root, elsewhere}


def test_a_dry_run_of_a_deletion_writes_nothing(offline: Operator) -> None:
    reported(offline)
    before = offline.dump()
    assert offline.run("delete-host", offline.name, "--dry-run").status == 6
    assert offline.dump() == before


def test_a_deletion_that_was_interrupted_is_completed_by_the_next(offline: Operator) -> None:
    root = offline.placement.new_host(offline.name)
    for number in range(3):
        offline.placement.new_provider(f"{offline.name}_{number}", {"VGPU": 1}, (), root)
    kills = 0
    while offline.run_killed_before_write(2, "delete-host", offline.name).status == -signal.SIGKILL:
        kills += 1
    assert kills == 3
    assert offline.placement.providers(offline.name) == {}


def test_a_host_whose_agent_announces_itself_would_be_back_and_is_refused(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    root = offline.placement.new_host(offline.name)
    on_bus(Agent("another-name", [str(uuid.uuid4()), root]))
    before = offline.dump()
    for arguments in ((), ("--dry-run",)):
        result = offline.run("delete-host", offline.name, *arguments, status=4)
        assert "agent another-name announces it" in result.err
        assert "will be back" in result.err
        assert "--force" in result.err
    assert offline.dump() == before
    assert offline.run("delete-host", offline.name, "--force").status == 0
    assert offline.placement.providers(offline.name) == {}


def test_a_host_that_no_agent_announces_is_deleted_without_a_word(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    offline.placement.new_host(offline.name)
    on_bus(Agent(offline.name, [offline.placement.new_host()]))
    result = offline.run("delete-host", offline.name, status=0)
    assert "not known" not in result.err


def test_a_host_whose_agent_answers_on_this_machine_is_refused(offline: Operator) -> None:
    root = offline.placement.new_host(offline.name)
    offline.state.mkdir()
    status = {"nodes": [{"uuid": root}]}
    server = LocalServer(offline.state / "status.sock", {"status": lambda: status})
    server.start()
    try:
        result = offline.run("delete-host", offline.name, status=4)
        assert "status.sock" in result.err
        status["nodes"] = [{"uuid": offline.placement.new_host()}]
        assert offline.run("delete-host", offline.name).status == 0
    finally:
        server.stop()


def test_without_a_bus_it_is_said_that_nobody_knows_whether_the_agent_runs(
    operator: Operator,
) -> None:
    operator.placement.new_host(operator.name)
    result = operator.run("delete-host", operator.name, status=0)
    assert "not known" in result.err
    assert "transport_url" in result.err


def test_a_bus_that_cannot_be_reached_leaves_it_unknown(offline: Operator) -> None:
    offline.placement.new_host(offline.name)
    offline.configure(DEFAULT={"transport_url": "rabbit://127.0.0.1:1/"})
    result = offline.run("delete-host", offline.name, status=0)
    assert "not known" in result.err


def test_a_name_that_is_no_hosts_is_refused(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    operator.placement.new_provider(f"{operator.name}_child", {"VGPU": 1}, (), root)
    assert operator.run("delete-host", "no-such-host").status == 4
    result = operator.run("delete-host", f"{operator.name}_child", status=4)
    assert root in result.err
    assert len(operator.placement.providers(operator.name)) == 2


# -- rename --------------------------------------------------------------------------------------


def test_a_host_is_renamed_with_everything_that_is_named_after_it(operator: Operator) -> None:
    reported(operator)
    before = operator.placement.providers(operator.name)
    foreign = operator.placement.new_provider(
        f"{operator.name}:an agent", {}, (), before[operator.name]["uuid"]
    )
    new = f"new-{operator.name}"
    result = operator.run("rename", operator.name, new, "--json", status=0)
    after = operator.placement.providers(new)
    expected = {
        name.replace(operator.name, new, 1): provider["uuid"] for name, provider in before.items()
    }
    assert {name: provider["uuid"] for name, provider in after.items()} == {
        **expected,
        f"{operator.name}:an agent": foreign,
    }
    assert {rename["uuid"] for rename in result.document["renamed"]} == set(expected.values())


def test_a_dry_run_of_a_renaming_writes_nothing(offline: Operator) -> None:
    reported(offline)
    before = offline.dump()
    result = offline.run("rename", offline.name, "other", "--dry-run", "--json", status=6)
    assert len(result.document["renamed"]) == len(offline.placement.providers(offline.name))
    assert offline.dump() == before


def test_a_renaming_that_was_interrupted_is_completed_by_the_next(offline: Operator) -> None:
    root = offline.placement.new_host("old")
    for number in range(2):
        offline.placement.new_provider(f"old_{number}", {"VGPU": 1}, (), root)
    kills = 0
    while offline.run_killed_before_write(2, "rename", "old", "new").status == -signal.SIGKILL:
        kills += 1
    assert kills == 2
    assert set(offline.placement.providers("new")) == {"new", "new_0", "new_1"}


def test_children_left_under_the_old_name_are_renamed_when_the_root_was(offline: Operator) -> None:
    root = offline.placement.new_host("new")
    offline.placement.new_provider("old_0", {"VGPU": 1}, (), root)
    assert offline.run("rename", "old", "new").status == 0
    assert set(offline.placement.providers("new")) == {"new", "new_0"}


@pytest.mark.parametrize(("old", "new"), [("h", "h_1"), ("h_1", "h")])
def test_new_names_may_be_old_names_of_the_same_tree(offline: Operator, old: str, new: str) -> None:
    root = offline.placement.new_host(old)
    names = [f"{old}_1", f"{old}_1_1"]
    children = [offline.placement.new_provider(name, {}, (), root) for name in names]
    assert offline.run("rename", old, new).status == 0
    found = {provider["uuid"]: name for name, provider in offline.placement.providers(new).items()}
    assert found == {root: new, children[0]: f"{new}_1", children[1]: f"{new}_1_1"}


def test_a_name_that_belongs_to_another_provider_is_refused_and_nothing_is_renamed(
    operator: Operator,
) -> None:
    root = operator.placement.new_host(operator.name)
    operator.placement.new_provider(f"{operator.name}_0", {}, (), root)
    new = f"new-{operator.name}"
    taken = operator.placement.new_provider(f"{new}_0")
    result = operator.run("rename", operator.name, new, status=4)
    assert taken in result.err
    assert set(operator.placement.providers(operator.name)) == {
        operator.name,
        f"{operator.name}_0",
    }


def test_a_host_that_is_not_there_or_was_renamed_before_is_refused(operator: Operator) -> None:
    assert operator.run("rename", "no-such-host", "other").status == 4
    operator.placement.new_host(operator.name)
    assert operator.run("rename", "no-such-host", operator.name).status == 4
    assert operator.run("rename", operator.name, operator.name).status == 4


# -- adopt ---------------------------------------------------------------------------------------


def test_an_adopted_identity_is_the_hosts_from_then_on(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    assert operator.run("adopt", root, "--dry-run").status == 6
    assert not (operator.state / "compute_id").exists()
    assert operator.run("adopt", root).status == 0
    assert (operator.state / "compute_id").read_text() == f"{root}\n"
    assert reported(operator) == root


def test_a_host_that_has_an_identity_does_not_get_another(operator: Operator) -> None:
    mine = reported(operator)
    other = operator.placement.new_host()
    result = operator.run("adopt", other, status=4)
    assert mine in result.err


def test_an_identity_beside_the_configuration_file_counts(operator: Operator) -> None:
    other = operator.placement.new_host()
    (operator.directory / "compute_id").write_text(str(uuid.uuid4()))
    operator.run("adopt", other, status=4)
    assert not (operator.state / "compute_id").exists()


def test_a_host_that_lost_its_identity_gets_only_its_own_back(operator: Operator) -> None:
    mine, other = operator.placement.new_host(), operator.placement.new_host()
    operator.state.mkdir()
    marker = {"uuid": mine, "name": "h", "machine_id": "m"}
    (operator.state / "registered").write_text(json.dumps(marker))
    refused = operator.run("adopt", other, status=4)
    assert mine in refused.err
    assert operator.run("adopt", mine).status == 0


def test_only_the_root_of_a_hosts_tree_is_adopted(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    child = operator.placement.new_provider(f"{operator.name}_0", {}, (), root)
    shared = operator.placement.new_provider(
        f"pool-{operator.name}", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",)
    )
    for uuid_ in (child, shared, str(uuid.uuid4())):
        assert operator.run("adopt", uuid_).status == 4
    assert not (operator.state / "compute_id").exists()
