"""Members of server groups, also those claimed at the same time."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec.structs import replace

from compute_agent.request.spec import InstanceGroup, RequestSpec
from compute_agent.scheduler.claiming.together import crowded_hosts
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.life_cycle.life_cycle import ReplacingClaims
from compute_agent.scheduler.placement.holdings import Holding
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.scheduler.search.targets import GroupMembers
from tests.unit.scheduler.bank import Bank

from .clouds import ONE, chosen, flat_hosts, scheduler_on


def test_members_of_an_anti_affinity_group_go_to_different_hosts(journal: Path) -> None:
    bank = flat_hosts(a=9, b=8)
    asked = replace(ONE, instance_group=InstanceGroup(policy="anti-affinity"))
    assert chosen(scheduler_on(bank, journal), asked, "i1", "i2") == ["host-a", "host-b"]
    with pytest.raises(NoValidHost, match="ServerGroupAntiAffinityFilter dropped the last"):
        chosen(scheduler_on(bank, journal), asked, "i3", "i4", "i5")


def test_members_of_an_affinity_group_go_to_one_host(journal: Path) -> None:
    bank = flat_hosts(a=4, b=9)
    asked = replace(
        ONE, instance_group=InstanceGroup(policy="affinity", hosts=frozenset({"host-a"}))
    )
    assert chosen(scheduler_on(bank, journal), asked, "i1", "i2") == ["host-a", "host-a"]


def test_members_are_found_where_placement_says_they_are(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    bank.held["member"] = {"a": {"VCPU": 1}}
    asked = replace(
        ONE, instance_group=InstanceGroup(policy="anti-affinity", members=frozenset({"member"}))
    )
    assert chosen(scheduler_on(bank, journal), asked) == ["host-b"]


def racing_group(bank: Bank, **rules: int) -> RequestSpec:
    """A group of which another member is claimed on host a while the first one is."""

    def be_claimed(consumer: str) -> None:
        if consumer == "i1" and "i2" not in bank.held:
            bank.held["i2"] = {"a": {"VCPU": 1}}

    bank.before_claim = be_claimed
    members = frozenset({"i1", "i2", "elsewhere"})
    return replace(ONE, instance_group=InstanceGroup("anti-affinity", rules, members=members))


def test_of_two_members_claimed_on_a_host_at_the_same_time_the_later_moves_on(
    journal: Path,
) -> None:
    bank = flat_hosts(a=9, b=4)
    assert chosen(scheduler_on(bank, journal), racing_group(bank)) == ["host-b"]
    assert bank.held == {"i1": {"b": {"VCPU": 2}}, "i2": {"a": {"VCPU": 1}}}


def test_several_members_are_placed_again_when_another_was_claimed_on_one_of_their_hosts(
    journal: Path,
) -> None:
    bank = flat_hosts(a=9, b=8, c=4)
    members = frozenset({"i1", "i2", "other"})
    asked = replace(ONE, instance_group=InstanceGroup("anti-affinity", members=members))

    def be_claimed(_consumer: str) -> None:
        bank.held.setdefault("other", {"a": {"VCPU": 1}})

    bank.before_claim = be_claimed
    assert chosen(scheduler_on(bank, journal), asked, "i1", "i2") == ["host-b", "host-c"]
    assert set(bank.held) == members
    full = flat_hosts(a=9, b=8)
    full.before_claim = lambda _: full.held.setdefault("other", {"a": {"VCPU": 1}}) and None
    with pytest.raises(NoValidHost):
        chosen(scheduler_on(full, journal), asked, "i1", "i2")
    assert set(full.held) == {"other"}


def test_members_that_a_host_may_have_together_stay(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    group = racing_group(bank, max_server_per_host=2)
    assert chosen(scheduler_on(bank, journal), group) == ["host-a"]


def gives_way_when_looked_for(bank: Bank, *rivals: str) -> None:
    """Let others that saw those who look for them take back what they hold, one look later."""
    look, looks = bank.client.consumers_on, list[str]()

    def look_and_give_way(
        root: str, providers: Collection[str], consumers: Collection[str]
    ) -> frozenset[str]:
        there = look(root, providers, consumers)
        looks.extend(there & set(rivals))
        for rival in {rival for rival in looks if looks.count(rival) > 1}:
            bank.held.pop(rival, None)
        return there

    bank.client.consumers_on = look_and_give_way  # type: ignore[method-assign]


def test_of_two_members_that_race_for_the_last_place_beside_another_one_gets_it(
    journal: Path,
) -> None:
    bank = flat_hosts(a=9)
    bank.held["early"] = {"a": {"VCPU": 1}}
    bank.before_claim = lambda _: bank.held.setdefault("i2", {"a": {"VCPU": 1}}) and None
    gives_way_when_looked_for(bank, "i2")
    members = frozenset({"early", "i1", "i2"})
    group = InstanceGroup("anti-affinity", {"max_server_per_host": 2}, members=members)
    asked = replace(ONE, instance_group=group)
    assert chosen(scheduler_on(bank, journal), asked) == ["host-a"]
    assert set(bank.held) == {"early", "i1"}


def test_members_of_one_request_count_on_their_host_together(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    bank.before_claim = lambda _: bank.held.setdefault("other", {"a": {"VCPU": 1}}) and None
    # the caller does not name those that are claimed now
    group = InstanceGroup("anti-affinity", {"max_server_per_host": 2}, members=frozenset({"other"}))
    asked = replace(ONE, instance_group=group)
    assert sorted(chosen(scheduler_on(bank, journal), asked, "i1", "i2")) == ["host-a", "host-b"]
    assert set(bank.held) == {"i1", "i2", "other"}


@pytest.mark.parametrize(("others", "wins"), [(("k1", "k2"), True), (("h1", "z2"), False)])
def test_of_two_requests_for_several_members_that_race_for_the_last_hosts_one_gets_them(
    journal: Path, others: tuple[str, str], wins: bool
) -> None:
    bank = flat_hosts(a=9, b=8)
    group = InstanceGroup("anti-affinity", members=frozenset({"i1", "i2", *others}))
    first, second = others

    def be_claimed(_consumer: str) -> None:
        bank.held |= {first: {"b": {"VCPU": 1}}, second: {"a": {"VCPU": 1}}}

    bank.before_claim = be_claimed
    if wins:
        gives_way_when_looked_for(bank, *others)
    asked = replace(ONE, instance_group=group)
    if wins:
        assert chosen(scheduler_on(bank, journal), asked, "i1", "i2") == ["host-a", "host-b"]
        assert set(bank.held) == {"i1", "i2"}
    else:
        with pytest.raises(NoValidHost, match="claimed there at the same time"):
            chosen(scheduler_on(bank, journal), asked, "i1", "i2")
        assert set(bank.held) == set(others)


def test_a_claim_that_waits_for_another_gives_way_at_once_to_a_smaller_one_that_comes_meanwhile(
    journal: Path,
) -> None:
    bank = flat_hosts(a=9)
    group = InstanceGroup("anti-affinity", members=frozenset({"i1", "i2", "i3"}))
    asked = replace(ONE, instance_group=group)
    on_a: dict[str, dict[str, int]] = {"a": {"VCPU": 1}}
    [host] = HostSearch(bank.client, HostSearchOptions()).find(asked).hosts
    bank.held |= {"i2": on_a, "i3": on_a}
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        bank.held["i1"] = on_a

    members = GroupMembers(bank.client, asked, is_enforced=True)
    [crowded] = crowded_hosts(members, {"i2": host}, wait)
    assert crowded.others == {"i1", "i3"}
    # it waits for this one to be gone, but not for longer than this one would wait
    assert len(waits) == 1


def test_a_replaced_claim_is_not_looked_at_again_as_it_cannot_be_taken_back(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    look, looks = bank.client.consumers_on, list[str]()

    def be_looked_at(
        root: str, providers: Collection[str], consumers: Collection[str]
    ) -> frozenset[str]:
        looks.append(root)
        return look(root, providers, consumers)

    bank.client.consumers_on = be_looked_at  # type: ignore[method-assign]
    group = racing_group(bank)
    bank.after_claim = lambda _: looks.clear()
    replacing = ReplacingClaims(bank.client, Holding({}, {}))
    [[selection]] = scheduler_on(bank, journal).select_destinations(group, ["i1"], claims=replacing)
    assert (selection.compute_node_uuid, looks) == ("a", [])


def test_a_host_whose_filter_does_not_run_may_have_many_members(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    scheduler = scheduler_on(bank, journal, filters=["ComputeFilter"])
    assert chosen(scheduler, racing_group(bank)) == ["host-a"]
    forced = replace(racing_group(bank), force_hosts=frozenset({"host-a"}))
    bank.held.clear()
    assert chosen(scheduler_on(bank, journal), forced) == ["host-a"]


def test_when_no_other_host_is_left_to_a_member_it_is_said_and_nothing_stays_claimed(
    journal: Path,
) -> None:
    bank = flat_hosts(a=9)
    with pytest.raises(NoValidHost, match="server group were claimed there at the same time: i2"):
        chosen(scheduler_on(bank, journal), racing_group(bank))
    assert set(bank.held) == {"i2"}


def test_a_group_gathers_where_a_member_is_although_no_host_is_named(journal: Path) -> None:
    bank = flat_hosts(a=9, b=5)
    bank.held["member"] = {"b": {"VCPU": 1}}
    group = InstanceGroup(policy="affinity", members=frozenset({"i1", "i2", "gone", "member"}))
    asked = replace(ONE, instance_group=group)
    assert chosen(scheduler_on(bank, journal), asked, "i1") == ["host-b"]
    assert chosen(scheduler_on(bank, journal), asked, "i2") == ["host-b"]
    with pytest.raises(NoValidHost):
        chosen(scheduler_on(bank, journal), asked, "i3")


def test_a_member_that_is_there_itself_is_in_nobodys_way(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    bank.held["i1"] = {"a": {"VCPU": 1}}
    group = InstanceGroup(policy="anti-affinity", members=frozenset({"i1"}))
    mine = replace(ONE, instance_group=group)
    assert chosen(scheduler_on(bank, journal), mine, "i2") == ["host-b"]
    del bank.held["i1"]
    assert chosen(scheduler_on(bank, journal), mine, "i1") == ["host-a"]


def test_alternates_of_an_anti_affinity_group_have_no_members(journal: Path) -> None:
    bank = flat_hosts(a=9, b=8, c=7, d=6)
    bank.held |= {"m1": {"b": {"VCPU": 1}}, "m2": {"a": {"VCPU": 1}}}
    group = InstanceGroup(policy="anti-affinity", members=frozenset({"m1", "m2"}))
    [selections] = scheduler_on(bank, journal).select_destinations(
        replace(ONE, instance_group=group), ["i1"], alternates=True
    )
    assert [selection.nodename for selection in selections] == ["host-c", "host-d"]
