"""Claims with alternatives choose what claims one by one choose, and report the same losses."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.claiming.release import GiveBack
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.manager import ClaimOptions, Scheduler
from compute_agent.scheduler.observer import ClaimOutcome, Observer
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import candidate, summary

ASKED = spec(vcpus=2, memory_mb=0, root_gb=0)
MOST_PER_HOST = 4

# of each host: CPUs free, and of each card whether it is free, as claims find them
_hosts = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.booleans(), min_size=1, max_size=MOST_PER_HOST)),
    min_size=1,
    max_size=12,
)


class Outcomes(Observer):
    def __init__(self) -> None:
        self.claims: list[tuple[ClaimOutcome, bool]] = []

    def on_claim(self, outcome: ClaimOutcome, *, again: bool) -> None:
        self.claims.append((outcome, again))


def bank_of(hosts: list[tuple[int, list[bool]]], *, alternatives: bool) -> Bank:
    """Each candidate takes two CPUs of a host and one of its cards; neighbours took the rest."""
    candidates, summaries = [], {}
    neighbours: dict[str, dict[str, dict[str, int]]] = {}
    for number, (free, cards) in enumerate(hosts):
        host = f"h{number}"
        summaries[host] = summary(host, {"VCPU": (4, 0)})
        neighbours[f"cpu-{host}"] = {host: {"VCPU": 4 - free}}
        for index, is_free in enumerate(cards):
            card = f"{host}-{index}"
            summaries[card] = summary(host, {"VGPU": (1, 0)}, parent=host)
            candidates.append(candidate({host: {"VCPU": 2}, card: {"VGPU": 1}}))
            neighbours[f"card-{card}"] = {card: {"VGPU": 1 - is_free}}
    bank = Bank(candidates, summaries)
    bank.held = neighbours
    bank.alternatives = alternatives
    return bank


def outcome(hosts: list[tuple[int, list[bool]]], instances: int, *, alternatives: bool) -> Any:
    bank, observer = bank_of(hosts, alternatives=alternatives), Outcomes()
    lost: object = None
    with tempfile.TemporaryDirectory() as directory:
        give_back = GiveBack(bank, Journal(Path(directory) / "journal"))
        scheduler = Scheduler(
            bank,
            HostSearch(bank, HostSearchOptions()),
            ClaimOptions(candidates_per_host=MOST_PER_HOST),
            give_back,
            random.Random(1),
            observer=observer,
        )
        try:
            scheduler.select_destinations(ASKED, [f"i{n}" for n in range(instances)])
        except NoValidHost as error:
            lost = error.causes.claims_lost
    return bank.held, observer.claims, lost


@given(hosts=_hosts, instances=st.integers(1, 3))
def test_both_ways_claim_the_same_and_lose_the_same(
    hosts: list[tuple[int, list[bool]]], instances: int
) -> None:
    one_by_one = outcome(hosts, instances, alternatives=False)
    _, claims, _ = one_by_one
    # several instances need as many candidates
    assert claims or instances > 1
    assert outcome(hosts, instances, alternatives=True) == one_by_one
