"""Drawing of a plan on its host, for operators: cells, cores, devices, and what the guest gets."""

from __future__ import annotations

from collections.abc import Iterator

from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.plan import Part, Plan, Refusal

LEGEND = "-: taken, *: for this guest"


def draw(host: Host, answer: Plan | Refusal) -> list[str]:
    """Return the lines of a host with what a guest gets of it, or why it gets nothing."""
    parts = answer.parts if isinstance(answer, Plan) else ()
    given: dict[tuple[str, str], list[str]] = {}
    for unit in answer.given if isinstance(answer, Plan) else ():
        names = unit.units or (f"{unit.amount} unit(s)",)
        given.setdefault((unit.device, unit.resource_class), []).extend(names)
    lines = [line for cell in host.cells for line in _cell(cell, parts)]
    lines += [
        _device(device, given.get((device.id, device.resource_class), []))
        for device in host.devices
    ]
    lines.append(LEGEND)
    if isinstance(answer, Refusal):
        verdict = "not known whether it fits" if answer.is_undecided else "does not fit"
        return [*lines, f"{verdict}: {answer.sentence}"]
    if not parts and host.cells:
        lines.append("its CPUs and memory may be on any cell")
    best = "no plan is better" if answer.is_best else "the best within the budget of steps"
    return [*lines, f"fits: {best}"]


def _cell(cell: Cell, parts: tuple[Part, ...]) -> Iterator[str]:
    own = [part for part in parts if part.cell == cell.id]
    shared = f"{max(cell.vcpus, 0)} CPUs to float" + "".join(
        f", {part.vcpus}*" for part in own if part.vcpus
    )
    memory = f"{max(cell.memory_mib, 0)} MiB" + "".join(
        f", {part.memory_mib}*" for part in own if part.memory_mib and not part.page_size_kib
    )
    yield f"cell {cell.id}: {shared}; {memory}"
    if cell.cores:
        taken = {cpu for part in own for cpu in part.pinned_cpus}
        groups = dict.fromkeys(core.group for core in cell.cores)
        yield "  cores " + " | ".join(
            "".join(_core(core, taken) for core in cell.cores if core.group == group)
            for group in groups
        )
    for size, mib in sorted(cell.pages_mib.items()):
        used = "".join(f", {part.memory_mib}*" for part in own if part.page_size_kib == size)
        yield f"  pages of {size} KiB: {mib} MiB{used}"


def _core(core: Core, taken: set[int]) -> str:
    threads = [f"{cpu}*" if cpu in taken else str(cpu) for cpu in core.cpus]
    return f"({' '.join(threads + ['-'] * (core.threads - len(core.cpus)))})"


def _device(device: Device, given: list[str]) -> str:
    where = "no known cell" if device.cell is None else f"cell {device.cell}"
    links = f", links {device.link_group}" if device.link_group else ""
    units = f": {', '.join(given)}*" if given else ""
    return (
        f"device {device.id} on {where}{links}: {device.free} {device.resource_class} free{units}"
    )
