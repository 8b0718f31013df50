"""Claims, explanations and states of schedulers, printed for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from compute_agent.cmd.output import columns, new_console, new_table
from compute_agent.daemon import reload
from compute_agent.scheduler.outcomes import Causes, FilterCause

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOWN_SENTENCES = 12
"""Sentences of placement for each query: the changes and providers that come closest are first."""
SHOWN_REJECTED = 4
"""Rejected hosts named per filter; the numbers are of all."""


def explanation_lines(causes: Causes) -> Iterator[str]:
    """Yield the lines of an explanation: in placement's own words, and what only hosts know."""
    for query in causes.queries:
        limit = ", the most it may send" if query.limit_reached else ""
        yield f"Asked of placement, {query.shape}: {query.candidates} candidate(s){limit}"
        if query.explanation is not None:
            sentences = query.explanation["sentences"]
            yield from (f"  {sentence}" for sentence in sentences[:SHOWN_SENTENCES])
            if len(sentences) > SHOWN_SENTENCES:
                yield f"  and {len(sentences) - SHOWN_SENTENCES} more: see --json"
    for title, rows in (
        ("Filters", [_filter_row(cause) for cause in causes.filters]),
        ("Claims refused", [(claim.host, claim.sentence()) for claim in causes.claims_lost]),
    ):
        if rows:
            yield title
            yield from (f"  {line}" for line in columns(rows))
    if causes.remark:
        yield causes.remark


def _filter_row(cause: FilterCause) -> tuple[str, ...]:
    rejected_hosts = [
        f"{host.host} ({host.reason})" if host.reason else host.host
        for host in cause.rejected[:SHOWN_REJECTED]
    ]
    number = cause.hosts_before - cause.hosts_left
    more = f" and {number - len(rejected_hosts)} more" if number > len(rejected_hosts) else ""
    text = f"rejected {', '.join(rejected_hosts)}{more}" if rejected_hosts else ""
    return cause.name, f"{cause.hosts_left} of {cause.hosts_before}", text


def status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a status."""
    lowest = status["minimum_service_version"]
    announcements = (
        "no agent has announced itself yet" if lowest == 0 else f"lowest service version {lowest}"
    )
    yield f"Agents: {announcements}"
    for behaviour in status["behaviours"]:
        if behaviour["in_force"]:
            yield f"in force   {behaviour['name']}: {behaviour['means']}"
            continue
        hosts = ", ".join(behaviour["held_back_by"]) or "no agent has announced itself"
        yield f"held back  {behaviour['name']}: {behaviour['means']}; by {hosts}"
    # a scheduler of an older version has no such part
    if (failure := status.get("reload")) is not None:
        yield f"options    of {status['host']} {reload.shown_failure(failure)}"
    elif "host" in status:
        yield (
            f"options    of {status['host']}, which answers: no reload failed. Those of other "
            "schedulers are in the line of `systemctl status` there"
        )


def claim_table(document: Mapping[str, Any]) -> Table:
    """Return the allocations of a claim: provider, amount, and the groups it serves."""
    rows = []
    for uuid, entry in document["allocations"].items():
        amounts = " ".join(f"{name}={n}" for name, n in sorted(entry["resources"].items()))
        groups = sorted(
            suffix or "(unsuffixed)"
            for suffix, uuids in document["mappings"].items()
            if uuid in uuids
        )
        rows.append((entry["name"], amounts, " ".join(groups)))
    rows.sort(key=lambda row: (row[2], row))
    return new_table(("provider", "claimed", "for group"), rows)


def print_claim(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the consumer, the host and the allocations of a claim."""
    out = console or new_console()
    out.print(Text.assemble("Consumer ", (document["consumer"], "bold")), soft_wrap=True)
    host = Text.assemble(
        "landed on ", (document["host"], "bold"), f" ({document['root_provider']})"
    )
    out.print(host, soft_wrap=True)
    out.print(claim_table(document))
