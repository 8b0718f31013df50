"""One random host and guest: the planner's answer compared with all that there is.

By command, as many as one likes: `python -m tests.property.fitting.comparison FIRST NUMBER`.
"""

from __future__ import annotations

import json
import random
import sys

from msgspec.structs import replace

from compute_agent.fitting.announced import document, host_of
from compute_agent.fitting.guest import Guest
from compute_agent.fitting.host import Host, PlanOptions
from compute_agent.fitting.plan import UNDECIDED, UNNAMED, Plan, Refusal
from compute_agent.fitting.planner import plan
from tests.property.fitting import drawn, oracle


def compare(seed: int) -> None:
    """Compare the answer for the host and the guest of a seed.

    :raises AssertionError: the planner is wrong.
    """
    rng = random.Random(seed)
    host = drawn.a_host(rng)
    guest = drawn.a_guest(rng, host)
    if rng.random() < 0.2:
        host, guest = drawn.short_of_memory(rng, host, guest)
    options = PlanOptions(
        packing=rng.random() < 0.5,
        keep_links=rng.random() < 0.8,
        spare_device_cells=rng.random() < 0.8,
    )
    answer = plan(host, guest, options)
    assert answer == plan(host, guest, options), "the same input gives the same plan"
    hurried = plan(host, guest, replace(options, budget=rng.choice((0, 0, rng.randrange(99)))))
    assert isinstance(answer, Plan) == isinstance(hurried, Plan), "a budget decides nothing"
    few = plan(host, guest, replace(options, limit=rng.randrange(30)))
    known = {outcome(answer), UNDECIDED, UNNAMED if isinstance(answer, Refusal) else ""}
    assert outcome(few) in known, "the steps that are left decide nothing"
    check_announced(host, guest, options)
    costs = [
        oracle.cost(host, guest, cells, devices, options)
        for cells, devices in oracle.ways(host, guest)
    ]
    if isinstance(answer, Refusal):
        assert not costs, "it fits"
        assert (answer.rule, answer.node) in oracle.reasons(host, guest), answer.sentence
        if answer.miss.startswith("the host: "):
            missing = oracle.least_ordinary_mib(host, guest) - max(host.memory_mib or 0, 0)
            assert answer.miss == f"the host: {missing} MiB"
        return
    assert costs, "it does not fit"
    assert answer.is_best
    check(host, guest, answer)
    check(host, guest, hurried)
    best = min(costs)
    assert cost_of(host, guest, answer, options) == best, "it is the best"
    assert answer.cost[: len(best)] == best
    assert not hurried.is_best or cost_of(host, guest, hurried, options) == best


def outcome(answer: Plan | Refusal) -> str:
    return answer.rule if isinstance(answer, Refusal) else ""


def check_announced(host: Host, guest: Guest, options: PlanOptions) -> None:
    """Check that a scheduler plans with an announcement, which has no traits, as the agent does."""
    heard = host_of(json.loads(json.dumps(document(host))))
    wishes = [replace(w, required=frozenset(), forbidden=frozenset()) for w in guest.wishes]
    untraited = replace(guest, wishes=tuple(wishes))
    own = plan(host, untraited, options)
    assert (heard is None) == (not host.cells)
    other = plan(heard or host, untraited, options)
    assert isinstance(own, Plan) == isinstance(other, Plan)
    if isinstance(own, Plan) and isinstance(other, Plan):
        # how full a cell is may differ: its shared CPUs are announced as what one node can have
        assert own.cost[:10] == other.cost[:10]


def cost_of(host: Host, guest: Guest, answer: Plan, options: PlanOptions) -> tuple[object, ...]:
    cells = {cell.id: cell for cell in host.cells}
    devices = {device.id: device for device in host.devices}
    own_cells = [cells[part.cell] for part in answer.parts]
    own_devices = [devices[given.device] for given in answer.given]
    return oracle.cost(host, guest, own_cells, own_devices, options)


def check(host: Host, guest: Guest, answer: Plan | Refusal) -> None:
    """Check that a plan keeps the rules, and gives what is free once."""
    assert isinstance(answer, Plan)
    cells = {cell.id: cell for cell in host.cells}
    devices = {device.id: device for device in host.devices}
    own_cells = [cells[part.cell] for part in answer.parts]
    own_devices = tuple(devices[given.device] for given in answer.given)
    assert own_devices in set(oracle.device_ways(host, guest, own_cells))
    for part in answer.parts:
        free = {cpu for core in cells[part.cell].cores for cpu in core.cpus}
        assert set(part.pinned_cpus) <= free
        assert len(part.pinned_cpus) == len(set(part.pinned_cpus)) == part.pinned
    if guest.floats:
        assert not answer.parts
        return
    assert len(set(own_cells and [part.cell for part in answer.parts])) == len(own_cells)
    assert oracle.networks_are_near(host, guest, own_cells)
    assert oracle.has_memory(host, guest, own_cells)
    if guest.names_nodes:
        for node, part, cell in zip(guest.nodes, answer.parts, own_cells, strict=True):
            assert oracle.has_room(cell, node, guest.threads)
            assert (part.vcpus, part.memory_mib) == (node.vcpus, node.memory_mib)
            assert part.pinned == node.pinned + node.emulator_cpus
            assert node.cell in (None, part.cell)
            assert not part.memory_mib or oracle.holds(cell, node, part.page_size_kib or 0)
            check_cpus(part, cell, node.pinned, guest.threads)
        return
    whole = guest.nodes[0]
    assert sum(part.pinned for part in answer.parts) == whole.pinned + whole.emulator_cpus
    assert sum(len(part.emulator_cpus) for part in answer.parts) == whole.emulator_cpus
    for name in ("vcpus", "memory_mib"):
        assert sum(getattr(part, name) for part in answer.parts) == getattr(whole, name)
    assert all(part.vcpus or part.memory_mib or part.pinned for part in answer.parts)


def check_cpus(part, cell, count: int, policy: str) -> None:
    """Check that the CPUs of a part break no more than the best choice of them."""
    own = set(part.pinned_cpus) - set(part.emulator_cpus)
    assert len(own) == count
    cost = oracle.cpu_costs(cell.cores, count, policy)
    touched = [c for c in cell.cores if own & set(c.cpus)]
    whole = [c for c in touched if len(c.cpus) == c.threads and set(c.cpus) <= own]
    fractions = count - sum(c.threads for c in whole)
    broken = sum(1 for c in touched if len(c.cpus) == c.threads and c not in whole)
    assert (fractions, broken, len({c.group for c in touched})) == min(cost)[:3]


def main() -> None:
    first, number = map(int, sys.argv[1:3])
    for seed in range(first, first + number):
        try:
            compare(seed)
        except AssertionError as error:
            sys.exit(f"seed {seed}: {error}")
    print(f"{number} hosts and guests agree with the brute force")  # noqa: T201


if __name__ == "__main__":
    main()
