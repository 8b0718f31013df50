"""The drawing of a provider tree in a terminal, full or with one line per provider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from compute_agent.cmd.trees.folding import Branch, fold, label
from compute_agent.cmd.trees.form import TreeForm, amount_text
from compute_agent.manage.tree_reading import ProviderLines, used_and_capacity
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED, CUSTOM_DEVICE_MISSING

MARKS: Final = {COMPUTE_STATUS_DISABLED: "DISABLED", "CUSTOM_GPU_UNHEALTHY": "UNHEALTHY"}
"""Traits of providers that nothing new is given from, and the words in front of them."""

_BAR: Final = 8
"""Characters of a bar."""

_HEADER: Final = "used/capacity by resource class"


def drawing(providers: Sequence[ProviderLines], form: TreeForm) -> RenderableType:
    """Return a tree in a form, as a terminal shows it."""
    if form.full:
        return _full_tree(fold(providers, apart=True), form)
    return _short_tree(providers, form)


def _full_tree(branch: Branch, form: TreeForm, parent: Tree | None = None) -> Tree:
    view = provider_view(branch.first, form)
    tree = Tree(view, guide_style="dim") if parent is None else parent.add(view)
    for child in branch.children:
        _full_tree(child, form, tree)
    return tree


def _short_tree(providers: Sequence[ProviderLines], form: TreeForm) -> Group:
    """Return one line per provider, with the sums of the whole host; equal devices on one line."""

    def keep(provider: ProviderLines) -> bool:
        shown_classes = [name for name in provider.inventories if _is_shown(name, form)]
        has_what_is_asked = form.resource_class is None or bool(shown_classes)
        return has_what_is_asked and (
            not form.only_used or any(provider.inventories[name].used for name in shown_classes)
        )

    root = fold(
        providers, keep=keep, apart=form.apart, traits_matter=(*MARKS, CUSTOM_DEVICE_MISSING)
    )
    lines = list(_lines(root, root.first))
    # room for the names, so that the amounts begin in one column
    sum_name = f"in all {len(providers)} providers"
    widths = [len(guide) + len(_name(branch, root.first)) for guide, _, branch in lines]
    width = max(*widths, len(sum_name) if len(providers) > 1 else 0)
    parts: list[RenderableType] = [Text(" " * width + "  " + _HEADER, style="dim")]
    for guide, below, branch in lines:
        line = _Line(_head(guide, branch, root.first, width), below.ljust(width))
        line.parts += _amounts(branch.providers, form)
        if form.apart or branch is root:
            line.parts.append(Text(f"  {branch.first.uuid}", style="dim"))
        if branch.first.note and branch is root:
            line.parts.append(Text(f"  {branch.first.note}", style="dim"))
        parts.append(line)
        if form.traits and branch.first.traits:
            parts.append(Text.assemble((below, "dim"), "  ", trait_text(branch.first.traits)))
    if len(providers) > 1:
        totals = _Line(Text(sum_name.ljust(width), style="bold"), " " * width)
        totals.parts += _amounts(providers, form)
        parts.append(totals)
    return Group(*parts)


class _Line:
    """A name with its amounts, which go on below the first where a terminal is too narrow.

    :param continuation: what stands before the amounts there.
    """

    def __init__(self, head: Text, continuation: str) -> None:
        self.parts: list[Text] = []
        self._head = head
        self._continuation = continuation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line = self._head.copy()
        for number, part in enumerate(self.parts):
            if number and line.cell_len + part.cell_len > options.max_width:
                yield line
                line = Text(self._continuation, style="dim")
            line.append_text(part)
        line.rstrip()
        yield line


def _lines(
    branch: Branch, root: ProviderLines, guide: str = "", below: str = ""
) -> Iterator[tuple[str, str, Branch]]:
    """Iterate over the guide of each line, that of lines below it, and its branch."""
    yield guide, below, branch
    for child in branch.children:
        is_last = child is branch.children[-1]
        yield from _lines(
            child,
            root,
            below + ("└── " if is_last else "├── "),
            below + ("    " if is_last else "│   "),
        )


def _name(branch: Branch, root: ProviderLines) -> str:
    return root.name if branch.first is root else label(branch, root)


def _head(guide: str, branch: Branch, root: ProviderLines, width: int) -> Text:
    name = _name(branch, root)
    text = Text.assemble((guide, "dim"), (name, "bold"))
    text.append(" " * (width - len(guide) - len(name)))
    for trait, word in MARKS.items():
        if trait in branch.first.traits:
            text.append(f"  {word}", style="bold red")
    return text


def _amounts(providers: Sequence[ProviderLines], form: TreeForm) -> Iterator[Text]:
    for name, (used, capacity) in used_and_capacity(providers).items():
        if not _is_shown(name, form):
            continue
        if len(providers) == 1 and CUSTOM_DEVICE_MISSING in providers[0].traits:
            yield Text.assemble((f"  {name} ", "cyan"), (_gone_text(providers[0]), "red"))
            continue
        style = "red" if used >= capacity > 0 else "yellow" if used else ""
        text = Text.assemble((f"  {name} ", "cyan"))
        if form.bars:
            text.append(f"{bar(used, capacity)} ", style=style)
        lines = (provider.inventories.get(name) for provider in providers)
        ratios = {line.allocation_ratio for line in lines if line is not None}
        ratio = ratios.pop() if len(ratios) == 1 else 1.0
        text.append(amount_text(name, used, capacity, ratio, in_bytes=form.in_bytes), style=style)
        yield text


def _gone_text(provider: ProviderLines) -> str:
    """Return the words for what is left of a device that is gone: who holds it."""
    return f"gone, held by {provider.named_holders}" if provider.holders else "gone"


def bar(used: int, capacity: int) -> str:
    """Return a bar of what is used: whole only when nothing is free, empty only when all is."""
    filled_width = (
        _BAR if used >= max(capacity, 1) else min(_BAR - 1, -(-used * _BAR // max(capacity, 1)))
    )
    return "█" * filled_width + "░" * (_BAR - filled_width)


def _is_shown(resource_class: str, form: TreeForm) -> bool:
    return form.resource_class in (None, resource_class)


_TRAIT_PREFIXES = (
    "HW_CPU_X86_",
    "HW_CPU_AARCH64_",
    "COMPUTE_STORAGE_",
    "COMPUTE_NET_",
    "COMPUTE_",
    "HW_NIC_",
    "HW_GPU_",
    "HW_",
    "CUSTOM_",
)


def provider_view(provider: ProviderLines, form: TreeForm) -> RenderableType:
    """Return a provider with a table of its inventories, its traits and its aggregates."""
    beside = f"  {provider.uuid}" + (f"  {provider.note}" if provider.note else "")
    parts: list[RenderableType] = []
    if provider.inventories and (not form.tables or provider.uuid in form.tables):
        parts.append(_inventory_table(provider, form))
    if form.traits and provider.traits:
        parts.append(trait_text(provider.traits))
    if provider.aggregates:
        parts.append(Text.assemble(("aggregates ", "dim"), " ".join(provider.aggregates)))
    return Group(
        Text.assemble((provider.name, "bold"), (beside, "dim")),
        *(Padding(part, (0, 0, 0, 1), expand=False) for part in parts),
    )


def _inventory_table(provider: ProviderLines, form: TreeForm) -> Table:
    table = Table(box=None, show_header=True, header_style="dim", pad_edge=False)
    table.add_column("", style="cyan", overflow="fold")
    for heading in ("total", "reserved", "ratio", "used/capacity"):
        table.add_column(heading, justify="right", overflow="fold")
    for name, line in sorted(provider.inventories.items()):
        amount = amount_text(name, line.used, line.capacity, in_bytes=form.in_bytes)
        if CUSTOM_DEVICE_MISSING in provider.traits:
            amount = _gone_text(provider)
        amount_cell = Text(amount, style="bold yellow" if line.used else "")
        ratio = f"{line.allocation_ratio:g}"
        table.add_row(name, str(line.total), str(line.reserved), ratio, amount_cell)
    return table


def trait_text(traits: Sequence[str]) -> Text:
    """Return the traits grouped by prefix, as in `HW_CPU_X86_{AVX AVX2}`."""
    names_by_prefix: dict[str, list[str]] = {}
    for name in traits:
        prefix = next(
            (known_prefix for known_prefix in _TRAIT_PREFIXES if name.startswith(known_prefix)), ""
        )
        names_by_prefix.setdefault(prefix, []).append(name.removeprefix(prefix))
    text = Text("traits", style="dim")
    for prefix, names in names_by_prefix.items():
        if len(names) > 1:
            text.append(f" {prefix}{{", style="green dim")
            text.append(" ".join(names), style="green")
            text.append("}", style="green dim")
        else:
            text.append(f" {prefix}{names[0]}", style="green")
    return text
