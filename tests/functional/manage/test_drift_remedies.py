"""Remedies of drift by the agent itself, with agents on a bus and with Nova as sources."""

import time
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.drift.audit import End, Treatment
from compute_agent.drift.repair import open_remedies
from tests.functional.manage.cloud import Cloud, migration, server
from tests.functional.manage.conftest import Agent, Operator
from tests.functional.manage.described_instances import NEED, flat_host

pytestmark = pytest.mark.waiting

NOW = {"compute_agent": {"audit_grace": 0}}


def treated(operator: Operator, root: str, *suspects: str) -> dict[str, Treatment]:
    """What becomes of suspects of the agent of `root`."""
    with open_remedies(*_parts(operator), operator.placement.transport) as found_remedies:
        treatments = found_remedies.delete_gone(root, suspects)
        return {treated.consumer: treated for treated in treatments}


def allocated(operator: Operator, node: str, *instances: str) -> dict[str, Treatment]:
    with open_remedies(*_parts(operator), operator.placement.transport) as found_remedies:
        treatments = found_remedies.allocate(node, instances)
        return {treated.consumer: treated for treated in treatments}


def _parts(operator: Operator) -> tuple[Any, ...]:
    operator.configure(**NOW)
    operator.arguments("audit")
    conf = agent_conf.new_config([f"--config-file={operator.directory / 'agent.conf'}"])
    driver = SimpleNamespace(list_instance_uuids=list, get_instance_devices=lambda _uuid: None)
    claims = SimpleNamespace(claims=lambda: CLAIMS)
    return conf, driver, claims


CLAIMS: dict[str, SimpleNamespace] = {}


# -- all agents ------------------------------------------------------------------------------------


def test_what_no_agent_runs_is_deleted_and_what_runs_elsewhere_is_not(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    placement = offline.placement
    mine, other = placement.new_host(), placement.new_host()
    gone, astray = (placement.claim({mine: {"VCPU": 1}}) for _ in range(2))
    moving = placement.claim({mine: {"VCPU": 1}}, None, "MIGRATION")
    on_bus(Agent("a", [mine]))
    on_bus(Agent("b", [other], [astray]))
    found = treated(offline, mine, gone, astray, moving)
    assert found[gone].end is End.HEALED
    assert placement.held(gone) == {}
    assert found[astray].end is found[moving].end is End.LEFT
    assert placement.held(astray)
    assert placement.held(moving)


def test_what_also_holds_something_of_a_silent_host_is_never_deleted(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    placement = offline.placement
    mine, silent = placement.new_host(), placement.new_host("silent")
    both = placement.claim({mine: {"VCPU": 1}, silent: {"VCPU": 1}})
    on_bus(Agent("a", [mine]))
    found = treated(offline, mine, both)[both]
    assert found.end is End.LEFT
    assert "no agent answers for silent" in found.detail
    assert placement.held(both)


def test_what_was_claimed_on_the_host_lately_may_be_being_built_and_is_not_deleted(
    offline: Operator, on_bus: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = offline.placement.new_host()
    built, given_up = (offline.placement.claim({mine: {"VCPU": 1}}) for _ in range(2))
    now = time.time()
    for consumer, claimed_at in ((built, now - 60), (given_up, now - 7200)):
        claim = SimpleNamespace(consumer=consumer, claimed_at=claimed_at)
        monkeypatch.setitem(CLAIMS, consumer, claim)
    on_bus(Agent("a", [mine]))
    found = treated(offline, mine, built, given_up)
    assert (found[built].end, found[given_up].end) == (End.LEFT, End.HEALED)
    assert offline.placement.held(built)


# -- Nova ------------------------------------------------------------------------------------------


def test_what_nova_does_not_have_is_deleted_and_nova_is_not_asked_for_all_servers(
    offline: Operator, cloud: Cloud
) -> None:
    placement = offline.placement
    mine, other = placement.new_host("mine"), placement.new_host("other")
    gone, alive, moved = (placement.claim({mine: {"VCPU": 1}}) for _ in range(3))
    wide = placement.claim({mine: {"VCPU": 1}, other: {"VCPU": 1}})
    migrating, over = (placement.claim({mine: {"VCPU": 1}}, None, "MIGRATION") for _ in range(2))
    cloud.servers = [server(alive, "mine")]
    cloud.migrations = [
        migration(migrating, moved, "error"),
        migration(over, alive, "confirmed"),
    ]
    found = treated(offline, mine, gone, alive, moved, wide, migrating, over)
    ends = {uuid_: item.end for uuid_, item in found.items()}
    assert {uuid_ for uuid_, end in ends.items() if end is End.HEALED} == {gone, over}
    assert placement.held(gone) == placement.held(over) == {}
    for kept in (alive, moved, wide, migrating):
        assert placement.held(kept)
    assert not any("/servers/detail" in target for _, target, _ in cloud.requests)


def test_a_consumer_that_changed_while_nova_was_asked_is_left_alone(
    offline: Operator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = offline.placement
    mine = placement.new_host("mine")
    gone = placement.claim({mine: {"VCPU": 1}})

    def answered(*asked: str) -> tuple[int, dict[str, object]]:
        if asked[1].startswith("/v2.1/servers/"):
            record = placement.ask("GET", f"/allocations/{gone}")
            record["allocations"] = {mine: {"resources": {"VCPU": 2}}}
            placement.ask("PUT", f"/allocations/{gone}", record)
        return Cloud.answer(cloud, *asked)

    monkeypatch.setattr(cloud, "answer", answered)
    assert treated(offline, mine, gone)[gone].end is End.FAILED
    assert placement.held(gone) == {mine: {"VCPU": 2}}


def test_an_instance_gets_what_nova_says_and_another_failure_does_not_keep_it(
    offline: Operator, cloud: Cloud
) -> None:
    root = flat_host(offline.placement, "mine")
    here, big, elsewhere, unknown = (str(uuid.uuid4()) for _ in range(4))
    large = {**server(big, "mine")["flavor"], "vcpus": 99}
    cloud.servers = [
        server(here, "mine"),
        server(big, "mine", flavor=large),
        server(elsewhere, "other"),
    ]
    found = allocated(offline, "mine", here, big, elsewhere, unknown)
    assert offline.placement.held(here) == {root: NEED}
    assert found[here].end is End.HEALED
    assert {found[instance].end for instance in (big, elsewhere, unknown)} == {End.FAILED}
    assert f"mine ({root})" in found[big].detail
    assert "VCPU" in found[big].detail
    assert offline.placement.held(big) == offline.placement.held(elsewhere) == {}
