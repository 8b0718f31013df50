"""Selecting hosts and claiming on them: order, lost races, several instances, failures."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.errors import AllocationUpdateFailed, PlacementUnavailable
from compute_agent.request.flavor import RequestOptions
from compute_agent.request.spec import Destination, InstanceGroup, RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.claim_order import HostOrder
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.claiming.release import GiveBack
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.manager import ClaimOptions, Scheduler
from compute_agent.scheduler.placement import ClaimRefusal
from compute_agent.scheduler.search.search import Search, SearchOptions
from compute_agent.scheduler.weighers import order
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import candidate, summary

ONE = spec(vcpus=2, memory_mb=0, root_gb=0)


def flat_hosts(**free: int) -> Bank:
    """Hosts that each have so many VCPU left."""
    return Bank(
        [candidate({name: {"VCPU": 2}}) for name in free],
        {name: summary(name, {"VCPU": (amount, 0)}) for name, amount in free.items()},
    )


def cards(*free: int) -> Bank:
    """One host with a CPU and so many cards that each have so many VGPU left."""
    names = [f"card{i}" for i in range(len(free))]
    return Bank(
        [candidate({"host": {"VCPU": 2}, name: {"VGPU": 1}}) for name in names],
        {"host": summary("host", {"VCPU": (100, 0)})}
        | {
            n: summary("host", {"VGPU": (f, 0)}, parent="host")
            for n, f in zip(names, free, strict=True)
        },
    )


def scheduler_on(bank: Bank, journal: Path, **options: Any) -> Scheduler:
    filters = registry.make(
        options.pop(
            "filters",
            ["ComputeFilter", "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"],
        )
    )
    search_options = SearchOptions(
        request=RequestOptions(limit=options.pop("limit", 1000)),
        filters=filters,
        track_instances=options.pop("track_instances", True),
    )
    return Scheduler(
        bank,
        Search(bank, search_options, options.pop("announcements", None)),
        ClaimOptions(weighers=order.make([order.ALL_WEIGHERS]), **options),
        GiveBack(bank, Journal(journal)),
        random.Random(1),
    )


@pytest.fixture(autouse=True, params=[True, False], ids=["alternatives", "plain"])
def alternatives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether placement takes claims with alternatives: what is chosen is the same."""
    monkeypatch.setattr(Bank, "alternatives", request.param)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def chosen(scheduler: Scheduler, asked: RequestSpec, *instances: str) -> list[str]:
    found = scheduler.select_destinations(asked, instances or ("i1",))
    return [per[0].nodename for per in found]


def test_the_host_with_most_room_is_claimed(journal: Path) -> None:
    bank = flat_hosts(a=4, b=8, c=6)
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-b"]
    assert bank.held == {"i1": {"b": {"VCPU": 2}}}


def test_a_host_whose_root_gives_nothing_is_chosen(journal: Path) -> None:
    bank = Bank(
        [candidate({"cell": {"VCPU": 2}}, _NUMA0=["cell"])],
        {
            "host": summary("host", None, "COMPUTE_NODE"),
            "cell": summary("host", {"VCPU": (8, 0)}, "HW_NUMA_ROOT", parent="host"),
        },
    )
    [[selection]] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"])
    assert selection.compute_node_uuid == "host"
    assert json.loads(selection.allocation_request)["allocations"] == {
        "cell": {"resources": {"VCPU": 2}}
    }
    assert selection.allocation_request_version == "1.39"


