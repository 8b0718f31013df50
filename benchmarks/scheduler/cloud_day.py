"""A day of a made-up cloud, in simulated time, on a real scheduler and a placement in this process.

Everything is drawn from one seed before the day begins, so the same instances come and go whatever
the scheduler does with them.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from compute_agent import conf as agent_conf
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request
from compute_agent.request.spec_reader import read_spec
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.operations.life_cycle import LifeCycle
from placement_server.app import build_app
from placement_server.conf import new_config

CELLS: Final = 2
CELL: Final = {"VCPU": 32, "MEMORY_MB": 131_072}
DAY: Final = 24.0
#: Hours before the day that fill the fleet and are not counted.
BEFORE: Final = 12.0
#: Mean hours for which an instance lives.
LIFE: Final = 4.0
#: Hours between two samples.
STEP: Final = 0.25
_NAMESPACE: Final = uuid.UUID("9a0d3c1e-5a55-4a53-8a0f-5a1f4b1a7f10")


@dataclass(frozen=True, slots=True)
class Flavor:
    """What instances of one kind need.

    :ivar share: how many of a hundred requests are for it.
    :ivar members: instances of one request, each on another host where there are several.
    """

    name: str
    share: int
    vcpus: int
    memory_mb: int
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    members: int = 1

    def spec(self, hosts: Sequence[str], members: Sequence[str]) -> dict[str, Any]:
        """Return the request specification of one instance.

        :param hosts: hosts of the group's members that run already.
        :param members: those members.
        """
        spec: dict[str, Any] = {
            "project_id": "project",
            "user_id": "user",
            "flavor": {
                "vcpus": self.vcpus,
                "memory_mb": self.memory_mb,
                "root_gb": 20,
                "extra_specs": dict(self.extra_specs),
            },
            "image": {"id": "image", "properties": {}},
        }
        if self.members > 1:
            group = {"policy": "anti-affinity", "hosts": list(hosts), "members": list(members)}
            spec["instance_group"] = group
        return spec


FLAVORS: Final = (
    Flavor("small", 31, 1, 2048),
    Flavor("medium", 20, 2, 8192),
    Flavor("large", 14, 4, 16_384),
    Flavor("memory", 8, 2, 32_768),
    Flavor("xlarge", 8, 16, 65_536),
    Flavor("two nodes", 6, 16, 32_768, {"hw:numa_nodes": "2"}),
    Flavor("vgpu", 4, 4, 16_384, {"resources1:VGPU": "1"}),
    Flavor("whole GPU", 2, 8, 32_768, {"resources1:VGPU": "4"}),
    Flavor(
        "fast port",
        4,
        4,
        8192,
        {"resources1:SRIOV_NET_VF": "1", "resources1:NET_BW_EGR_KILOBIT_PER_SEC": "4000000"},
    ),
    Flavor("group of three", 3, 4, 8192, members=3),
)
LARGEST: Final = FLAVORS[4]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    :ivar at: hours since midnight; negative before the day.
    :ivar life: hours for which what it gets is kept.
    :ivar instances: uuids.
    """

    at: float
    life: float
    flavor: Flavor
    instances: tuple[str, ...]


