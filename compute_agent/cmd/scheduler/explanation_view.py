"""Explanation of a request, printed for people: the answer first, then what led to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from compute_agent.scheduler.causes import Causes, ConstraintCause, FilterCause, QueryCause

SHOWN_REJECTED = 4
"""Rejected hosts named per filter; the numbers are of all."""


def print_explanation(causes: Causes, out: TextIO | None = None) -> None:
    """Print what would fit, the hosts that came closest, and what took the others away."""
    stream = out or sys.stdout
    for line in explanation_lines(causes):
        stream.write(line.rstrip() + "\n")


_WORDS: Final = {"group": "all of it on one provider"}
"""What placement calls a constraint, and what it is."""


def explanation_lines(causes: Causes) -> Iterator[str]:
    """Yield the lines of an explanation."""
    if causes.fits_with:
        yield "It would fit"
        yield from _columns(
            [(change.text, _hosts(change.hosts, change.example)) for change in causes.fits_with]
        )
    if causes.closest_hosts:
        yield "Closest hosts"
        yield from _columns(
            [
                (host.host, "; ".join(lack.text for lack in host.lacks))
                for host in causes.closest_hosts
            ]
        )
    if causes.queries:
        yield "Asked of placement"
        yield from _columns([row for query in causes.queries for row in _query_rows(query)])
    if causes.filters:
        yield "Filters"
        yield from _columns([_filter_row(cause) for cause in causes.filters])
    if causes.claims_lost:
        yield "Claims refused"
        yield from _columns(
            [(lost_claim.host, lost_claim.sentence()) for lost_claim in causes.claims_lost]
        )
    if causes.remark:
        yield causes.remark


def _query_rows(query: QueryCause) -> Iterator[tuple[str, ...]]:
    limit = ", the most it may send" if query.limit_reached else ""
    yield query.shape, f"{query.candidates} candidate(s){limit}", ""
    for constraint in query.constraints:
        of_group = f"{constraint.group}: " if constraint.group else ""
        mark = "  <- none left" if _empties(constraint) else ""
        text = _WORDS.get(constraint.constraint, constraint.constraint)
        yield "", f"{of_group}{text}", f"{_providers_left(constraint)}{mark}"
        if mark:
            # what comes after it could not have helped
            return


def _empties(constraint: ConstraintCause) -> bool:
    return constraint.providers_left == 0


def _providers_left(constraint: ConstraintCause) -> str:
    if constraint.providers_left is None:
        return f"{constraint.trees_rejected} host(s) rejected"
    return f"{constraint.providers_left} provider(s)"


def _filter_row(cause: FilterCause) -> tuple[str, ...]:
    rejected_hosts = [
        f"{host.host} ({host.reason})" if host.reason else host.host
        for host in cause.rejected[:SHOWN_REJECTED]
    ]
    number = cause.hosts_before - cause.hosts_left
    more = f" and {number - len(rejected_hosts)} more" if number > len(rejected_hosts) else ""
    text = f"rejected {', '.join(rejected_hosts)}{more}" if rejected_hosts else ""
    return cause.name, f"{cause.hosts_left} of {cause.hosts_before}", text


def _hosts(number: int, example: str) -> str:
    return f"on {number} hosts, such as {example}" if number > 1 else f"on {example}"


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells)
