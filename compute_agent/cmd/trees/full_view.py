"""The full view of a provider tree: a table of inventories and the traits of every provider."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from compute_agent.cmd.trees.folding import natural
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


def provider_tree(
    providers: Sequence[ProviderLines], *, traits: bool = True, only: Collection[str] = ()
) -> Tree:
    """Return a tree of the providers.

    :param traits: show the traits too.
    :param only: uuids of providers whose inventories are shown; empty for all.
    """
    children: dict[str | None, list[ProviderLines]] = {}
    for provider in providers:
        children.setdefault(provider.parent, []).append(provider)
    [root] = children[None]
    tree = Tree(_label(root, traits=traits, only=only), guide_style="dim")
    _grow(tree, root, children, traits=traits, only=only)
    return tree


def _grow(
    tree: Tree,
    parent: ProviderLines,
    children: dict[str | None, list[ProviderLines]],
    *,
    traits: bool,
    only: Collection[str],
) -> None:
    for child in sorted(children.get(parent.uuid, ()), key=lambda sibling: natural(sibling.name)):
        branch = tree.add(_label(child, traits=traits, only=only))
        _grow(branch, child, children, traits=traits, only=only)


def _label(provider: ProviderLines, *, traits: bool, only: Collection[str]) -> RenderableType:
    beside = f"  {provider.uuid}" + (f"  {provider.note}" if provider.note else "")
    parts: list[RenderableType] = [Text.assemble((provider.name, "bold"), (beside, "dim"))]
    if provider.inventories and (not only or provider.uuid in only):
        parts.append(Padding(inventory_table(provider), (0, 0, 0, 1), expand=False))
    if traits and provider.traits:
        parts.append(Padding(trait_text(provider.traits), (0, 0, 0, 1), expand=False))
    if provider.aggregates:
        text = Text.assemble(("aggregates ", "dim"), " ".join(provider.aggregates))
        parts.append(Padding(text, (0, 0, 0, 1), expand=False))
    return Group(*parts)


def inventory_table(provider: ProviderLines) -> Table:
    """Return the inventories of a provider, a line each."""
    table = Table(box=None, show_header=True, header_style="dim", pad_edge=False)
    table.add_column("", style="cyan", overflow="fold")
    for heading in ("total", "reserved", "ratio", "used", "free"):
        table.add_column(heading, justify="right", overflow="fold")
    for name, line in sorted(provider.inventories.items()):
        used = Text(str(line.used), style="bold yellow" if line.used else "dim")
        ratio = f"{line.allocation_ratio:g}"
        table.add_row(name, str(line.total), str(line.reserved), ratio, used, str(line.free))
    return table


def trait_text(traits: Sequence[str]) -> Text:
    """Return the traits grouped by prefix, as in ``HW_CPU_X86_{AVX AVX2}``."""
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
