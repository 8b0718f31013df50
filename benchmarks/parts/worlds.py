"""The data sets, loaded through the API of whatever server, the same uuids in each.

- `flat`: hosts of one provider with VCPU, MEMORY_MB and DISK_GB, one trait, one aggregate;
- `nested`: hosts of 13 providers: root with the disk, two NUMA cells with CPUs and memory, two
  GPUs and a card with two PFs below each cell;
- `gpus`: hosts with GPUs of 256 units as children.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.parts.client import Client
from benchmarks.parts.servers import Server

AGGREGATE = "aa9f0ae4-6ad9-4ab8-a4b5-a1e1f0cd4d1a"
TRAIT = "HW_CPU_X86_AVX2"
CLIENTS = 6

_NAMESPACE = uuid.UUID("6f1ffb26-1f0c-4c3c-a4a5-0e3f7d0f7c11")

Stock = dict[str, int]


def uuid_of(name: str) -> str:
    """The uuid of the provider with this name, in every data set."""
    return str(uuid.uuid5(_NAMESPACE, name))


class Loader:
    """Makes providers with one client, and counts its requests."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.requests = 0

    def _put(self, provider: str, what: str, generation: int, **body: object) -> None:
        self.requests += 1
        self.client.must(
            "PUT",
            f"/resource_providers/{provider}/{what}",
            {"resource_provider_generation": generation, **body},
        )

    def provider(
        self,
        name: str,
        stock: Stock | None = None,
        parent: str | None = None,
        traits: Sequence[str] = (),
        aggregates: Sequence[str] = (),
    ) -> str:
        """Make a provider with everything it has; return its uuid."""
        provider = uuid_of(name)
        self.requests += 1
        self.client.must(
            "POST",
            "/resource_providers",
            {"uuid": provider, "name": name, "parent_provider_uuid": parent},
        )
        generation = 0
        if stock:
            inventories = {rc: {"total": total} for rc, total in stock.items()}
            self._put(provider, "inventories", generation, inventories=inventories)
            generation += 1
        if traits:
            self._put(provider, "traits", generation, traits=list(traits))
            generation += 1
        if aggregates:
            self._put(provider, "aggregates", generation, aggregates=list(aggregates))
        return provider


def flat_host(loader: Loader, number: int) -> None:
    stock = {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000}
    loader.provider(f"flat-{number:06}", stock, None, [TRAIT], [AGGREGATE])


def nested_host(loader: Loader, number: int) -> None:
    name = f"nested-{number:06}"
    root = loader.provider(name, {"DISK_GB": 1000})
    for cell in range(2):
        numa = loader.provider(f"{name}_NUMA{cell}", {"VCPU": 32, "MEMORY_MB": 32768}, root)
        for gpu in range(2):
            loader.provider(f"{name}_GPU{cell}{gpu}", {"VGPU": 8}, numa)
        card = loader.provider(f"{name}_NIC{cell}", None, numa)
        for port in range(2):
            loader.provider(f"{name}_PF{cell}{port}", {"SRIOV_NET_VF": 8}, card)


def gpu_host(children: int) -> Callable[[Loader, int], None]:
    def make(loader: Loader, number: int) -> None:
        root = loader.provider(f"gpus-{number:06}", {"VCPU": 64})
        for child in range(children):
            loader.provider(f"gpus-{number:06}_{child}", {"VGPU": 256}, root)

    return make


@dataclass(frozen=True)
class World:
    """A data set: so many hosts, each made by one function.

    :param quick: how many hosts there are in a quick run.
    """

    name: str
    hosts: int
    quick: int
    make: Callable[[Loader, int], None]

    def title(self, quick: bool) -> str:
        count = self.quick if quick else self.hosts
        return f"{count:,} {self.name} host{'s' if count > 1 else ''}"

    def database(self, server: str, quick: bool) -> str:
        """The name of the database that holds this data set for a server."""
        words = "".join(character if character.isalnum() else "_" for character in self.name)
        return f"{server}_{words}_{self.quick if quick else self.hosts}"

    def load(self, server: Server, quick: bool) -> int:
        """Make all the hosts; return the number of requests that it took."""
        count = self.quick if quick else self.hosts
        mine = threading.local()
        loaders: list[Loader] = []

        def host(number: int) -> None:
            if not hasattr(mine, "loader"):
                mine.loader = Loader(server.url)
                loaders.append(mine.loader)
            self.make(mine.loader, number)

        # The first alone: it creates the aggregate that the others join.
        host(0)
        with ThreadPoolExecutor(CLIENTS) as pool:
            for _ in pool.map(host, range(1, count)):
                # Errors of the threads appear here.
                continue
        return sum(loader.requests for loader in loaders)


# Loading into the published package is what a short run spends its time with.
FEW_FLAT = World("flat", 1000, 40, flat_host)
MANY_FLAT = World("flat", 10_000, 40, flat_host)
NESTED = World("nested", 1000, 8, nested_host)
GPUS_8 = World("8-GPU", 1, 1, gpu_host(8))
GPUS_16 = World("16-GPU", 1, 1, gpu_host(16))
MANY_GPUS_8 = World("8-GPU", 100, 10, gpu_host(8))

WORLDS = (FEW_FLAT, MANY_FLAT, NESTED, GPUS_8, GPUS_16, MANY_GPUS_8)
