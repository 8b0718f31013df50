"""Constraints of a query, and the providers that each of them leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from compute_agent.scheduler.causes import ConstraintCause
from compute_agent.scheduler.placement_client import PlacementClient

Parameters = Sequence[tuple[str, str]]

_CLAUSE = re.compile(r"(resources|required|member_of|in_tree)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ConstraintListing:
    """A listing of providers that shows what one constraint leaves.

    :param parameters: of ``GET /resource_providers``.
    """

    group: str | None
    constraint: str
    parameters: tuple[tuple[str, str], ...]


def constraints_of(
    placement: PlacementClient, query: str, listings: int
) -> tuple[ConstraintCause, ...]:
    """Return what each constraint of a query left.

    Placement explains it where it can; otherwise its providers are listed for one constraint after
    the other.

    :param listings: how many lists may be asked for; later constraints are left out.
    :raises PlacementError: placement cannot be asked.
    """
    parameters = parse_qsl(query)
    explanation = placement.explanation(parameters)
    if explanation is not None:
        return tuple(_step(step) for step in explanation.steps)
    causes = []
    for listing in list(listings_of(parameters))[:listings]:
        roots = placement.matching_providers(listing.parameters)
        number = len(roots)
        if listing.group is None:
            number = sum(1 for uuid, root in roots.items() if uuid == root)
        causes.append(ConstraintCause(listing.group, listing.constraint, number))
    return tuple(causes)


def listings_of(parameters: Parameters) -> Iterator[ConstraintListing]:
    """Yield a listing for each constraint of a query.

    In a group with a suffix each counts together with those before it, since one provider must
    satisfy them all. In the unsuffixed group, which several providers may serve, and of what is
    asked of roots, each counts alone. Constraints between groups have no listing.
    """
    before: dict[str, dict[str, list[str]]] = {}
    for name, value in sorted(parameters, key=_resources_first):
        if name in ("root_required", "root_member_of"):
            yield from _of_root(name, value)
            continue
        clause = _CLAUSE.fullmatch(name)
        if clause is None:
            continue
        kind, suffix = clause.groups()
        parts = value.split(",") if kind in ("resources", "required") else [value]
        if kind == "required" and value.startswith("in:"):
            parts = [value]
        for part in parts:
            clauses = before.setdefault(suffix, {}) if suffix else {}
            clauses.setdefault(kind, []).append(part)
            yield ConstraintListing(suffix, f"{kind} {part}", _clause_texts(clauses))


def _of_root(name: str, value: str) -> Iterator[ConstraintListing]:
    if name == "root_member_of":
        yield ConstraintListing(None, f"{name} {value}", (("member_of", value),))
        return
    for trait in value.split(","):
        yield ConstraintListing(None, f"{name} {trait}", (("required", trait),))


def _resources_first(parameter: tuple[str, str]) -> int:
    return int(not parameter[0].startswith("resources"))


def _clause_texts(clauses: Mapping[str, list[str]]) -> tuple[tuple[str, str], ...]:
    clause_texts: list[tuple[str, str]] = []
    for kind, values in clauses.items():
        if kind in ("resources", "required"):
            # a list of values is one parameter, a choice among several one of its own
            plain = [value for value in values if not value.startswith("in:")]
            clause_texts += [(kind, ",".join(plain))] if plain else []
            clause_texts += [(kind, value) for value in values if value.startswith("in:")]
        else:
            clause_texts += [(kind, value) for value in values]
    return tuple(clause_texts)


def _step(step: Mapping[str, Any]) -> ConstraintCause:
    return ConstraintCause(
        step["group"], step["filter"], step.get("providers_left"), step.get("trees_rejected")
    )
