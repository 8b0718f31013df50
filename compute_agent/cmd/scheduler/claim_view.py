"""A claim as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from compute_agent.cmd.console import new_console, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def claim_table(document: Mapping[str, Any]) -> Table:
    """Return the allocations of a claim: provider, amount, and the groups it serves."""
    table = new_table("provider", "claimed", "for group")
    rows = []
    for uuid, entry in document["allocations"].items():
        amounts = " ".join(f"{name}={n}" for name, n in sorted(entry["resources"].items()))
        groups = sorted(
            suffix or "(unsuffixed)"
            for suffix, uuids in document["mappings"].items()
            if uuid in uuids
        )
        rows.append((" ".join(groups), entry["name"], amounts))
    for of_groups, name, amounts in sorted(rows):
        table.add_row(Text(name), Text(amounts), Text(of_groups))
    return table


def print_claim(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the consumer, the host and the allocations of a claim."""
    out = console or new_console()
    out.print(Text.assemble("Consumer ", (document["consumer"], "bold")), soft_wrap=True)
    host = Text.assemble(
        "landed on ", (document["host"], "bold"), f" ({document['root_provider']})"
    )
    out.print(host, soft_wrap=True)
    out.print(claim_table(document))
