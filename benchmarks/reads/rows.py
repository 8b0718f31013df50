"""The rows of the benchmark: what is asked of which data set, and what it may cost.

Bounds are CPU milliseconds of the server for one request, absolute, as a share of what the
published package needs in the same run, or both: the stricter one counts. The absolute ones were
set on a machine on which the published package needed `known_ms`; on a machine on which it needs
more, or less, they are stretched, or shortened, in proportion.

Searches ask for another amount each time, of 256; rows that ask one query again say so.
"""

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.parts.client import Client
from benchmarks.parts.worlds import (
    AGGREGATE,
    FEW_FLAT,
    GPUS_8,
    GPUS_16,
    MANY_FLAT,
    MANY_GPUS_8,
    NESTED,
    TRAIT,
    World,
    uuid_of,
)

Request = Callable[[Client], tuple[int, bytes]]

AMOUNTS = 256

FLAT_QUERY = (
    "/allocation_candidates?resources=VCPU:1,DISK_GB:5,MEMORY_MB:{}"
    f"&member_of={AGGREGATE}&required={TRAIT}"
)
NESTED_QUERY = (
    "/allocation_candidates?resources=DISK_GB:10"
    "&resources_C=VCPU:2,MEMORY_MB:{}&resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_G,_N&group_policy=none"
)
NOTHING = "/allocation_candidates?resources=VCPU:1,DISK_GB:1001,MEMORY_MB:{}&limit=1000"
NO_SUCH_HOST = f"{FLAT_QUERY},HW_GPU_API_DXVA&limit=1000"

# What slows or stops the published package on wide trees is bounded by these three.
MITIGATIONS = (
    "[placement]\nmax_allocation_candidates = 1000\n"
    "allocation_candidates_generation_strategy = breadth-first\n"
    "[workarounds]\noptimize_for_wide_provider_trees = true\n"
)


@dataclass(frozen=True)
class Floor:
    """What a row is compared with, and how many times that it may cost.

    :param is_served: the same bytes from a WSGI function with one prepared SELECT, on the HTTP
        server of ours.
    :param is_encoded: orjson of the same answer.
    :param needs_data: whether it says nothing with the little data of a short run.
    """

    most: float
    is_served: bool = False
    is_encoded: bool = False
    needs_data: bool = False


@dataclass(frozen=True)
class Row:
    """One request, and what it may cost.

    :param bound_ms: at most so many milliseconds, None for no such bound.
    :param ratio: at least so many times less than the published package, None for no such bound.
    :param known_ms: what the published package needed where the bounds were set.
    :param is_published: whether the published package is asked at all.
    :param is_mitigated: whether it is asked once more with its mitigations on.
    :param is_unlimited: whether both must find equally many candidates.
    :param quick: whether a short run asks it.
    :param published_quick: whether a short run asks the published package, which may not answer.
    :param at_once: whether ten clients ask it at once as well.
    """

    name: str
    world: World
    request: Callable[[], Request]
    bound_ms: float | None = None
    ratio: float | None = None
    known_ms: float | None = None
    is_published: bool = True
    is_mitigated: bool = False
    is_unlimited: bool = False
    at_once: bool = False
    floor: Floor | None = None
    quick: bool = True
    published_quick: bool = True

    def asks_published(self, quick: bool) -> bool:
        """Whether a run asks the published package."""
        return self.is_published and (self.published_quick or not quick)


def get(path: str) -> Callable[[], Request]:
    """A request for a path."""
    return lambda: lambda client: client.send("GET", path)


def search(path: str) -> Callable[[], Request]:
    """A request for a path with another amount each time."""

    def factory() -> Request:
        firsts = itertools.count(os.getpid())

        def request(client: Client) -> tuple[int, bytes]:
            first = next(firsts)
            return client.send(
                "GET", path.format(*(1 + n % AMOUNTS for n in range(first, first + 17)))
            )

        return request

    return factory