def test_a_lost_race_costs_a_candidate_and_not_the_host(journal: Path) -> None:
    bank = cards(1, 1, 1)
    bank.held["neighbour"] = {"card0": {"VGPU": 1}}
    bank.held["other"] = {"card1": {"VGPU": 1}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-host"]
    assert bank.claims == ["i1 card0 refused", "i1 card1 refused", "i1 host card2"]


def test_candidates_that_need_what_was_short_are_skipped() -> None:
    offered = [
        Candidate("host", {"host": {"VCPU": 2}, "card0": {"VGPU": 1}}, {}),
        Candidate("host", {"host": {"VCPU": 2}, "card1": {"VGPU": 1}}, {}),
        Candidate("host", {"host": {"VCPU": 1}, "card1": {"VGPU": 1}}, {}),
    ]
    tries = HostOrder(offered, 8)
    assert tries.ahead() == offered
    assert tries.failed(offered[0], ClaimRefusal("host", "VCPU"))
    assert tries.ahead() == [offered[2]]
    assert not tries.failed(offered[1], ClaimRefusal("host", "VCPU")), "it was known to be short"
    assert tries.failed(offered[2], ClaimRefusal())
    assert not tries.ahead()


def test_no_more_candidates_per_host_are_tried_than_allowed(journal: Path) -> None:
    bank = cards(1, 1, 1, 1)
    for index in range(3):
        bank.held[f"n{index}"] = {f"card{index}": {"VGPU": 1}}
    with pytest.raises(NoValidHost) as caught:
        chosen(scheduler_on(bank, journal, candidates_per_host=2), ONE)
    assert bank.claims == ["i1 card0 refused", "i1 card1 refused"]
    assert [lost.provider for lost in caught.value.causes.claims_lost] == ["card0", "card1"]


def test_after_the_candidates_of_one_host_the_next_host_is_tried(journal: Path) -> None:
    bank = flat_hosts(a=8, b=4)
    bank.held["neighbour"] = {"a": {"VCPU": 8}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-b"]


def test_several_instances_are_placed_one_after_the_other(journal: Path) -> None:
    bank = flat_hosts(a=4, b=3)
    hosts = chosen(scheduler_on(bank, journal), ONE, "i1", "i2", "i3")
    assert sorted(hosts) == ["host-a", "host-a", "host-b"]


def test_nothing_stays_claimed_when_one_of_several_does_not_fit(journal: Path) -> None:
    bank = flat_hosts(a=4)
    with pytest.raises(NoValidHost):
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2", "i3")
    assert bank.held == {}


def test_several_instances_are_claimed_in_one_request_and_nothing_is_written_down(
    journal: Path,
) -> None:
    bank = flat_hosts(a=8, b=8)
    seen: list[set[str]] = []
    bank.before_claim = lambda _consumer: seen.append(set(bank.held))
    chosen(scheduler_on(bank, journal), ONE, "i1", "i2", "i3")
    assert seen == [set(), set(), set()]
    assert set(bank.held) == {"i1", "i2", "i3"}
    assert not journal.exists()


def test_several_instances_are_not_claimed_for_ever_where_every_claim_is_lost(
    journal: Path,
) -> None:
    bank, tries = flat_hosts(a=8), list[int]()

    def short_elsewhere(_wanted: object) -> ClaimRefusal:
        tries.append(1)
        assert len(tries) < 1000
        return ClaimRefusal("a provider that no host has", "VCPU")

    bank.exchange = short_elsewhere  # type: ignore[method-assign]
    with pytest.raises(NoValidHost) as caught:
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2")
    assert len(caught.value.causes.claims_lost) == len(tries)
    assert bank.held == {}


def test_several_instances_of_which_one_holds_something_are_not_claimed_for(journal: Path) -> None:
    bank = flat_hosts(a=8)
    bank.held["i2"] = {"a": {"VCPU": 1}}
    with pytest.raises(AllocationUpdateFailed, match="nothing was claimed"):
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2")
    assert set(bank.held) == {"i2"}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(2, 6),
)
def test_several_instances_are_claimed_just_when_they_fit_whatever_others_took_meanwhile(
    tmp_path_factory: pytest.TempPathFactory, hosts: list[tuple[int, int]], number: int
) -> None:
    free = {f"h{i}": shown for i, (shown, _) in enumerate(hosts)}
    bank = flat_hosts(**free)
    bank.candidates = [
        one for one in bank.candidates if all(free[u] > 1 for u in one["allocations"])
    ]
    # what neighbours took since the search, which the summaries do not show
    bank.held["neighbours"] = {
        f"h{i}": {"VCPU": min(shown, taken)} for i, (shown, taken) in enumerate(hosts)
    }
    room = sum(max(shown - taken, 0) // 2 for shown, taken in hosts)
    instances = [f"i{i}" for i in range(number)]
    scheduler = scheduler_on(bank, tmp_path_factory.mktemp("journal") / "journal")
    if room >= number:
        chosen(scheduler, ONE, *instances)
    else:
        with pytest.raises(NoValidHost):
            chosen(scheduler, ONE, *instances)
    assert set(bank.held) - {"neighbours"} == set(instances if room >= number else [])
    assert all(bank.left(name, "VCPU") >= 0 for name in free)


def test_without_a_journal_several_instances_are_not_begun(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bank = flat_hosts(a=8)
    scheduler = scheduler_on(bank, tmp_path / "file" / "journal")
    with pytest.raises(JournalUnusable):
        scheduler.select_destinations(ONE, ["i1", "i2"])
    assert bank.held == {}


def test_what_cannot_be_given_back_is_given_back_with_the_next_request(journal: Path) -> None:
    bank = flat_hosts(a=4)
    bank.after_claim = lambda _consumer: setattr(bank, "down", True)
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2")
    assert set(bank.held) == {"i1", "i2"}

    bank.down, bank.after_claim = False, lambda _consumer: None
    assert chosen(scheduler_on(bank, journal), ONE, "i9") == ["host-a"]
    assert set(bank.held) == {"i9"}
    assert Journal(journal).entries() == {}


def test_a_claim_whose_answer_was_lost_is_given_back_too(journal: Path) -> None:
    bank = flat_hosts(a=4)
    bank.after_claim = lambda _consumer: setattr(bank, "down", True)
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE)
    assert set(bank.held) == {"i1"}
    bank.down, bank.after_claim = False, lambda _consumer: None
    GiveBack(bank, Journal(journal)).process_journal()
    assert bank.held == {}


def test_a_claim_whose_answer_was_lost_is_given_back_whichever_candidate_it_got(
    journal: Path,
) -> None:
    bank = flat_hosts(a=4, b=3, c=3)
    bank.held["neighbour"] = {"a": {"VCPU": 4}}
    bank.after_claim = lambda _consumer: setattr(bank, "down", True)
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE)
    assert bank.held["i1"] in ({"b": {"VCPU": 2}}, {"c": {"VCPU": 2}})
    bank.down, bank.after_claim = False, lambda _consumer: None
    GiveBack(bank, Journal(journal)).process_journal()
    assert set(bank.held) == {"neighbour"}
    assert Journal(journal).entries() == {}


def test_claims_with_alternatives_grow_until_a_host_is_found_and_ask_few_times(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bank, "alternatives", True)
    bank = flat_hosts(**{f"h{n}": 4 for n in range(60)})
    for name in list(bank.summaries)[:-1]:
        bank.held[f"on-{name}"] = {name: {"VCPU": 4}}
    requests: list[str] = []
    bank.before_claim = requests.append
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-h59"]
    assert 1 <= len(requests) <= 3, "8, 32 and 128 candidates"


def test_a_consumer_claimed_anew_is_not_undone_by_the_journal(journal: Path) -> None:
    bank = flat_hosts(a=4, b=2)
    Journal(journal).open({"op": "give_back", "consumer": "i1", "allocations": {"a": {"VCPU": 2}}})
    bank.held["i1"] = {"b": {"VCPU": 2}}
    GiveBack(bank, Journal(journal)).process_journal()
    assert bank.held == {"i1": {"b": {"VCPU": 2}}}
    assert Journal(journal).entries() == {}


def test_an_instance_that_somebody_else_claims_is_left_alone(journal: Path) -> None:
    bank = flat_hosts(a=8)
    bank.held["i2"] = {"a": {"VCPU": 1}}
    with pytest.raises(AllocationUpdateFailed):
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2")
    assert bank.held == {"i2": {"a": {"VCPU": 1}}}


def test_placement_down_is_no_full_cloud(journal: Path) -> None:
    bank = flat_hosts(a=8)
    bank.down = True
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE)