def arrivals(hosts: int, seed: int) -> Iterator[Arrival]:
    """Draw the requests of a day: most at three in the afternoon, fewest at three in the night."""
    rng = random.Random(seed)
    shares = [flavor.share for flavor in FLAVORS]
    mean = sum(flavor.vcpus * flavor.members * flavor.share for flavor in FLAVORS) / sum(shares)
    # at the busiest time more is asked for than there is
    busiest = 1.1 * hosts * CELLS * CELL["VCPU"] / mean / LIFE
    at = -BEFORE
    while (at := at + rng.expovariate(busiest)) < DAY:
        busy = 0.75 + 0.25 * math.cos((at - 15) / DAY * 2 * math.pi)
        flavor = rng.choices(FLAVORS, shares)[0]
        life = rng.expovariate(1 / LIFE)
        instances = tuple(
            str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(flavor.members)
        )
        if rng.random() < busy:
            yield Arrival(at, life, flavor, instances)


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment; shares are of one.

    :ivar vcpus: the share of the VCPUs that is used.
    :ivar stranded: the share of the free VCPUs that the largest flavor on one cell cannot use.
    :ivar vgpus: the share of the VGPUs that is used.
    :ivar whole_gpus: the share of the GPUs that nobody uses.
    :ivar empty: the share of the hosts that nobody uses.
    :ivar refused: requests refused since midnight.
    """

    at: float
    vcpus: float
    stranded: float
    vgpus: float
    whole_gpus: float
    empty: float
    refused: int


@dataclass
class Result:
    """What one policy made of the day."""

    samples: list[Sample] = field(default_factory=list)
    asked_counts: Counter[str] = field(default_factory=Counter)
    refused_counts: Counter[str] = field(default_factory=Counter)
    #: VCPU hours of what was refused
    lost_hours: float = 0.0

    def mean(self, name: str) -> float:
        return sum(getattr(sample, name) for sample in self.samples) / len(self.samples)


class Fleet:
    """Hosts in a placement of this process, and what is used of them.

    Of four hosts one has two GPUs of four VGPUs, and one two ports of 10 Gbit/s with eight virtual
    functions each, one of them on each cell.
    """

    def __init__(self, directory: Path, hosts: int) -> None:
        conf = new_config(config_files=[])
        for name, value in {
            "connection": f"sqlite:///{directory}/placement.db",
            "sync_on_startup": True,
            "sqlite_synchronous": False,
        }.items():
            conf.set_override(name, value, group="placement_database")
        self.transport = InProcessTransport(build_app(conf, auth_strategy="noauth2"))
        self.capacity: dict[str, dict[str, int]] = {}
        self.host_of: dict[str, str] = {}
        self._used_amounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for number in range(hosts):
            self._add_host(f"host{number:03}", number % 4)

    def _add_host(self, name: str, kind: int) -> None:
        root = self._add(name, None, name, {"DISK_GB": 10_000}, "COMPUTE_NODE", "OWNER_NOVA")
        for cell in range(CELLS):
            numa = self._add(f"{name}_NUMA{cell}", root, name, CELL, "HW_NUMA_ROOT")
            if kind == 0:
                self._add(f"{name}_GPU{cell}", numa, name, {"VGPU": 4})
            elif kind == 1:
                port = {"SRIOV_NET_VF": 8, "NET_BW_EGR_KILOBIT_PER_SEC": 10_000_000}
                self._add(f"{name}_PF{cell}", numa, name, port)

    def _add(
        self, name: str, parent: str | None, host: str, totals: Mapping[str, int], *traits: str
    ) -> str:
        provider = str(uuid.uuid5(_NAMESPACE, name))
        self._send(
            "POST",
            "/resource_providers",
            {"uuid": provider, "name": name, "parent_provider_uuid": parent},
        )
        inventories = {key: {"total": total} for key, total in totals.items()}
        path = f"/resource_providers/{provider}"
        body: dict[str, Any] = {"resource_provider_generation": 0, "inventories": inventories}
        self._send("PUT", f"{path}/inventories", body)
        if traits:
            traits_body = {"resource_provider_generation": 1, "traits": list(traits)}
            self._send("PUT", f"{path}/traits", traits_body)
        self.capacity[provider] = dict(totals)
        self.host_of[provider] = host
        return provider

    def _send(self, method: str, path: str, body: object) -> None:
        answer = self.transport.send(Request(method, path, (1, 39), json=body))
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.text[:500]}")

    def note(self, allocations: Mapping[str, Mapping[str, int]], times: int) -> None:
        """Add what an instance holds, or with -1 take it away."""
        for provider, amounts in allocations.items():
            for name, amount in amounts.items():
                self._used_amounts[provider][name] += times * amount

    def sample(self, at: float, refused_count: int) -> Sample:
        """Return what is used now."""
        free = sum(self._free(cell, "VCPU") for cell in self._having("VCPU"))
        usable = LARGEST.vcpus * sum(
            min(
                self._free(cell, "VCPU") // LARGEST.vcpus,
                self._free(cell, "MEMORY_MB") // LARGEST.memory_mb,
            )
            for cell in self._having("VCPU")
        )
        gpus = self._having("VGPU")
        busy = {
            self.host_of[provider]
            for provider, used_amounts in self._used_amounts.items()
            if any(used_amounts.values())
        }
        hosts = set(self.host_of.values())
        return Sample(
            at,
            self._share("VCPU"),
            1 - usable / free if free else 0.0,
            self._share("VGPU"),
            sum(not self._used_amounts[gpu]["VGPU"] for gpu in gpus) / len(gpus),
            1 - len(busy) / len(hosts),
            refused_count,
        )

    def _having(self, name: str) -> list[str]:
        return [provider for provider, totals in self.capacity.items() if name in totals]

    def _free(self, provider: str, name: str) -> int:
        return self.capacity[provider][name] - self._used_amounts[provider][name]

    def _share(self, name: str) -> float:
        providers = self._having(name)
        total = sum(self.capacity[provider][name] for provider in providers)
        return sum(self._used_amounts[provider][name] for provider in providers) / total


def live(directory: Path, hosts: int, seed: int, multipliers: Mapping[str, float]) -> Result:
    """Let a day pass.

    :param multipliers: of weighers, by name.
    """
    fleet, result = Fleet(directory, hosts), Result()
    life_cycle = LifeCycle(parts_of(_conf(directory, multipliers), fleet.transport))
    ends: list[tuple[float, int, str, Mapping[str, Mapping[str, int]]]] = []
    order = itertools.count()
    samples = (number * STEP for number in range(int(DAY / STEP) + 1))
    next_sample = next(samples)

    def pass_until(moment: float) -> None:
        while ends and ends[0][0] <= moment:
            _, _, instance, allocations = heapq.heappop(ends)
            life_cycle.delete(instance)
            fleet.note(allocations, -1)

    for arrival in arrivals(hosts, seed):
        while next_sample <= arrival.at:
            pass_until(next_sample)
            result.samples.append(fleet.sample(next_sample, result.refused_counts.total()))
            next_sample = next(samples)
        pass_until(arrival.at)
        claims = _claim(life_cycle, arrival)
        is_counted = arrival.at >= 0
        result.asked_counts[arrival.flavor.name] += is_counted
        if claims is None:
            result.refused_counts[arrival.flavor.name] += is_counted
            result.lost_hours += (
                is_counted * arrival.flavor.vcpus * arrival.flavor.members * arrival.life
            )
            continue
        for instance, allocations in claims.items():
            fleet.note(allocations, 1)
            heapq.heappush(ends, (arrival.at + arrival.life, next(order), instance, allocations))
    for moment in (next_sample, *samples):
        pass_until(moment)
        result.samples.append(fleet.sample(moment, result.refused_counts.total()))
    return result


def _claim(
    life_cycle: LifeCycle, arrival: Arrival
) -> dict[str, Mapping[str, Mapping[str, int]]] | None:
    """Claim for all instances of a request; None when one fits nowhere, and nothing is kept."""
    claims: dict[str, Mapping[str, Mapping[str, int]]] = {}
    hosts: list[str] = []
    for instance in arrival.instances:
        spec = read_spec(arrival.flavor.spec(hosts, list(claims)))
        try:
            claim = life_cycle.claim(spec, instance)
        except NoValidHost:
            for claimed_instance in claims:
                life_cycle.delete(claimed_instance)
            return None
        claims[instance] = claim.allocations
        hosts.append(claim.host)
    return claims


def _conf(directory: Path, multipliers: Mapping[str, float]) -> Any:
    config = directory / "scheduler.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {directory}\n"
        f"[compute_scheduler]\njournal_path = {directory}/journal\n"
        # who is refused here asks nobody why
        "explain_no_valid_host = false\n"
        "[filter_scheduler]\n"
        + "".join(f"{name}_weight_multiplier = {value}\n" for name, value in multipliers.items())
    )
    return agent_conf.new_config([f"--config-file={config}"])
