"""The full view of a provider: a table of its inventories, and its traits."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from compute_agent.cmd.trees.amounts import amount_text
from compute_agent.cmd.trees.form import TreeForm
from compute_agent.manage.tree_reading import ProviderLines

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
        shown_names = [*names] if len(names) > 1 else [prefix + names[0]]
        if len(names) > 1:
            text.append(f" {prefix}{{", style="green dim")
            text.append(" ".join(shown_names), style="green")
            text.append("}", style="green dim")
        else:
            text.append(f" {shown_names[0]}", style="green")
    return text