def test_alternates_are_other_hosts_and_not_claimed(journal: Path) -> None:
    bank = flat_hosts(a=8, b=7, c=6, d=5)
    [selections] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"], alternates=True)
    assert [one.nodename for one in selections] == ["host-a", "host-b", "host-c"]
    assert set(bank.held) == {"i1"}


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


def test_hosts_to_ignore_and_hosts_tried_before_are_left_out(journal: Path) -> None:
    bank = flat_hosts(a=9, b=8, c=4)
    asked = replace(ONE, ignore_hosts=frozenset({"host-a"}), retried_hosts=frozenset({"host-b"}))
    assert chosen(scheduler_on(bank, journal), asked) == ["host-c"]


def test_a_forced_host_is_asked_for_alone_and_no_filter_runs(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    bank.summaries["b"]["traits"] = ["COMPUTE_STATUS_DISABLED"]
    asked = replace(ONE, force_hosts=frozenset({"host-b"}))
    assert chosen(scheduler_on(bank, journal), asked) == ["host-b"]
    assert bank.queries[0]["in_tree"] == "b"


def test_a_host_that_does_not_exist_is_named(journal: Path) -> None:
    asked = replace(ONE, destination=Destination(host="nowhere"))
    with pytest.raises(NoValidHost, match="Placement knows no host nowhere"):
        chosen(scheduler_on(flat_hosts(a=9), journal), asked)


def test_a_large_guest_is_split_when_no_cell_can_hold_it(journal: Path) -> None:
    cells = {
        name: summary("host", {"VCPU": (4, 0)}, "HW_NUMA_ROOT", parent="host") for name in "ab"
    }

    class Cells(Bank):
        def allocation_candidates(
            self, parameters: Any, minimum: Any, *, extended: bool = False
        ) -> Any:
            asked = dict(parameters).get("resources_NUMA0", "")
            self.candidates = (
                [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"])] if asked == "VCPU:1" else []
            )
            return super().allocation_candidates(parameters, minimum, extended=extended)

    bank = Cells([], {"host": summary("host"), **cells})
    chosen(scheduler_on(bank, journal), spec(vcpus=6, memory_mb=0, root_gb=0))
    assert sum(one["VCPU"] for one in bank.held["i1"].values()) == 6
    with pytest.raises(NoValidHost):
        chosen(
            scheduler_on(bank, journal),
            spec({"hw:numa_nodes": "1"}, vcpus=6, memory_mb=0, root_gb=0),
            "i2",
        )


def test_no_host_says_that_placement_has_no_candidate(journal: Path) -> None:
    bank = flat_hosts()
    with pytest.raises(NoValidHost, match="Placement has no candidate") as caught:
        chosen(scheduler_on(bank, journal), ONE)
    causes = caught.value.as_dict()["causes"]
    assert [one["shape"] for one in causes["queries"]] == ["flat", "nested", "split"]
    assert causes["queries"][0]["query"].endswith("resources=VCPU:2&required=!HW_NUMA_ROOT")
    json.dumps(causes)


def test_no_host_says_which_filter_dropped_the_last(journal: Path) -> None:
    bank = flat_hosts(a=9, b=9)
    for one in bank.summaries.values():
        one["traits"] = ["COMPUTE_STATUS_DISABLED"]
    with pytest.raises(NoValidHost, match=r"ComputeFilter dropped the last 2 host\(s\)") as caught:
        chosen(scheduler_on(bank, journal), ONE)
    [dropped] = caught.value.causes.filters
    assert (dropped.hosts_before, dropped.hosts_left, dropped.names_left) == (2, 0, ())


def test_no_host_says_that_the_limit_was_reached(journal: Path) -> None:
    bank = flat_hosts(a=9, b=9)
    for one in bank.summaries.values():
        one["traits"] = ["COMPUTE_STATUS_DISABLED"]
    with pytest.raises(NoValidHost, match="max_placement_results"):
        chosen(scheduler_on(bank, journal, limit=2), ONE)


def test_no_host_says_which_claims_were_lost(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.held["neighbour"] = {"a": {"VCPU": 9}}
    with pytest.raises(NoValidHost, match="Provider a had less than 2 VCPU left"):
        chosen(scheduler_on(bank, journal), ONE)


def test_no_host_says_that_placement_does_not_know_a_name(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.unknown_name = "Placement knows no such trait CUSTOM_X."
    with pytest.raises(NoValidHost, match="knows no such trait CUSTOM_X"):
        chosen(scheduler_on(bank, journal), ONE)


def test_a_shortage_without_a_name_costs_one_candidate(journal: Path) -> None:
    class Silent(Bank):
        def take(self, *args: Any, **kwargs: Any) -> ClaimRefusal | None:
            found = super().take(*args, **kwargs)
            return ClaimRefusal() if found else None

    bank = Silent(cards(1, 1).candidates, cards(1, 1).summaries)
    bank.held["neighbour"] = {"card0": {"VGPU": 1}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-host"]


def test_a_host_whose_agent_fell_silent_is_not_chosen(journal: Path) -> None:
    now = [0.0]
    announcements = Announcements(lambda: now[0])
    announcements.receive({"host": "h", "nodes": [{"uuid": "a"}]})
    now[0] = 61.0
    announcements.receive({"host": "h", "nodes": [{"uuid": "b"}]})
    bank = flat_hosts(a=9, b=4)
    scheduler = scheduler_on(bank, journal, announcements=announcements)
    assert chosen(scheduler, ONE) == ["host-b"]


def test_a_disabled_agent_is_not_chosen(journal: Path) -> None:
    announcements = Announcements()
    announcements.receive({"host": "h", "nodes": [{"uuid": "a", "enabled": False}]})
    bank = flat_hosts(a=9, b=4)
    scheduler = scheduler_on(bank, journal, announcements=announcements)
    assert chosen(scheduler, ONE) == ["host-b"]


@pytest.mark.parametrize(("track", "host"), [(True, "host-b"), (False, "host-a")])
def test_announced_instances_count_unless_they_are_not_tracked(
    journal: Path, track: bool, host: str
) -> None:
    announcements = Announcements()
    announcements.receive({"host": "h", "nodes": [{"uuid": "a", "instances": 50}]})
    bank = flat_hosts(a=9, b=4)
    options = {"filters": ["NumInstancesFilter"], "track_instances": track}
    scheduler = scheduler_on(bank, journal, announcements=announcements, **options)
    assert chosen(scheduler, ONE) == [host]


def test_no_host_is_logged_once_with_the_id_that_placement_logs_too(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), pytest.raises(NoValidHost) as caught:
        scheduler_on(flat_hosts(), journal).select_destinations(ONE, ["i1"], request_id="req-mine")
    assert caught.value.causes.request_id == "req-mine"
    [record] = [one for one in caplog.records if "No valid host" in one.message]
    assert record.levelname == "INFO"
    assert "[req-mine]" in record.message
    assert "i1" in record.message


def test_a_zone_that_does_not_exist_is_logged_like_any_other_reason(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = replace(ONE, availability_zone="moon")
    with caplog.at_level("INFO"), pytest.raises(NoValidHost, match="availability zone moon"):
        chosen(scheduler_on(flat_hosts(a=9), journal), asked)
    assert [one for one in caplog.records if "[req-new] No valid host for i1" in one.message]


def test_a_selection_says_what_the_host_may_be_filled_up_to(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.summaries["a"]["resources"] |= {
        "MEMORY_MB": {"capacity": 4096, "used": 0},
        "DISK_GB": {"capacity": 100, "used": 0},
    }
    [[selection]] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"])
    assert selection.limits == {"memory_mb": 4096, "disk_gb": 100}


def in_cells(**cells: str) -> Announcements:
    announcements = Announcements()
    for root, cell in cells.items():
        announcements.receive({"host": root, "nodes": [{"uuid": root, "cell_uuid": cell}]})
    return announcements


def test_alternates_are_of_the_cell_of_the_chosen_host(journal: Path) -> None:
    bank = flat_hosts(a=8, b=7, c=6, d=5)
    announcements = in_cells(a="c1", b="c2", c="c1", d="c2")
    scheduler = scheduler_on(bank, journal, announcements=announcements)
    [selections] = scheduler.select_destinations(ONE, ["i1"], alternates=True)
    assert [one.compute_node_uuid for one in selections] == ["a", "c"]
    assert {one.cell_uuid for one in selections} == {"c1"}


@pytest.mark.parametrize(("cross", "host"), [(False, "b"), (True, "b")])
def test_a_move_to_another_cell_must_be_allowed(journal: Path, cross: bool, host: str) -> None:
    destination = Destination(cell="c2", allow_cross_cell_move=cross)
    asked = replace(ONE, destination=destination)
    bank = flat_hosts(a=9, b=4)
    scheduler = scheduler_on(bank, journal, announcements=in_cells(a="c1", b="c2"))
    assert chosen(scheduler, asked) == [f"host-{host}"]
    full = flat_hosts(a=9, b=1)
    full.candidates = full.candidates[:1]
    scheduler = scheduler_on(full, journal, announcements=in_cells(a="c1", b="c2"))
    if cross:
        assert chosen(scheduler, asked) == ["host-a"]
    else:
        with pytest.raises(NoValidHost):
            chosen(scheduler, asked)
