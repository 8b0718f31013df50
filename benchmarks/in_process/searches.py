"""Costs of a search for allocation candidates, without HTTP and database.

Builds forests in an in-memory index and answers queries on them as the server does (search and
rendering of the whole body at microversion 1.39). Nothing is compared with another server here;
the target column is what we hold ourselves to. Prints the median CPU time of several runs, warm:
the provider summaries of the trees in the answer have been rendered once before.

    python -m benchmarks.in_process.searches [--runs 15] [--scale] [--only TEXT]

`--scale` adds the growth from 1,000 to 100,000 hosts: load time, memory, cost of a change.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl

import os_resource_classes
import os_traits

from placement_server.candidates.index.index import Index, IndexWriter
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.query import query as queries
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows

VERSION = (1, 39)
ZONE = "aaaaaaaa-0000-0000-0000-000000000001"
CLASS_IDS = {name: number for number, name in enumerate(os_resource_classes.STANDARDS)}
TRAIT_IDS = {name: number for number, name in enumerate(sorted(os_traits.get_traits()), 1)}
NAMES = NameRows(CLASS_IDS, TRAIT_IDS)
HOST_TRAITS = tuple(sorted(TRAIT_IDS[name] for name in sorted(os_traits.get_traits("HW_CPU_"))[:8]))
REQUIRED = "HW_CPU_X86_AVX2"


def inventory(name: str, total: int, used: int = 0, ratio: float = 1.0) -> InventoryRow:
    """One inventory of a benchmark host."""
    capacity = int(total * ratio)
    return InventoryRow(
        CLASS_IDS[name], total, 0, 1, total, 1, ratio, capacity, min(used, capacity)
    )


class Ids:
    """Provider ids and uuids, the same in every run."""

    def __init__(self) -> None:
        self.last = 0

    def provider(
        self,
        parent: ProviderRow | None,
        stock: list[InventoryRow],
        traits: tuple[int, ...] = (),
        aggregates: tuple[str, ...] = (),
    ) -> ProviderRow:
        """Return the next provider."""
        self.last += 1
        return ProviderRow(
            id=self.last,
            uuid=str(uuid.UUID(int=self.last << 80 | 0x4000_8000_0000_0000_0000)),
            parent_id=parent.id if parent else None,
            root_id=parent.root_id if parent else self.last,
            inventories=tuple(sorted(stock, key=lambda row: row.resource_class_id)),
            trait_ids=traits,
            aggregates=aggregates,
        )


def flat_hosts(count: int) -> Iterator[TreeRows]:
    """Hosts of one provider; each has the required trait, half are in the zone's aggregate."""
    ids = Ids()
    traits = tuple(sorted({*HOST_TRAITS, TRAIT_IDS[REQUIRED]}))
    for number in range(count):
        stock = [
            inventory("VCPU", 64, number % 32, 16.0),
            inventory("MEMORY_MB", 262_144, 1024 * (number % 32), 1.5),
            inventory("DISK_GB", 2000, 20 * (number % 32)),
        ]
        host = ids.provider(None, stock, traits, (ZONE,))
        yield TreeRows(host.id, (host,))


def nested_hosts(count: int) -> Iterator[TreeRows]:
    """13 providers each: root, 2 cells, under each cell 2 GPUs and a NIC with 2 PFs."""
    ids = Ids()
    numa = (TRAIT_IDS["HW_NUMA_ROOT"],)
    for number in range(count):
        root = ids.provider(None, [inventory("DISK_GB", 2000, number % 7)], (), (ZONE,))
        rows = [root]
        for _cell in range(2):
            cell = ids.provider(
                root, [inventory("VCPU", 32, number % 5), inventory("MEMORY_MB", 131_072)], numa
            )
            nic = ids.provider(cell, [])
            rows += [cell, nic]
            rows += [ids.provider(cell, [inventory("VGPU", 4)]) for _gpu in range(2)]
            rows += [ids.provider(nic, [inventory("SRIOV_NET_VF", 8)]) for _pf in range(2)]
        yield TreeRows(root.id, tuple(rows))


def gpu_hosts(count: int, children: int) -> Iterator[TreeRows]:
    """A root and children of one VGPU each."""
    ids = Ids()
    for _number in range(count):
        root = ids.provider(None, [inventory("VCPU", 64)])
        gpus = [ids.provider(root, [inventory("VGPU", 1)]) for _gpu in range(children)]
        yield TreeRows(root.id, (root, *gpus))


FLAT = f"resources=VCPU:1,DISK_GB:10,MEMORY_MB:512&member_of={ZONE}&required={REQUIRED}"
NESTED = (
    "resources_C=VCPU:2,MEMORY_MB:2048&resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_G,_N&group_policy=none"
)


