"""The rules and the order of the planner, by trying out everything there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product

from msgspec.structs import replace

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host, PlanOptions
from compute_agent.fitting.plan import (
    CELLS,
    CPUS,
    DEVICES,
    MEMORY,
    NEARNESS,
    NETWORKS,
    PAGES,
    PINNED,
    THREADS,
    TOGETHER,
)


def cpu_costs(cores: Sequence[Core], count: int, policy: str) -> list[tuple[int, ...]]:
    """Return what each possible choice of CPUs breaks."""
    free = [cpu for core in cores for cpu in core.cpus]
    costs = []
    for cpus in map(set, combinations(free, count)):
        touched = [core for core in cores if cpus & set(core.cpus)]
        whole = [c for c in touched if len(c.cpus) == c.threads and set(c.cpus) <= cpus]
        if policy == "require" and (len(whole) < len(touched) or any(c.threads < 2 for c in whole)):
            continue
        if policy == "isolate" and any(c.threads > 1 for c in touched):
            continue
        groups = {core.group for core in touched}
        group_fractions = 0
        for group in groups:
            own = [core for core in cores if core.group == group]
            was_whole = all(len(core.cpus) == core.threads for core in own)
            free_of_group = {cpu for core in own for cpu in core.cpus}
            if not was_whole or not free_of_group <= cpus:
                group_fractions += len(free_of_group & cpus)
        fractions = count - sum(core.threads for core in whole)
        broken = sum(1 for c in touched if len(c.cpus) == c.threads and c not in whole)
        costs.append((fractions, broken, len(groups), group_fractions))
    return costs


def has_room(cell: Cell, node: Node, policy: str) -> bool:
    """Whether a cell has the CPUs and the memory of a node."""
    most = cell.vcpus if cell.floating is None else min(cell.vcpus, cell.floating)
    if node.vcpus > max(most, 0):
        return False
    pins = node.pinned + node.emulator_cpus
    if pins:
        if pins > min(cell.pinnable, sum(len(core.cpus) for core in cell.cores)):
            return False
        if not cpu_costs(cell.cores, node.pinned, policy):
            return False
    return not node.memory_mib or any(holds(cell, node, size) for size in node.page_sizes)


def holds(cell: Cell, node: Node, size: int) -> bool:
    """Whether the memory of a node is there in pages of one size."""
    if size:
        there = cell.pages_mib.get(size, 0)
        return node.memory_mib * 1024 % size == 0 and node.memory_mib <= there
    most = [cell.memory_mib]
    if cell.own_memory_mib is not None:
        most.append(cell.own_memory_mib)
    if (node.pinned or node.names_pages) and cell.pinned_memory_mib is not None:
        most.append(cell.pinned_memory_mib)
    return node.memory_mib <= min(most)


def device_ways(host: Host, guest: Guest, cells: Sequence[Cell]) -> Iterator[tuple[Device, ...]]:
    """Yield the ways to serve all wishes of a guest whose nodes are on `cells`."""
    for devices in product(host.devices, repeat=len(guest.wishes)):
        taken: dict[str, int] = {}
        for wish, device in zip(guest.wishes, devices, strict=True):
            taken[device.id] = taken.get(device.id, 0) + wish.amount
        if all(
            serves(device, wish) and is_near_enough(device, wish, host, guest, cells)
            for wish, device in zip(guest.wishes, devices, strict=True)
        ) and all(taken[device.id] <= device.free for device in devices):
            yield devices


def serves(device: Device, wish: Wish) -> bool:
    """Whether a device is of the kind of a wish."""
    return (
        device.resource_class == wish.resource_class
        and not wish.forbidden & device.traits
        and all(traits & device.traits for traits in wish.required)
        and (wish.devices is None or device.id in wish.devices)
    )


def is_near_enough(
    device: Device, wish: Wish, host: Host, guest: Guest, cells: Sequence[Cell]
) -> bool:
    """Whether a device is as near as a wish demands."""
    if guest.floats or wish.nearness in ("", "preferred"):
        return True
    if device.cell is None:
        return wish.nearness == "legacy"
    if wish.nearness != "socket":
        return is_near(device, wish, cells, named=guest.names_nodes)
    own = next((cell for cell in host.cells if cell.id == device.cell), None)
    return own is not None and any(
        cell.id == own.id or (own.package is not None and cell.package == own.package)
        for cell in counted(wish, cells, named=guest.names_nodes)
    )


def counted(wish: Wish, cells: Sequence[Cell], *, named: bool) -> Sequence[Cell]:
    """Return the cells of the guest to which a device may be near."""
    return cells if wish.node is None or not named else [cells[wish.node]]


def is_near(device: Device, wish: Wish, cells: Sequence[Cell], *, named: bool) -> bool:
    """Whether a device is on a cell of the guest."""
    return any(cell.id == device.cell for cell in counted(wish, cells, named=named))


def networks_are_near(host: Host, guest: Guest, cells: Sequence[Cell]) -> bool:
    """Whether a guest is near each network that is near some cell."""
    for net in guest.physnets:
        near = [cell for cell in host.cells if net in cell.physnets]
        if near and not any(cell in cells for cell in near):
            return False
    tunneled = [cell for cell in host.cells if cell.tunneled]
    return not (guest.needs_tunnel and tunneled and not any(cell in cells for cell in tunneled))


def cell_sets(host: Host, guest: Guest) -> Iterator[tuple[Cell, ...]]:
    """Yield the cells on which the nodes of a guest may be; the fewest, where it names none."""
    if guest.names_nodes:
        for cells in permutations(host.cells, len(guest.nodes)):
            if all(
                has_room(cell, node, guest.threads) and node.cell in (None, cell.id)
                for cell, node in zip(cells, guest.nodes, strict=True)
            ):
                yield cells
        return
    for number in range(1, len(host.cells) + 1):
        possible = [
            cells
            for cells in combinations(host.cells, number)
            if can_share(cells, guest.nodes[0], guest.threads)
            and networks_are_near(host, guest, cells)
            and next(device_ways(host, guest, cells), None) is not None
        ]
        if possible:
            yield from possible
            return


def can_share(cells: Sequence[Cell], whole: Node, policy: str) -> bool:
    """Whether a guest can be laid over cells of which each gives something."""
    return any(
        all(
            any(part[:3])
            and has_room(cell, Node(*part[:3], emulator_cpus=part[3]), policy)
            # the memory of a guest with pinned CPUs is overcommitted on none of its cells
            and (not part[2] or holds(cell, replace(whole, memory_mib=part[2]), 0))
            for cell, part in zip(
                cells, zip(vcpus, pinned, memory, emulator, strict=True), strict=True
            )
        )
        for vcpus in compositions(whole.vcpus, len(cells))
        for pinned in compositions(whole.pinned, len(cells))
        for memory in compositions(whole.memory_mib, len(cells))
        for emulator in compositions(whole.emulator_cpus, len(cells))
    )


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a sum."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield first, *rest


def ordinary_mib(guest: Guest, cells: Sequence[Cell]) -> int:
    """Return the memory that is in no huge pages of these cells."""
    if not guest.names_nodes:
        return guest.nodes[0].memory_mib
    return sum(
        node.memory_mib
        for node, cell in zip(guest.nodes, cells, strict=True)
        if not any(size and holds(cell, node, size) for size in node.page_sizes)
    )


def least_ordinary_mib(host: Host, guest: Guest) -> int:
    """Return the memory that can be in no huge pages, wherever devices and networks are."""
    certain = sum(node.memory_mib for node in guest.nodes if node.page_sizes == {0})
    if certain > (host.memory_mib or 0):
        return certain
    near = replace(guest, wishes=(), physnets=frozenset(), needs_tunnel=False)
    return min(ordinary_mib(guest, cells) for cells in cell_sets(host, near))


def has_memory(host: Host, guest: Guest, cells: Sequence[Cell]) -> bool:
    """Whether what is in no huge pages of these cells is there on the host."""
    return host.memory_mib is None or ordinary_mib(guest, cells) <= host.memory_mib


def ways(host: Host, guest: Guest) -> Iterator[tuple[tuple[Cell, ...], tuple[Device, ...]]]:
    """Yield every plan that keeps the rules: cells and devices."""
    for cells in cell_sets(host, guest) if not guest.floats else [()]:
        if has_memory(host, guest, cells) and (
            guest.floats or networks_are_near(host, guest, cells)
        ):
            for devices in device_ways(host, guest, cells):
                yield cells, devices


def reasons(host: Host, guest: Guest) -> set[tuple[str, int | None]]:
    """Return the rules that may be named as the first which cannot be kept, and of which node."""
    anywhere = replace(guest, names_nodes=False)
    if next(device_ways(host, anywhere, host.cells), None) is None:
        return {(DEVICES, None)}
    ordinary = sum(node.memory_mib for node in guest.nodes if node.page_sizes == {0})
    if host.memory_mib is not None and ordinary > host.memory_mib:
        return {(MEMORY, None)}
    for number, node in enumerate(guest.nodes if guest.names_nodes else ()):
        own = [cell for cell in host.cells if node.cell in (None, cell.id)]
        if not any(has_room(cell, node, guest.threads) for cell in own):
            return {(rule, number) for rule in rules_of(own, node, guest.threads)}
    near = replace(guest, physnets=frozenset(), needs_tunnel=False)
    if next(cell_sets(host, replace(near, wishes=())), None) is None:
        if guest.names_nodes:
            return {(CELLS, number) for number in range(len(guest.nodes))}
        return {(rule, None) for rule in (CPUS, PINNED, THREADS, MEMORY, TOGETHER)}
    if next(ways(host, replace(near, wishes=())), None) is None:
        return {(MEMORY, None)}
    if next(ways(host, near), None) is not None:
        return {(NETWORKS, None)}
    return {(NEARNESS, w.node) for w in guest.wishes if w.nearness not in ("", "preferred")}


def rules_of(cells: Sequence[Cell], node: Node, policy: str) -> set[str]:
    """Return the rules by which no cell has room for a node: one of them alone, or together."""
    if not any(has_room(cell, Node(node.vcpus), "") for cell in cells):
        return {CPUS} if cells else {TOGETHER}
    pins = Node(pinned=node.pinned, emulator_cpus=node.emulator_cpus)
    if not any(has_room(cell, pins, policy) for cell in cells):
        return {PINNED, THREADS} if policy else {PINNED}
    if node.memory_mib and not any(holds(c, node, s) for c in cells for s in node.page_sizes):
        return {MEMORY} if 0 in node.page_sizes else {PAGES}
    return {TOGETHER}


def cost(
    host: Host,
    guest: Guest,
    cells: Sequence[Cell],
    devices: Sequence[Device],
    options: PlanOptions,
) -> tuple[object, ...]:
    """Return the criteria of a plan, but for numbers; of a guest that names nodes, all of them."""
    named = guest.names_nodes
    far = sum(
        wish.nearness == "preferred"
        and not guest.floats
        and not is_near(device, wish, cells, named=named)
        for wish, device in zip(guest.wishes, devices, strict=True)
    )
    in_order = sorted(cells, key=lambda cell: cell.id)
    distance = sum(one.distance(other.id) for one, other in combinations(in_order, 2))
    distance += sum(
        cell.distance(device.cell)
        for cell in cells
        for device in devices
        if device.cell is not None
    )
    first = (far, distance, *links(host, guest, devices, keep_links=options.keep_links))
    if not named:
        return first
    return first + of_cells(host, guest, cells, options)


def links(
    host: Host, guest: Guest, devices: Sequence[Device], *, keep_links: bool
) -> tuple[int, int, int]:
    """Return scattered link groups, scattered roots, and whole groups that are broken."""
    kinds: dict[Wish, set[Device]] = {}
    for wish, device in zip(guest.wishes, devices, strict=True):
        kinds.setdefault(replace(wish, name=""), set()).add(device)
    groups = roots = broken = 0
    for own in kinds.values():
        groups += len({device.link_group or device.id for device in own}) - 1
        roots += len({device.pcie_root or device.id for device in own}) - 1
    for name in {device.link_group for device in host.devices if device.link_group}:
        members = [device for device in host.devices if device.link_group == name]
        whole = len(members) > 1 and all(d.free and not d.used for d in members)
        own_number = len({device.id for device in devices if device.link_group == name})
        broken += keep_links and whole and 0 < own_number < len(members)
    return groups, roots, broken


def of_cells(
    host: Host, guest: Guest, cells: Sequence[Cell], options: PlanOptions
) -> tuple[object, ...]:
    """Return the criteria of each cell by itself, summed up."""
    wanted = {wish.resource_class for wish in guest.wishes}
    spared = 0
    for cell in cells if options.spare_device_cells else ():
        free = {d.resource_class for d in host.devices if d.cell == cell.id and d.free}
        spared += len(free - wanted)
    cpus = [
        min(cpu_costs(cell.cores, node.pinned, guest.threads))
        for cell, node in zip(cells, guest.nodes, strict=True)
    ]
    sign = 1 if options.packing else -1
    room = [(sign * c.pinnable, sign * c.vcpus, sign * c.memory_mib) for c in cells]
    return (
        spared,
        *(sum(column) for column in zip(*cpus, strict=True)),
        tuple(sum(column) for column in zip(*room, strict=True)),
        tuple(cell.id for cell in cells),
    )
