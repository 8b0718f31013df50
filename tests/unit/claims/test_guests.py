"""Guests known to be on a host: nobody listed is something else than nobody there."""

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.agent.commands import AgentCommands
from compute_agent.claims.guests import guests, presence
from compute_agent.state.claim import Claim
from compute_agent.virt.driver import ComputeDriver, InstanceDevices

NOW = 1_000_000.0
RUNS, BUILT, OLD, MOVE = (str(uuid.UUID(int=number)) for number in range(1, 5))


def claim(consumer: str, age: float, instance: str = "") -> Claim:
    return Claim(consumer, "h", {}, instance or consumer, NOW - age)


CLAIMS = [claim(BUILT, 60), claim(OLD, 7200), claim(MOVE, 60, RUNS)]


class ListingDriver(ComputeDriver):
    """Lists guests, or cannot."""

    def __init__(self, listed: list[str] | None) -> None:
        self.listed = listed

    def list_instance_uuids(self) -> list[str] | None:
        return self.listed

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        return InstanceDevices((1,)) if uuid == RUNS else None

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        raise NotImplementedError

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        raise NotImplementedError

    def update_provider_tree(self, *_: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


def driver(listed: list[str] | None) -> ComputeDriver:
    return ListingDriver(listed)


def test_where_the_driver_lists_guests_a_claim_counts_for_the_time_of_a_build() -> None:
    found = presence(driver([RUNS]), CLAIMS, NOW)
    assert found.running_guests == {RUNS}
    assert found.known_consumers == {RUNS, BUILT, MOVE}
    assert presence(driver([]), [], NOW).running_guests == frozenset()


def test_where_the_driver_cannot_tell_every_claim_counts() -> None:
    found = presence(driver(None), CLAIMS, NOW)
    assert found.running_guests is None
    assert found.known_consumers == {BUILT, OLD, MOVE}


def test_guests_with_a_claim_are_asked_for_where_the_driver_cannot_list_them() -> None:
    assert guests(driver([RUNS, OLD]), CLAIMS) == {RUNS: InstanceDevices((1,))}
    assert guests(driver(None), CLAIMS) == {
        RUNS: InstanceDevices((1,)),
        BUILT: None,
        OLD: None,
    }


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> AgentCommands:
    monkeypatch.setattr("compute_agent.agent.commands.time.time", lambda: NOW)
    anything: Any = None
    return AgentCommands(
        anything,
        SimpleNamespace(driver=driver([RUNS])),  # type: ignore[arg-type]
        *(anything, anything, anything),
        book=SimpleNamespace(claims=lambda: CLAIMS),  # type: ignore[arg-type]
        availability=anything,
    )


def test_the_instances_an_agent_tells_are_those_that_run_and_those_being_built(
    commands: AgentCommands,
) -> None:
    assert commands.list_instances() == [RUNS, BUILT], "a migration is no instance"


def test_an_agent_that_cannot_tell_its_instances_says_so_and_never_none(
    commands: AgentCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands.parts, "driver", driver(None))
    with pytest.raises(errors.InstancesUnknown, match=r"cannot list .*instance_source"):
        commands.list_instances()
