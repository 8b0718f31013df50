"""Small clouds, and a scheduler on them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from compute_agent.request.flavor import RequestOptions
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.claims import GiveBack
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
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
    search_options = HostSearchOptions(
        request=RequestOptions(limit=options.pop("limit", 1000)),
        filters=filters,
        track_instances=options.pop("track_instances", True),
    )
    return Scheduler(
        bank.client,
        HostSearch(bank.client, search_options, options.pop("announcements", None)),
        SelectionOptions(weighers=order.make([order.ALL_WEIGHERS]), **options),
        GiveBack(bank.client, Journal(journal)),
        random.Random(1),
    )


def chosen(scheduler: Scheduler, asked: RequestSpec, *instances: str) -> list[str]:
    found = scheduler.select_destinations(asked, instances or ("i1",))
    return [per[0].nodename for per in found]