def put_inventories(name: str) -> Callable[[], Request]:
    """Replaces the inventories of a provider, another amount each time."""

    def factory() -> Request:
        path = f"/resource_providers/{uuid_of(name)}/inventories"
        known_values: dict[str, int] = {}

        def request(client: Client) -> tuple[int, bytes]:
            if not known_values:
                known_values["generation"] = client.must("GET", path)[
                    "resource_provider_generation"
                ]
            amount = 1000 + known_values["generation"] % 2
            body = {
                "resource_provider_generation": known_values["generation"],
                "inventories": {"DISK_GB": {"total": amount}},
            }
            status, raw = client.send("PUT", path, body)
            if status == 200:
                known_values["generation"] = json.loads(raw)["resource_provider_generation"]
            return status, raw

        return request

    return factory


def _gpus(groups: int) -> str:
    resources = "&".join(f"resources_{number}=VGPU:{{{number}}}" for number in range(groups))
    return f"/allocation_candidates?{resources}&group_policy=isolate&limit=1000"


def _wide(world: World) -> tuple[Row, ...]:
    return tuple(
        Row(f"{groups} groups of one GPU, isolate, limit=1000", world, search(_gpus(groups)), 15.0,
            is_mitigated=True, floor=Floor(5, is_encoded=True) if groups == 8 else None,
            quick=groups != 6 and world is not MANY_GPUS_8,
            published_quick=groups == 4 and world is GPUS_8)
        for groups in (4, 6, 8)
    )  # fmt: skip


SEARCH = (
    Row("no limit", FEW_FLAT, search(FLAT_QUERY), 4.0, 30, 118, is_unlimited=True, at_once=True),
    Row("limit=1000", MANY_FLAT, search(f"{FLAT_QUERY}&limit=1000"), 6.0, 150, 974),
    Row(
        "limit=10",
        MANY_FLAT,
        search(f"{FLAT_QUERY}&limit=10"),
        1.5,
        500,
        793,
        at_once=True,
        floor=Floor(1.7, is_served=True, needs_data=True),
    ),
    Row("nothing has the room", MANY_FLAT, search(NOTHING), 1.5),
    Row("nothing has the trait", MANY_FLAT, search(NO_SUCH_HOST), 1.5, quick=False),
    Row(
        "same_subtree, limit=1000",
        NESTED,
        search(f"{NESTED_QUERY}&limit=1000"),
        20.0,
        40,
        885,
        floor=Floor(2, is_served=True, is_encoded=True, needs_data=True),
    ),
    Row("same_subtree, limit=10", NESTED, search(f"{NESTED_QUERY}&limit=10"), 3.0, 250, 802),
    *_wide(GPUS_8),
    *_wide(GPUS_16),
    Row("17 groups of one GPU: cannot work", GPUS_16, search(_gpus(17)), 1.0, is_published=False),
    *_wide(MANY_GPUS_8),
    *(
        Row(f"{name}, one query again", world, get(query.format(*range(7, 24))), is_published=False)
        for name, world, query in (
            ("limit=10", MANY_FLAT, f"{FLAT_QUERY}&limit=10"),
            ("8 groups of one GPU, isolate, limit=1000", GPUS_16, _gpus(8)),
        )
    ),
)

_ONE_SELECT = Floor(1.5, is_served=True)
_HOST = "nested-000000"
_OF_HOST = f"/resource_providers/{uuid_of(_HOST)}"
READS = (
    Row("in_tree of 13", NESTED, get(f"/resource_providers?in_tree={uuid_of(_HOST)}"), ratio=3),
    Row("inventories", NESTED, get(f"{_OF_HOST}/inventories"), ratio=3, floor=_ONE_SELECT),
    Row("traits", NESTED, get(f"{_OF_HOST}/traits"), ratio=3, floor=_ONE_SELECT),
    Row("usages", NESTED, get(f"{_OF_HOST}/usages"), ratio=3, floor=_ONE_SELECT),
    Row("PUT inventories", NESTED, put_inventories(_HOST), ratio=3),
)
