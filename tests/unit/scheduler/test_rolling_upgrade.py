"""Behaviour of a scheduler while agents are too old, and its end by itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from compute_agent.cmd.scheduler.views import status_lines
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import Destination, InstanceGroup, PciRequest
from compute_agent.scheduler.claiming.claims import GiveBack, NewClaims
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.fleet.rolling_upgrade import (
    BEHAVIOURS,
    FLAT,
    KEPT_SECONDS,
    NESTED,
    OWNERS,
    Fleet,
    Layouts,
)
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.search import prefilters
from compute_agent.scheduler.search.prefilters import PrefilterContext
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from tests.fixtures.clocks import ManualClock
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import request_of, spec
from tests.unit.scheduler.trees import candidate, summary


def announced(**versions: int) -> Announcements:
    """Agents, each with a host of its own name."""
    found = Announcements()
    for root, version in versions.items():
        announce(found, root, version)
    return found


def announce(announcements: Announcements, root: str, version: int, **more: Any) -> None:
    node = {"uuid": root, **more}
    state = {"host": more.get("service", f"host-{root}"), "nodes": [node]}
    announcements.receive({**state, "service_version": version})


def fleet(announcements: Announcements | None, clock: ManualClock | None = None) -> Fleet:
    return Fleet(announcements, lambda roots: roots, BEHAVIOURS, clock or ManualClock())


def test_the_lowest_version_of_all_agents_counts() -> None:
    assert fleet(announced(a=3, b=1, c=2)).minimum() == 1


def test_without_agents_the_lowest_version_is_0_and_without_a_bus_there_is_none() -> None:
    assert fleet(Announcements()).minimum() == 0
    assert fleet(None).minimum() is None


def test_an_agent_whose_host_placement_has_no_more_does_not_count() -> None:
    observed_fleet = Fleet(
        announced(a=0, b=1), lambda roots: set(roots) - {"a"}, clock=ManualClock()
    )
    assert observed_fleet.minimum() == 1


def test_the_lowest_version_is_kept_for_a_minute_or_until_it_is_forgotten() -> None:
    announcements, clock = announced(a=0, b=1), ManualClock()
    roots = {"a", "b"}
    observed_fleet = Fleet(announcements, lambda _roots: roots, clock=clock)
    assert observed_fleet.minimum() == 0
    roots.remove("a")
    clock.now = KEPT_SECONDS - 1
    assert observed_fleet.minimum() == 0
    clock.now = KEPT_SECONDS
    assert observed_fleet.minimum() == 1
    roots.add("a")
    observed_fleet.forget()
    assert observed_fleet.minimum() == 0


def test_an_announcement_of_another_version_counts_at_once_for_all_who_hear_it() -> None:
    announcements, clock = announced(a=0), ManualClock()
    workers = [fleet(announcements, clock) for _ in range(2)]
    assert workers[0].minimum() == 0
    announce(announcements, "a", 1)
    assert [worker.minimum() for worker in workers] == [1, 1]
    announce(announcements, "b", 0)
    assert [worker.minimum() for worker in workers] == [0, 0]


@pytest.mark.parametrize(
    ("announcements", "supports", "may_lack"),
    [(announced(a=1), True, False), (announced(a=0, b=1), False, True), (None, False, False)],
)
def test_a_behaviour_needs_proof_that_all_are_new_and_a_fallback_that_some_are_old(
    announcements: Announcements | None, supports: bool, may_lack: bool
) -> None:
    observed_fleet = fleet(announcements)
    assert (observed_fleet.supports(OWNERS), observed_fleet.may_lack(OWNERS)) == (
        supports,
        may_lack,
    )


def test_the_status_names_the_hosts_that_hold_a_behaviour_back() -> None:
    status = fleet(announced(a=0, b=1)).status()
    assert status["minimum_service_version"] == 0
    by = {
        behaviour["name"]: (behaviour["in_force"], behaviour["held_back_by"])
        for behaviour in status["behaviours"]
    }
    assert by == {name: (False, ["host-a"]) for name in ("claims", "owners")}
    text = "\n".join(status_lines(status))
    assert "held back  owners: hosts and PCI devices must carry" in text
    assert "by host-a" in text
    assert "in force   claims" in "\n".join(status_lines(fleet(announced(b=1)).status()))


def test_the_status_names_a_scheduler_whose_reload_failed() -> None:
    failure = {"message": "[a]b is wrong", "since": "2026-01-01T00:00:00+00:00"}
    status = {**fleet(announced(b=1)).status(), "host": "controller1", "reload": failure}
    line = "options    of controller1 not reloaded at 2026-01-01T00:00:00+00:00: [a]b is wrong"
    assert list(status_lines(status))[-1] == line
    assert list(status_lines({**status, "reload": None}))[-1] == (
        "options    of controller1, which answers: no reload failed. Those of other schedulers are "
        "in the line of `systemctl status` there"
    )


def narrowed(owners: bool) -> str:
    asked = spec(pci_requests=(PciRequest("req", "gpu", 2),))
    request = request_of(asked, pci_aliases={"gpu": PciAlias("PGPU")})
    return prefilters.apply(asked, request, PrefilterContext(owners=owners)).query()


def test_hosts_and_devices_must_be_ours_once_every_agent_says_whose_they_are() -> None:
    query = narrowed(owners=True)
    assert "root_required=OWNER_NOVA,!COMPUTE_STATUS_DISABLED" in query
    assert "requiredreq-0=OWNER_NOVA" in query
    assert "requiredreq-1=OWNER_NOVA" in query
    assert "OWNER_NOVA" not in narrowed(owners=False)


class Hosts(Bank):
    """Hosts by what they have; a candidate for each that has what is asked in one group."""

    def __init__(self, **has: dict[str, int]) -> None:
        summaries = {
            name: summary(name, {c: (n, 0) for c, n in amounts.items()})
            for name, amounts in has.items()
        }
        super().__init__([], summaries)

    def offer(self, parameters: Any) -> Any:
        asked = dict(parameters).get("resources", "")
        wanted = {c: int(n) for c, n in (item.split(":") for item in asked.split(",") if item)}
        self.candidates = [
            candidate({name: wanted})
            for name, summary in self.summaries.items()
            if wanted
            and all(
                n <= summary["resources"].get(c, {"capacity": 0})["capacity"]
                for c, n in wanted.items()
            )
            and dict(parameters).get("in_tree") in (None, name)
        ]
        return super().offer(parameters)


def scheduler(bank: Bank, journal: Path, announcements: Announcements) -> Scheduler:
    observed_fleet = Fleet(announcements, bank.client.provider_names, clock=ManualClock())
    search = HostSearch(bank.client, HostSearchOptions(), announcements, observed_fleet)
    give_back = GiveBack(bank.client, Journal(journal))
    claims = NewClaims(bank.client, give_back, observed_fleet)
    return Scheduler(bank.client, search, SelectionOptions(), give_back, random.Random(1), claims)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_while_an_agent_claims_by_itself_a_selection_is_not_claimed(journal: Path) -> None:
    bank = Hosts(a={"VCPU": 4})
    announcements = announced(a=0)
    guest = spec(vcpus=2, memory_mb=0, root_gb=0)
    [[selection]] = scheduler(bank, journal, announcements).select_destinations(guest, ["i1"])
    assert selection.nodename == "host-a"
    assert bank.held == {}
    announce(announcements, "a", 1)
    scheduler(bank, journal, announcements).select_destinations(guest, ["i1"])
    assert bank.held == {"i1": {"a": {"VCPU": 2}}}


def test_layouts_are_looked_at_once_a_minute() -> None:
    clock, looks = ManualClock(), []

    def roots() -> tuple[frozenset[str], frozenset[str]]:
        looks.append(1)
        return frozenset("ab"), frozenset("a" * (len(looks) - 1))

    layouts = Layouts(roots, clock)
    assert layouts.present() == {FLAT}
    assert layouts.present() == {FLAT}
    clock.now = KEPT_SECONDS
    assert layouts.present() == {FLAT, NESTED}
    layouts.forget()
    assert len(looks) == 2
    layouts.present()
    assert len(looks) == 3


@pytest.mark.parametrize(
    ("hosts", "nested", "present"),
    [("ab", "ab", {NESTED}), ("ab", "a", {FLAT, NESTED}), ("", "", {FLAT, NESTED})],
)
def test_layouts_are_those_of_the_hosts_there_are(
    hosts: str, nested: str, present: set[str]
) -> None:
    layouts = Layouts(lambda: (frozenset(hosts), frozenset(nested)), ManualClock())
    assert layouts.present() == present


def test_only_the_layout_that_all_hosts_have_is_asked_for_unless_that_finds_nothing(
    journal: Path,
) -> None:
    bank = Hosts(a={"VCPU": 4})
    layouts = Layouts(lambda: (frozenset("a"), frozenset()), ManualClock())
    search = HostSearch(bank.client, HostSearchOptions(), layouts=layouts)
    found = search.find(spec(vcpus=2, memory_mb=0, root_gb=0))
    assert [query.shape for query in found.causes.queries] == ["flat"]
    missed = search.find(spec(vcpus=9, memory_mb=0, root_gb=0))
    assert [query.shape for query in missed.causes.queries] == ["flat", "nested", "split"]


def service_with_nodes() -> Announcements:
    found = Announcements()
    for root in ("n1", "n2"):
        announce(found, root, 1, service="ironic")
    announce(found, "n3", 1, service="other")
    return found


def test_a_service_with_several_nodes_is_filtered_afterwards_and_without_a_limit() -> None:
    bank = Hosts(n1={"VCPU": 4}, n2={"VCPU": 4}, n3={"VCPU": 4})
    search = HostSearch(bank.client, HostSearchOptions(), service_with_nodes())
    asked = spec(vcpus=2, memory_mb=0, root_gb=0, destination=Destination(host="ironic"))
    assert {host.uuid for host in search.find(asked).hosts} == {"n1", "n2"}
    assert "in_tree" not in bank.queries[0]
    assert "limit" not in bank.queries[0]
    node = spec(
        vcpus=2, memory_mb=0, root_gb=0, destination=Destination(host="ironic", node="host-n2")
    )
    assert {host.uuid for host in search.find(node).hosts} == {"n2"}
    assert bank.queries[-2]["in_tree"] == "n2"


def test_a_service_to_ignore_is_ignored_with_all_its_nodes() -> None:
    bank = Hosts(n1={"VCPU": 4}, n2={"VCPU": 4}, n3={"VCPU": 4})
    search = HostSearch(bank.client, HostSearchOptions(), service_with_nodes())
    asked = spec(vcpus=2, memory_mb=0, root_gb=0, ignore_hosts=frozenset({"ironic"}))
    assert {host.uuid for host in search.find(asked).hosts} == {"n3"}


def test_a_group_that_gathers_must_see_all_hosts() -> None:
    bank = Hosts(a={"VCPU": 4})
    search = HostSearch(bank.client, HostSearchOptions())
    for policy, limited in (("affinity", False), ("soft-affinity", False), ("anti-affinity", True)):
        group = InstanceGroup(policy=policy, hosts=frozenset({"host-a"}))
        search.find(spec(vcpus=2, memory_mb=0, root_gb=0, instance_group=group))
        assert ("limit" in bank.queries[-1]) is limited, policy
