"""`migrate_compute_inventory`: safe whenever it is run, and an exit status for each way it ends."""

import json
import signal
from pathlib import Path

import pytest

from compute_agent.state.files import AgentLock
from tests.functional.manage.conftest import Operator
from tests.functional.manage.reshaping_host import occupied, sums, will_report

pytestmark = pytest.mark.waiting

DRIVERS = "tests.functional.manage.drivers"


def test_a_new_host_is_reported_and_a_second_run_finds_nothing_to_do(operator: Operator) -> None:
    first = operator.migrate("--json", status=0)
    assert first.document["nodes"][0]["operations"]
    tree = operator.placement.providers(operator.name)
    assert "VCPU" in tree[f"{operator.name}_NUMA0"]["inventories"]

    second = operator.migrate("--json", status=0)
    assert second.document["nodes"][0]["operations"] == []
    assert operator.placement.providers(operator.name) == tree


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(operator: Operator) -> None:
    result = operator.migrate("--dry-run", "--json", status=6)
    assert result.document["nodes"][0]["operations"]
    assert operator.placement.providers(operator.name) == {}
    assert operator.migrate().status == 0
    assert operator.migrate("--dry-run").status == 0


def test_a_dry_run_of_a_reshape_leaves_every_row_of_the_database_as_it_was(
    offline: Operator,
) -> None:
    occupied(offline)
    before = offline.dump()
    will_report(offline, "nested")
    result = offline.migrate("--dry-run", "--json", status=6)
    node = result.document["nodes"][0]
    assert node["reshaped"]
    assert node["consumers"] == 3
    assert offline.dump() == before


def test_a_reshape_moves_inventory_and_guests_and_is_done_once(operator: Operator) -> None:
    guests = occupied(operator)
    before = [sums(operator, guest) for guest in guests]
    will_report(operator, "nested")
    result = operator.migrate("--json", status=0)
    assert result.document["nodes"][0]["consumers"] == 3

    tree = operator.placement.providers(operator.name)
    assert "VCPU" not in tree[operator.name]["inventories"]
    cell = tree[f"{operator.name}_NUMA0"]["uuid"]
    assert all(set(operator.placement.held(guest)) == {cell} for guest in guests)
    assert [sums(operator, guest) for guest in guests] == before

    will_report(operator, "nested")
    again = operator.migrate("--json", status=0)
    assert again.document["nodes"][0]["operations"] == []


def test_a_first_report_that_is_killed_again_and_again_converges(offline: Operator) -> None:
    kills = 0
    while offline.run_killed_before_write(6).status == -signal.SIGKILL:
        kills += 1
    assert kills > 1
    assert offline.migrate("--json").document["nodes"][0]["operations"] == []


def test_the_plan_is_written_to_a_file(offline: Operator, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert offline.migrate("--dry-run", "--plan", str(file)).status == 6
    plan = json.loads(file.read_text())
    assert plan["dry_run"]
    assert plan["nodes"][0]["node"] == offline.name


def test_a_plan_that_cannot_be_written_is_refused_before_anything_is_done(
    offline: Operator, tmp_path: Path
) -> None:
    offline.migrate("--plan", str(tmp_path / "missing" / "plan.json"), status=127)
    assert offline.placement.providers(offline.name) == {}


def test_only_the_node_that_is_named_is_migrated(offline: Operator) -> None:
    offline.configure(DEFAULT={"compute_driver": f"{DRIVERS}.OneOfTwoFails"})
    assert offline.migrate("--node", f"{offline.name}-good").status == 0
    assert offline.placement.providers(f"{offline.name}-good")
    assert not offline.placement.providers(f"{offline.name}-bad")


# -- exit status ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "options"),
    [
        ("DEFAULT", {"compute_driver": "fake.NoSuchDriver"}),
        ("compute", {"cpu_shared_set": "nonsense"}),
    ],
)
def test_1_for_a_configuration_that_cannot_be_used(
    offline: Operator, group: str, options: dict[str, str]
) -> None:
    offline.configure(**{group: options})
    result = offline.migrate(status=1)
    assert next(iter(options)) in result.err


def test_1_and_all_reasons_when_a_tree_has_several_problems(offline: Operator) -> None:
    offline.configure(DEFAULT={"compute_driver": f"{DRIVERS}.ReservesTooMuch"})
    result = offline.migrate(status=1)
    assert "MEMORY_MB" in result.err
    assert "DISK_GB" in result.err
    (root,) = offline.placement.providers(offline.name).values()
    assert root["inventories"] == {}


def test_1_for_a_placement_config_that_is_missing_or_garbage(
    offline: Operator, tmp_path: Path
) -> None:
    offline.extra = [f"--placement-config={tmp_path / 'missing.conf'}"]
    assert offline.migrate().status == 1
    (tmp_path / "bad.conf").write_text("garbage")
    offline.extra = [f"--placement-config={tmp_path / 'bad.conf'}"]
    assert offline.migrate().status == 1


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_2_while_the_agent_runs(operator: Operator, arguments: tuple[str, ...]) -> None:
    operator.state.mkdir()
    with AgentLock(operator.state):
        result = operator.migrate(*arguments, status=2)
    assert "running" in result.err
    assert operator.placement.providers(operator.name) == {}


def test_3_for_a_node_that_is_not_migrated_and_the_others_are(operator: Operator) -> None:
    operator.configure(DEFAULT={"compute_driver": f"{DRIVERS}.OneOfTwoFails"})
    result = operator.migrate("--json", status=3)
    assert "a guest holds what is gone" in result.err
    failures = [node["failure"] is None for node in result.document["nodes"]]
    assert sorted(failures) == [False, True]
    assert (
        "VCPU"
        in next(iter(operator.placement.providers(f"{operator.name}-good").values()))["inventories"]
    )


def test_3_for_a_driver_that_is_never_content(offline: Operator) -> None:
    offline.configure(DEFAULT={"compute_driver": f"{DRIVERS}.NeverContent"})
    result = offline.migrate(status=3)
    assert "not migrated" in result.err


def test_4_for_a_database_that_cannot_be_used(offline: Operator, tmp_path: Path) -> None:
    file = tmp_path / "other.conf"
    file.write_text(
        f"[placement_database]\nconnection = sqlite:///{tmp_path}/missing/p.db\nmax_retries = 0\n"
    )
    offline.extra = [f"--placement-config={file}"]
    assert offline.migrate().status == 4
    file.write_text(f"[placement_database]\nconnection = sqlite:///{tmp_path}/empty.db\n")
    result = offline.migrate(status=4)
    assert "db sync" in result.err


@pytest.mark.parametrize("error", ["VirtDriverNotReady", "HypervisorUnavailable"])
@pytest.mark.parametrize("method", ["init_host", "update_provider_tree"])
def test_5_for_a_driver_that_is_not_ready(offline: Operator, method: str, error: str) -> None:
    offline.configure(
        DEFAULT={"compute_driver": "fake.FakeMisbehavingDriver"},
        fake={"failing_method": method, "failing_error": error},
    )
    assert offline.migrate().status == 5