def gpus(groups: int, policy: str = "isolate", limit: int = 1000) -> str:
    """A query for some GPUs one by one."""
    resources = "&".join(f"resources_{number}=VGPU:1" for number in range(groups))
    return f"{resources}&group_policy={policy}&limit={limit}"


@dataclass(frozen=True)
class Scenario:
    """One line of the table."""

    world: str
    query: str
    target_ms: float | None


SCENARIOS = {
    "1,000 flat hosts, no limit": Scenario("flat 1000", FLAT, 4),
    "10,000 flat hosts, limit=1000": Scenario("flat 10000", FLAT + "&limit=1000", 6),
    "10,000 flat hosts, limit=10": Scenario("flat 10000", FLAT + "&limit=10", 1.5),
    "10,000 flat hosts, nothing fits": Scenario(
        "flat 10000", "resources=VCPU:100000&limit=1000", 1.5
    ),
    "10,000 flat hosts, trait that none has": Scenario(
        "flat 10000", FLAT + ",HW_GPU_API_DXVA&limit=1000", 1.5
    ),
    "1,000 nested hosts, 3 groups, limit=1000": Scenario("nested 1000", NESTED + "&limit=1000", 20),
    "1,000 nested hosts, 3 groups, limit=10": Scenario("nested 1000", NESTED + "&limit=10", 3),
    **{
        f"{hosts} host(s) x {children} GPUs, {groups} groups, {policy}": Scenario(
            f"gpu {hosts} {children}", gpus(groups, policy), 15
        )
        for hosts, children in ((1, 8), (1, 16), (100, 8))
        for groups in (4, 6, 8)
        for policy in ("isolate", "none")
    },
    "16 GPUs, 17 groups, isolate": Scenario("gpu 1 16", gpus(17), 1),
    "16 GPUs, 17 groups, none": Scenario("gpu 1 16", gpus(17, "none"), 1),
    "63 GPUs, 64 groups, none": Scenario("gpu 1 63", gpus(64, "none"), None),
    "16 GPUs, 16 groups, none": Scenario("gpu 1 16", gpus(16, "none"), None),
}


def build(world: str) -> IndexWriter:
    """Build the index of a named world."""
    kind, *numbers = world.split()
    makers = {"flat": flat_hosts, "nested": nested_hosts, "gpu": gpu_hosts}
    return IndexWriter(NAMES, makers[kind](*map(int, numbers)))


def answer(index: Index, text: str, summaries: SummaryCache) -> bytes:
    """Answer a query string as the server does once the index is up to date."""
    query = queries.parse(parse_qsl(text), VERSION)
    search = Search(query, index, SearchLimits(query.limit, seconds=60.0))
    renderer = Renderer(query, search.plan, index, VERSION, summaries)
    return b"".join(renderer.body(search.candidates()))


def measure(index: Index, text: str, runs: int) -> tuple[float, bytes]:
    """Return the median in milliseconds, and the body."""
    summaries = SummaryCache()
    body = answer(index, text, summaries)
    times = []
    gc.collect()
    for _run in range(runs):
        start = time.process_time()
        answer(index, text, summaries)
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times), body


def resident_mib() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(runs: int) -> None:
    """Print how load time, memory, queries and changes grow with the number of hosts."""
    print(
        "\nflat hosts | load s | peak RSS MiB | limit=10 ms | limit=1000 ms | one host changed ms"
    )
    for count in (1_000, 10_000, 100_000):
        trees = list(flat_hosts(count))
        start = time.process_time()
        writer = IndexWriter(NAMES, trees)
        load_seconds = time.process_time() - start
        few, _ = measure(writer.index, FLAT + "&limit=10", runs)
        many, _ = measure(writer.index, FLAT + "&limit=1000", runs)
        times = []
        for tree in trees[:runs]:
            start = time.process_time()
            writer.apply({tree.root_id: tree})
            times.append(time.process_time() - start)
        print(
            f"{count:10,} | {load_seconds:6.2f} | {resident_mib():12.0f} | {few:11.2f} | "
            f"{many:13.2f} | {1000 * statistics.median(times):8.3f}"
        )


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"search and rendering in process, version 1.39, median CPU time of {options.runs} runs")
    print(f"{'scenario':48} {'results':>8} {'kB':>8} {'ms':>9} {'target':>7}")
    writers: dict[str, IndexWriter] = {}
    for name, scenario in SCENARIOS.items():
        if options.only not in name:
            continue
        if scenario.world not in writers:
            writers[scenario.world] = build(scenario.world)
        index = writers[scenario.world].index
        milliseconds, body = measure(index, scenario.query, options.runs)
        found_count = body.count(b'"mappings"')
        target = "-" if scenario.target_ms is None else f"{scenario.target_ms:g}"
        print(f"{name:48} {found_count:8,} {len(body) / 1000:8.0f} {milliseconds:9.2f} {target:>7}")
    if options.scale:
        growth(options.runs)


if __name__ == "__main__":
    main()
