"""`audit`: what is gone is found and nothing else, as a file or as the agents tell."""

import json
import uuid
from collections.abc import Callable

import pytest

from compute_agent.cmd.screen import ProgressBars
from compute_agent.placement.transports.transport import Request, Response
from tests.functional.manage.conftest import Agent, Answer, Operator, PlacementView, refusing

pytestmark = pytest.mark.waiting

NOW = "--min-age=0"


def listed(operator: Operator, *uuids: str) -> str:
    """Write a file of instances; the argument that names it."""
    file = operator.directory / "instances"
    file.write_text("# what exists\n\n" + "".join(f"{uuid}\n" for uuid in uuids))
    return f"--instances={file}"


def everything(placement: PlacementView) -> list[str]:
    """Every consumer there is: a server that other tests use has theirs too."""
    found = placement.ask("GET", "/resource_providers")["resource_providers"]
    consumers: set[str] = set()
    for item in found:
        path = f"/resource_providers/{item['uuid']}/allocations"
        consumers.update(placement.ask("GET", path)["allocations"])
    return sorted(consumers)


# -- a file says what exists -----------------------------------------------------------------------


def test_a_consumer_that_is_not_in_the_file_is_an_orphan(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    alive, gone = (operator.placement.claim({root: {"VCPU": 1}}) for _ in range(2))
    exist = listed(operator, *set(everything(operator.placement)) - {gone})
    result = operator.run("audit", exist, NOW, "--json", status=3)
    orphans = result.document["orphans"]
    assert [orphan["uuid"] for orphan in orphans] == [gone]
    assert orphans[0]["allocations"][root]["resources"] == {"VCPU": 1}
    assert operator.placement.held(gone)
    assert operator.placement.held(alive)


def test_what_is_found_is_deleted_on_demand_and_then_there_is_none(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    alive, gone = (operator.placement.claim({root: {"VCPU": 1}}) for _ in range(2))
    exist = listed(operator, *set(everything(operator.placement)) - {gone})
    result = operator.run("audit", exist, NOW, "--delete", status=4)
    assert gone in result.out
    assert operator.placement.held(gone) == {}
    assert operator.placement.held(alive) == {root: {"VCPU": 1}}
    assert operator.run("audit", exist, NOW, "--delete").status == 0


def test_a_dry_run_deletes_nothing(offline: Operator) -> None:
    root = offline.placement.new_host()
    offline.placement.claim({root: {"VCPU": 1}})
    before = offline.dump()
    assert offline.run("audit", listed(offline), NOW, "--delete", "--dry-run").status == 3
    assert offline.run("audit", listed(offline), NOW).status == 3
    assert offline.dump() == before


def test_types_that_are_neither_instance_nor_migration_are_left_alone(offline: Operator) -> None:
    root = offline.placement.new_host()
    kinds = ("INSTANCE", "MIGRATION", None, "VOLUME")
    made = {kind: offline.placement.claim({root: {"VCPU": 1}}, None, kind) for kind in kinds}
    result = offline.run("audit", listed(offline), NOW, "--delete", "--json", status=4)
    assert set(result.document["deleted"]) == {made[kind] for kind in kinds[:3]}
    assert offline.placement.held(made["VOLUME"])


def test_every_class_and_every_provider_is_looked_at(offline: Operator) -> None:
    pool = offline.placement.new_provider("pool", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",))
    child = offline.placement.new_provider("c", {"FPGA": 1}, (), offline.placement.new_host())
    alive = offline.placement.claim({pool: {"DISK_GB": 1}})
    gone = {offline.placement.claim({pool: {"DISK_GB": 1}, child: {"FPGA": 1}})}
    result = offline.run("audit", listed(offline, alive), NOW, "--json")
    assert {orphan["uuid"] for orphan in result.document["orphans"]} == gone


def test_only_consumers_of_the_provider_that_is_named_are_looked_at(offline: Operator) -> None:
    one, two = offline.placement.new_host(), offline.placement.new_host()
    here = offline.placement.claim({one: {"VCPU": 1}, two: {"VCPU": 1}})
    offline.placement.claim({two: {"VCPU": 1}})
    result = offline.run(
        "audit", listed(offline), NOW, f"--resource_provider={one}", "--delete", "--json"
    )
    assert result.status == 4
    assert result.document["deleted"] == [here]
    assert result.document["consumers"] == 1


def test_what_was_written_recently_is_left_alone(offline: Operator) -> None:
    root = offline.placement.new_host()
    consumer = offline.placement.claim({root: {"VCPU": 1}})
    result = offline.run("audit", listed(offline), "--delete", "--json", status=0)
    assert result.document["young"] == 1
    assert offline.placement.held(consumer)


def test_a_consumer_that_appears_before_the_second_look_is_left_alone(
    offline: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = offline.placement.new_host()
    back, gone = (offline.placement.claim({root: {"VCPU": 1}}) for _ in range(2))
    exist = listed(offline)
    waits = []

    def wait(_bars: ProgressBars, seconds: float) -> None:
        waits.append(seconds)
        listed(offline, back)

    monkeypatch.setattr(ProgressBars, "wait", wait)
    result = offline.run("audit", exist, NOW, "--delete", "--json", status=4)
    assert waits == [0]
    assert result.document["deleted"] == [gone]
    assert offline.placement.held(back)


def test_the_looks_are_half_the_minimum_age_apart(
    offline: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = offline.placement.new_host()
    offline.placement.claim({root: {"VCPU": 1}})
    waits: list[float] = []
    monkeypatch.setattr(ProgressBars, "wait", lambda _bars, seconds: waits.append(seconds))
    monkeypatch.setattr("compute_agent.placement.allocations.allocations.age_of", lambda *_: 600.0)
    assert offline.run("audit", listed(offline), "--min-age=600", "--delete").status == 4
    assert waits == [300]


def test_a_consumer_that_changed_since_it_was_read_is_not_deleted(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    root = offline.placement.new_host()
    consumer = offline.placement.claim({root: {"VCPU": 1}})

    def change(request: Request, ask: Callable[[Request], Response]) -> None:
        if request.method == "PUT" and request.path == f"/allocations/{consumer}":
            held = json.loads(ask(Request("GET", request.path, (1, 38))).content)
            assert ask(Request("PUT", request.path, (1, 38), held)).status == 204

    answering(change)
    result = offline.run("audit", listed(offline), NOW, "--delete", "--json", status=3)
    assert result.document["kept"][0]["uuid"] == consumer
    assert result.document["deleted"] == []
    assert offline.placement.held(consumer) == {root: {"VCPU": 1}}


def test_1_when_placement_goes_away_while_deleting_and_what_was_deleted_is_said(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    root = offline.placement.new_host()
    consumers = sorted(offline.placement.claim({root: {"VCPU": 1}}) for _ in range(2))
    answering(refusing("PUT", f"/allocations/{consumers[1]}", 503))
    result = offline.run("audit", listed(offline), NOW, "--delete", "--json", status=1)
    assert result.document["deleted"] == consumers[:1]
    assert "503" in result.document["failure"]


def test_0_when_nobody_holds_anything(offline: Operator) -> None:
    assert offline.run("audit", listed(offline), NOW).status == 0


def test_1_for_what_cannot_be_audited(offline: Operator) -> None:
    assert offline.run("audit", "--instances=/no/such/file").status == 1
    provider = f"--resource_provider={uuid.uuid4()}"
    assert offline.run("audit", listed(offline), provider).status == 1


def test_1_for_a_line_that_is_no_uuid(offline: Operator) -> None:
    result = offline.run("audit", listed(offline, "an instance"), NOW, status=1)
    assert "line 3" in result.err


@pytest.mark.parametrize("source", ["agents", "file"])
def test_1_with_a_way_out_when_nobody_can_be_asked(offline: Operator, source: str) -> None:
    offline.configure(compute_agent={"instance_source": source})
    result = offline.run("audit", status=1)
    assert "--instances" in result.err


def test_stdout_has_the_document_alone_however_much_is_logged(offline: Operator) -> None:
    result = offline.run("audit", listed(offline), NOW, "--json", "--verbose")
    assert result.document["orphans"] == []
    assert "GET /resource_providers" in result.err


# -- the agents say what exists --------------------------------------------------------------------


class MuteAgent(Agent):
    """Announces itself and cannot say what runs there."""

    def list_instances(self, node: str | None = None) -> list[str]:
        raise RuntimeError("the hypervisor hangs")


def test_what_no_agent_lists_is_an_orphan(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    placement = offline.placement
    one, two = placement.new_host(), placement.new_host()
    alive, gone = placement.claim({one: {"VCPU": 1}}), placement.claim({one: {"VCPU": 1}})
    on_bus(Agent("a", [one], [alive]))
    on_bus(Agent("b", [two]))
    result = offline.run("audit", NOW, "--json", status=3)
    assert result.document["source"] == "agents"
    assert [orphan["uuid"] for orphan in result.document["orphans"]] == [gone]
    assert result.document["unknown"] == []
    assert offline.run("audit", NOW, "--delete").status == 4
    assert placement.held(gone) == {}
    assert placement.held(alive)


@pytest.mark.parametrize("mute", [True, False], ids=["no answer", "no announcement"])
def test_a_consumer_on_a_host_whose_agent_is_silent_is_never_an_orphan(
    offline: Operator, on_bus: Callable[[Agent], None], mute: bool
) -> None:
    placement = offline.placement
    one, two = placement.new_host(), placement.new_host("silent")
    child = placement.new_provider("silent-child", {"VGPU": 1}, (), two)
    on_child, on_both = (
        placement.claim({child: {"VGPU": 1}}),
        placement.claim({one: {"VCPU": 1}, two: {"VCPU": 1}}),
    )
    on_bus(Agent("a", [one]))
    if mute:
        on_bus(MuteAgent("b", [two]))
    result = offline.run("audit", NOW, "--delete", "--json", status=5)
    assert {consumer["uuid"] for consumer in result.document["unknown"]} == {on_child, on_both}
    assert all("silent" in consumer["reason"] for consumer in result.document["unknown"])
    assert placement.held(on_child)
    assert placement.held(on_both)


def test_a_consumer_of_shared_resources_is_judged_by_its_own_existence(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    placement = offline.placement
    host = placement.new_host()
    pool = placement.new_provider("pool", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",))
    alive, gone = (placement.claim({pool: {"DISK_GB": 1}}) for _ in range(2))
    on_bus(Agent("a", [host], [alive]))
    result = offline.run("audit", NOW, "--json", status=3)
    assert [orphan["uuid"] for orphan in result.document["orphans"]] == [gone]
    # with a silent agent it could run there
    placement.new_host("silent")
    result = offline.run("audit", NOW, "--json", status=5)
    assert [consumer["uuid"] for consumer in result.document["unknown"]] == [gone]


def test_agents_know_no_migrations(offline: Operator, on_bus: Callable[[Agent], None]) -> None:
    placement = offline.placement
    host = placement.new_host()
    migration = placement.claim({host: {"VCPU": 1}}, None, "MIGRATION")
    untyped = placement.claim({host: {"VCPU": 1}}, None, None)
    on_bus(Agent("a", [host]))
    result = offline.run("audit", NOW, "--delete", "--json", status=3)
    assert [consumer["uuid"] for consumer in result.document["unknown"]] == [migration]
    assert [consumer["uuid"] for consumer in result.document["kept"]] == [untyped]
    assert placement.held(migration)
    assert placement.held(untyped)


def test_when_no_agent_answers_at_all_nothing_is_an_orphan(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    pool = offline.placement.new_provider("p", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",))
    offline.placement.claim({pool: {"DISK_GB": 1}})
    result = offline.run("audit", NOW, "--delete", "--json", status=5)
    assert len(result.document["unknown"]) == 1


def test_what_else_does_not_fit_is_reported(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    placement = offline.placement
    one, two, left = (placement.new_host() for _ in range(3))
    nobodys = placement.new_provider("nobody's")
    naked, astray, home = str(uuid.uuid4()), str(uuid.uuid4()), str(uuid.uuid4())
    placement.claim({two: {"VCPU": 1}}, astray)
    placement.claim({one: {"VCPU": 1}}, home)
    on_bus(Agent("a", [one], [naked, astray, home]))
    on_bus(Agent("b", [two]))
    result = offline.run("audit", NOW, "--host-age=0", "--json", status=0)
    assert {(finding["what"], finding["uuid"]) for finding in result.document["findings"]} == {
        ("instance without allocations", naked),
        ("instance with allocations on another host", astray),
        ("provider without owner", nobodys),
        ("host without agent", left),
    }
    assert offline.run("audit", NOW, "--json").document["findings"] != []


# -- aggregates, where the agents tell which nodes a host has --------------------------------------


@pytest.mark.parametrize(("nodes", "status"), [(["x", "y"], 1), ([], 5), ([str(uuid.uuid4())], 6)])
def test_sync_aggregates_knows_from_the_agents_which_node_a_host_has(
    offline: Operator, on_bus: Callable[[Agent], None], nodes: list[str], status: int
) -> None:
    mine = str(uuid.uuid4())
    root = offline.placement.new_host("named otherwise")
    file = offline.directory / "aggregates.yaml"
    file.write_text(f"[{{uuid: {mine}, hosts: [good, bad]}}]")
    offline.configure(compute_scheduler={"aggregate_source": file})
    on_bus(Agent("good", [root]))
    on_bus(Agent("bad", nodes))
    result = offline.run("sync_aggregates", status=status)
    assert "bad" in result.err
    assert offline.placement.aggregates(root) == {mine}
