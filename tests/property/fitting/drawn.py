"""Hosts and guests made up at random, small enough to try out everything."""

from __future__ import annotations

import random

from msgspec.structs import replace

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host

ANY_PAGES = frozenset((0, 2048, 1048576))
PAGES = (
    ANY_PAGES,
    ANY_PAGES,
    ANY_PAGES - {0},
    *(frozenset((0, size)) for size in ANY_PAGES),
    frozenset((2048,)),
)
"""`any`, `large` and sizes, as `hw:mem_page_size` has them."""
CLASSES = ("GPU", "GPU", "VF")
NEARNESS = ("", "required", "socket", "preferred", "legacy", "required", "preferred")


def a_cell(rng: random.Random, number: int, numbers: list[int]) -> Cell:
    threads = rng.choice((1, 2, 2, 4))
    cores, cpu = [], number * 100
    for core in range(rng.randint(0, 3 if threads < 4 else 1)):
        cpus = [cpu + i for i in range(threads)]
        cpu += threads
        free = cpus if rng.random() < 0.6 else rng.sample(cpus, rng.randint(0, threads))
        cores.append(Core(tuple(sorted(free)), threads, core // rng.choice((1, 2, 4))))
    free_cpus = sum(len(core.cpus) for core in cores)
    memory = rng.randint(0, 4)
    return Cell(
        id=number,
        cores=tuple(cores),
        pinnable=free_cpus if rng.random() < 0.8 else rng.randint(0, free_cpus),
        vcpus=rng.randint(-1, 3),
        floating=rng.choice((None, rng.randint(0, 3))),
        memory_mib=memory,
        own_memory_mib=rng.choice((None, None, rng.randint(0, 4))),
        pinned_memory_mib=rng.choice((None, None, rng.randint(0, 4))),
        pages_mib=rng.choice(({}, {2048: rng.choice((0, 2, 4))}, {2048: 2, 4096: 4})),
        distances={other: 10 if other == number else rng.choice((12, 21)) for other in numbers}
        if rng.random() < 0.7
        else {},
        package=rng.choice((None, number // 2, 0)),
        physnets=frozenset(net for net in "ab" if rng.random() < 0.3),
        tunneled=rng.random() < 0.3,
    )


def a_device(rng: random.Random, number: int, cells: list[int]) -> Device:
    free = rng.choice((0, 1, 1, 1, 2))
    return Device(
        id=f"d{number}",
        resource_class=rng.choice(CLASSES),
        free=free,
        used=rng.random() < 0.3,
        cell=rng.choice((None, *cells, *cells, 99)),
        pcie_root=rng.choice(("", "r0", "r1")),
        link_group=rng.choice(("", "0", "1")),
        traits=frozenset(trait for trait in "TU" if rng.random() < 0.7),
    )


def a_host(rng: random.Random) -> Host:
    numbers = sorted(rng.sample(range(8), rng.randint(0 if rng.random() < 0.1 else 1, 5)))
    cells = tuple(a_cell(rng, number, numbers) for number in numbers)
    devices = tuple(a_device(rng, i, numbers) for i in range(rng.randint(0, 4)))
    total = sum(cell.memory_mib for cell in cells)
    return Host(cells, devices, rng.choice((None, None, rng.randint(0, total))))


def a_node(rng: random.Random, numbers: list[int]) -> Node:
    return Node(
        vcpus=rng.choice((0, 0, 1, 2)),
        pinned=rng.choice((0, 0, 1, 2, 2, 3)),
        memory_mib=rng.randint(0, 3),
        page_sizes=rng.choice(
            (frozenset((0,)),) * 4
            + (frozenset((2048, 4096)), frozenset((2048,)), frozenset((0, 2048)))
        ),
        emulator_cpus=rng.random() < 0.1,
        cell=rng.choice(numbers) if numbers and rng.random() < 0.1 else None,
        names_pages=rng.random() < 0.2,
    )


def a_guest(rng: random.Random, host: Host) -> Guest:
    numbers = [cell.id for cell in host.cells]
    names_nodes = rng.random() < 0.75
    count = rng.randint(1, min(4, len(numbers) + 1)) if names_nodes else 1
    node = a_node(rng, numbers)
    nodes = [node if rng.random() < 0.4 else a_node(rng, numbers) for _ in range(count)]
    if not names_nodes:
        whole = replace(nodes[0], page_sizes=frozenset((0,)), cell=None)
        nodes = [
            whole if whole.vcpus or whole.pinned or whole.memory_mib else replace(whole, vcpus=1)
        ]
    wish = a_wish(rng, count)
    wishes = [wish if rng.random() < 0.5 else a_wish(rng, count) for _ in range(rng.randint(0, 3))]
    return Guest(
        nodes=tuple(nodes),
        names_nodes=names_nodes,
        floats=not names_nodes and rng.random() < 0.1,
        threads=rng.choice(("", "", "prefer", "require", "isolate")),
        wishes=tuple(replace(wish, name=str(i)) for i, wish in enumerate(wishes)),
        physnets=frozenset(net for net in "ab" if rng.random() < 0.3),
        needs_tunnel=rng.random() < 0.2,
    )


def short_of_memory(rng: random.Random, host: Host, guest: Guest) -> tuple[Host, Guest]:
    """Return a host and a guest of which little but pages decides what fits."""
    cells = tuple(
        replace(
            cell,
            memory_mib=rng.choice((0, 1024, 4096, 4096)),
            pages_mib={
                size: rng.choice((0, 1024, 2048, 4096)) for size in rng.choice(PAGES) if size
            },
        )
        for cell in host.cells
    )
    nodes = tuple(
        replace(
            node if rng.random() < 0.2 else Node(),
            memory_mib=rng.choice((2, 1024, 1026, 2048, 3072)),
            page_sizes=rng.choice(PAGES),
        )
        for node in guest.nodes
    )
    host = replace(host, cells=cells, memory_mib=rng.randrange(0, 8192, 256))
    return host, Guest(
        nodes if guest.names_nodes else guest.nodes,
        guest.names_nodes,
        wishes=guest.wishes[: rng.choice((0, 0, 1))],
        physnets=guest.physnets,
    )


def a_wish(rng: random.Random, nodes: int) -> Wish:
    return Wish(
        "",
        rng.choice(CLASSES),
        amount=rng.choice((1, 1, 1, 2)),
        required=rng.choice((frozenset(),) * 3 + (frozenset((frozenset("T"),)),)),
        forbidden=rng.choice((frozenset(),) * 3 + (frozenset("U"),)),
        nearness=rng.choice(NEARNESS),
        node=rng.choice((None, None, rng.randrange(nodes))),
        devices=rng.choice((None, None, None, frozenset(("d0", "d1")))),
    )


def a_large_host(rng: random.Random) -> Host:
    """Return a host of 64 unlike cells with up to 64 unlike devices."""
    cells = tuple(
        Cell(
            number,
            pinnable=rng.randint(0, 16),
            memory_mib=rng.randint(0, 64) * 1000,
            pages_mib={2048: rng.choice((0, 8000, 32000))},
            distances={
                other: 10 if other == number else 12 if other // 4 == number // 4 else 32
                for other in range(64)
            },
            package=number // rng.choice((2, 4)) if rng.random() < 0.9 else None,
            physnets=frozenset(net for net in "abc" if rng.random() < 0.1),
        )
        for number in range(64)
    )
    units = rng.choice((1, 1, 2, 4))
    devices = tuple(
        Device(
            f"d{i}",
            rng.choice(CLASSES),
            rng.randint(0, units),
            cell=rng.choice((None, *range(64), *range(64))),
            link_group=rng.choice(("", "0", "1")),
            traits=frozenset(trait for trait in "TU" if rng.random() < 0.7),
        )
        for i in range(rng.choice((32, 64)))
    )
    return Host(cells, devices)


def a_large_guest(rng: random.Random) -> Guest:
    """Return a guest with 16 to 32 wishes of all policies."""
    count = rng.choice((2, 4, 8, 16, 32, 64))
    most = rng.random()
    nodes = tuple(
        Node(
            pinned=rng.randint(0, int(1 + 15 * most)),
            memory_mib=rng.randint(0, int(60 * most)) * 1000,
            page_sizes=rng.choice((frozenset((0,)),) * 4 + (frozenset((0, 2048)),)),
        )
        for _ in range(count)
    )
    wishes = tuple(
        replace(a_wish(rng, count), name=str(i), devices=None) for i in range(rng.randint(16, 32))
    )
    networks = frozenset(net for net in "abc" if rng.random() < 0.3)
    return Guest(nodes, wishes=wishes, physnets=networks)
