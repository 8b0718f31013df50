"""Several instances of one request: all are claimed, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.errors import AllocationUpdateFailed, PlacementUnavailable
from compute_agent.placement.responses import NoCapacity
from compute_agent.scheduler.claiming.claims import GiveBack
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.errors import NoValidHost

from .clouds import ONE, chosen, flat_hosts, scheduler_on


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

    def short_elsewhere(_wanted: object) -> NoCapacity:
        tries.append(1)
        assert len(tries) < 1000
        return NoCapacity("a provider that no host has", "VCPU")

    bank.client.exchange = short_elsewhere  # type: ignore[method-assign]
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
        candidate
        for candidate in bank.candidates
        if all(free[u] > 1 for u in candidate["allocations"])
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


def test_a_claim_whose_answer_was_lost_is_given_back_on_whichever_host_it_is(
    journal: Path,
) -> None:
    bank = flat_hosts(a=4, b=3, c=3)
    bank.held["neighbour"] = {"a": {"VCPU": 4}}
    bank.after_claim = lambda _consumer: setattr(bank, "down", True)
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE)
    assert bank.held["i1"] in ({"b": {"VCPU": 2}}, {"c": {"VCPU": 2}})
    bank.down, bank.after_claim = False, lambda _consumer: None
    GiveBack(bank.client, Journal(journal)).process_journal()
    assert set(bank.held) == {"neighbour"}
    assert Journal(journal).entries() == {}
