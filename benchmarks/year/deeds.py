"""Deeds of the clients of placement in a year: claim, release, move, reshape, come and go."""

import itertools
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from benchmarks.parts.client import Client
from benchmarks.parts.worlds import Loader, uuid_of

CLIENTS: Final = 6
SEARCH_EVERY: Final = 10
MOVE_EVERY: Final = 25
NEW_PROJECT_EVERY: Final = 100
HOSTS: Final = 50
SHAPED: Final = 4
TRAITS: Final = ("COMPUTE_NODE", "OWNER_NOVA")
_VGPUS: Final = 8

Took: TypeAlias = dict[str, list[float]]
"""Seconds that requests took, by their kind."""


def owner(number: int) -> dict[str, Any]:
    """A project and a user that live for some claims only."""
    return {
        "project_id": f"project-{number}",
        "user_id": f"user-{number}",
        "consumer_type": "INSTANCE",
    }


def load(url: str) -> None:
    """Make the hosts that are claimed on, and those that are reshaped."""
    loader = Loader(url)
    for number in range(HOSTS):
        stock = {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000}
        loader.provider(f"year-{number}", stock, None, TRAITS)
    for number in range(SHAPED):
        root = loader.provider(f"shaped-{number}", {"DISK_GB": 1000, "VGPU": _VGPUS})
        loader.provider(f"shaped-{number}_GPU", None, root)
        body = {"allocations": {root: {"resources": {"VGPU": 1}}}, "consumer_generation": None}
        for unit in range(_VGPUS):
            consumer = uuid_of(f"shaped-{number}-{unit}")
            loader.client.must("PUT", f"/allocations/{consumer}", body | owner(0))


class Tenant:
    """One client that claims and releases, and holds about as much at all times.

    :param most: claims that it holds at a time.
    """

    def __init__(self, seed: str, number: int, most: int) -> None:
        self._most = most
        self._dice = random.Random(f"{seed}/{number}")
        self._number = number
        self._held_consumers: deque[str] = deque()
        self._client: Client | None = None
        self._done_count = 0

    def connect(self, url: str) -> None:
        self._client = Client(url)

    def act(self, claims: int, took: Took, stop: threading.Event) -> None:
        """Claim so many times, and release what was claimed longest ago.

        :param took: gets the seconds that each request took, by its kind.
        :param stop: ends it early.
        """
        assert self._client is not None
        for _ in range(claims):
            if stop.is_set():
                return
            self._done_count += 1
            self._claim(took)
            if len(self._held_consumers) > self._most:
                self._send(
                    took, "release", "DELETE", f"/allocations/{self._held_consumers.popleft()}"
                )
            if self._done_count % MOVE_EVERY == 0:
                self._move(took)
            if self._done_count % SEARCH_EVERY == 0:
                query = "resources=VCPU:1,MEMORY_MB:512&required=COMPUTE_NODE&limit=10"
                self._send(took, "search", "GET", f"/allocation_candidates?{query}")

    def _claim(self, took: Took) -> None:
        consumer = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        body = self._body(None)
        self._send(took, "claim", "PUT", f"/allocations/{consumer}", body)
        self._held_consumers.append(consumer)

    def _move(self, took: Took) -> None:
        """Put a claim on another host, as the end of a migration does."""
        consumer = self._dice.choice(self._held_consumers)
        self._send(took, "move", "POST", "/allocations", {consumer: self._body(1)})
        # whose generation is another now
        self._held_consumers.remove(consumer)
        self._send(took, "release", "DELETE", f"/allocations/{consumer}")

    def _body(self, generation: int | None) -> dict[str, Any]:
        host = uuid_of(f"year-{self._dice.randrange(HOSTS)}")
        resources = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
        project = self._number * 1_000_000 + self._done_count // NEW_PROJECT_EVERY
        return {
            "allocations": {host: {"resources": resources}},
            "consumer_generation": generation,
            **owner(project),
        }

    def _send(self, took: Took, kind: str, method: str, path: str, body: object = None) -> None:
        assert self._client is not None
        began = time.perf_counter()
        self._client.must(method, path, body)
        took.setdefault(kind, []).append(time.perf_counter() - began)


class Tenants:
    """All clients."""

    def __init__(self, seed: str, held_count: int) -> None:
        self._tenants = [Tenant(seed, number, held_count // CLIENTS) for number in range(CLIENTS)]

    def connect(self, url: str) -> None:
        for tenant in self._tenants:
            tenant.connect(url)

    def acts(self, claims: int) -> Iterator[Callable[[Took, threading.Event], None]]:
        """Return what each has to do, at the same time, to claim so many times together."""
        share = max(1, claims // CLIENTS)
        return (partial(tenant.act, share) for tenant in self._tenants)


class Operator:
    """Hosts that come and go, hosts that are reshaped, and names that are in use for a while."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._on_root = True

    def act(self, url: str, hosts: int, stop: threading.Event) -> None:
        loader = Loader(url)
        for _ in range(hosts):
            if stop.is_set():
                return
            self._come_and_go(loader, next(self._numbers))
        for number in range(SHAPED):
            self._reshape(loader.client, number)
        self._on_root = not self._on_root

    def _come_and_go(self, loader: Loader, number: int) -> None:
        trait, name = f"CUSTOM_T{number}", f"CUSTOM_C{number}"
        for path in (f"/traits/{trait}", f"/resource_classes/{name}"):
            loader.client.must("PUT", path)
        # the Loader names its providers after their names, and these come with new ones
        root = loader.provider(f"gone-{number}", {name: 4}, None, [trait], [str(uuid.uuid4())])
        child = loader.provider(f"gone-{number}_child", {"VCPU": 4}, root)
        for path in (
            f"/resource_providers/{child}",
            f"/resource_providers/{root}",
            f"/traits/{trait}",
            f"/resource_classes/{name}",
        ):
            loader.client.must("DELETE", path)

    def _reshape(self, client: Client, number: int) -> None:
        """Move the VGPUs, and the claims on them, from the root to its child or back."""
        root, child = uuid_of(f"shaped-{number}"), uuid_of(f"shaped-{number}_GPU")
        to = child if self._on_root else root
        inventories = {}
        for provider in (root, child):
            now = client.must("GET", f"/resource_providers/{provider}/inventories")
            inventories[provider] = now
            now["inventories"].pop("VGPU", None)
        inventories[to]["inventories"]["VGPU"] = {"total": _VGPUS}
        allocations = {}
        for unit in range(_VGPUS):
            consumer = uuid_of(f"shaped-{number}-{unit}")
            now = client.must("GET", f"/allocations/{consumer}")
            now["allocations"] = {to: {"resources": {"VGPU": 1}}}
            allocations[consumer] = now
        body = {"inventories": inventories, "allocations": allocations}
        client.must("POST", "/reshaper", body)
