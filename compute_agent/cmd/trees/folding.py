"""Folding of a provider tree: equal devices side by side become one line. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from os.path import commonprefix
from typing import Final

from msgspec import Struct

from compute_agent.manage.tree_reading import InventoryLine, ProviderLines

_CELL: Final = "HW_NUMA_ROOT"
_MODEL: Final = "CUSTOM_GPU_"
_NO_MODELS: Final = ("MIG", "UNHEALTHY")
"""Endings of traits that begin like those of models."""


class Branch(Struct, frozen=True):
    """One line of a tree: a provider, or several that differ in nothing but name and use.

    :ivar providers: at least one.
    :ivar children: the branches below; several providers have none.
    """

    providers: tuple[ProviderLines, ...]
    children: tuple[Branch, ...] = ()

    @property
    def first(self) -> ProviderLines:
        """The provider, or the first of several."""
        return self.providers[0]

    def below(self) -> Iterator[Branch]:
        """Iterate over this branch and all below it."""
        yield self
        for child in self.children:
            yield from child.below()


def fold(
    providers: Sequence[ProviderLines],
    *,
    keep: Callable[[ProviderLines], bool] = lambda _provider: True,
    apart: bool = False,
    traits_matter: Collection[str] = (),
) -> Branch:
    """Return the tree as branches, siblings in natural order.

    :param providers: all providers of one tree, in any order.
    :param keep: tells which providers are wanted; those above a wanted one stay too.
    :param apart: fold nothing.
    :param traits_matter: traits whose providers are never folded.
    """
    children: dict[str | None, list[ProviderLines]] = {}
    for provider in providers:
        children.setdefault(provider.parent, []).append(provider)
    [root] = children[None]

    def grow(provider: ProviderLines) -> Branch | None:
        siblings = sorted(children.get(provider.uuid, ()), key=lambda child: natural(child.name))
        below = [branch for child in siblings if (branch := grow(child)) is not None]
        if not below and not keep(provider) and provider is not root:
            return None
        return Branch((provider,), tuple(below if apart else _fold_leaves(below, traits_matter)))

    branch = grow(root)
    assert branch is not None, "the root stays"
    return branch


def label(branch: Branch, root: ProviderLines) -> str:
    """Return the name of a branch in its tree: without that of the root, and counted if folded.

    GPUs have their model beside their name, or in its place where they are folded.
    """
    names = [provider.name.removeprefix(f"{root.name}_") for provider in branch.providers]
    model = _gpu_model(branch.first.traits)
    if len(names) == 1:
        return names[0] + (f" ({model})" if model else "")
    if model:
        return f"{len(names)} x {model}"
    alike = commonprefix(names)  # noqa: RUF071 - these are names, not paths
    # The digits with which addresses begin alike say nothing of what the devices are.
    stem = re.sub(r"(?:(?:^|[_:.-])[0-9a-f]*)+$", "", alike)
    return f"{len(names)} x {stem or (alike and f'{alike}*') or 'provider'}"


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key under which NUMA2 comes before NUMA10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _gpu_model(traits: Sequence[str]) -> str:
    """Return the model of a GPU by its trait, in capitals; an empty string where none has it."""
    models = (trait.removeprefix(_MODEL) for trait in traits if trait.startswith(_MODEL))
    return next((name.replace("_", " ") for name in models if name not in _NO_MODELS), "")


def _fold_leaves(branches: Sequence[Branch], traits_matter: Collection[str]) -> list[Branch]:
    """Put equal leaves together, each group where its first member is."""
    groups: dict[object, list[Branch]] = {}
    for branch in branches:
        provider = branch.first
        alone = branch.children or not {_CELL, *traits_matter}.isdisjoint(provider.traits)
        groups.setdefault(provider.uuid if alone else _likeness(provider), []).append(branch)
    return [
        group[0] if len(group) == 1 else Branch(tuple(branch.first for branch in group))
        for group in groups.values()
    ]


def _likeness(provider: ProviderLines) -> object:
    def without_use(line: InventoryLine) -> tuple[int, int, float]:
        return line.total, line.reserved, line.allocation_ratio

    return (
        tuple((name, without_use(line)) for name, line in sorted(provider.inventories.items())),
        tuple(sorted(provider.traits)),
        tuple(sorted(provider.aggregates)),
    )
