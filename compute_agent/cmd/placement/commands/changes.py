"""The command changes: changes in placement, listed or watched."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent.cmd.output import chosen_columns, show_rows, text_of
from compute_agent.cmd.placement.client import Client, connect
from compute_agent.cmd.placement.parser import Commands
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import positive, whole

_WAIT: Final = 30
_LAST_ID: Final = 2**63 - 1
_COLUMNS: Final = ("id", "at", "root_provider_uuid", "kinds")


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    parser = commands.add("changes", _changes, "list the changes of placement, or watch them")
    parser.add_argument(
        "--after",
        type=whole(most=_LAST_ID),
        metavar="ID",
        help="only changes after this id; default: all",
    )
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="HOST",
        help="only changes of this tree (repeatable)",
    )
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        choices=["structure", "usage", "names"],
        help="only changes of this kind (repeatable); default: all",
    )
    parser.add_argument(
        "--watch", action="store_true", help="print each new change on a line, until Ctrl-C"
    )
    parser.add_argument(
        "--limit", type=positive, default=1000, metavar="N", help="at most N changes; default: 1000"
    )


def _changes(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    client.require_extensions("placement changes")
    query = [("root", client.provider(name)["root_provider_uuid"]) for name in namespace.root]
    query += [("kind", kind) for kind in namespace.kind]
    if namespace.watch:
        return _watch(namespace, client, query)
    after = namespace.after
    if after is None:
        after = max(_ask(client, query)["oldest"] - 1, 0)
    query += [("limit", str(namespace.limit)), ("after", str(after))]
    answer = _ask(client, query)
    rows = [[change[name] for name in _COLUMNS] for change in answer["changes"]]
    show_rows(namespace, _COLUMNS, rows, answer)
    return Exit.FINE


def _watch(namespace: argparse.Namespace, client: Client, query: list[tuple[str, str]]) -> int:
    columns = [_COLUMNS[number] for number in chosen_columns(namespace, _COLUMNS)]
    last = namespace.after
    while True:
        more = [] if last is None else [("after", str(last)), ("wait", str(_WAIT))]
        answer = _ask(client, [*query, *more])
        last = answer["last"]
        for change in answer["changes"]:
            print(_line(namespace, columns, change), flush=True)


def _line(namespace: argparse.Namespace, columns: Sequence[str], change: Mapping[str, Any]) -> str:
    if namespace.format == "json":
        return json.dumps(change)
    return " ".join(text_of(change[name]) for name in columns)


def _ask(client: Client, query: list[tuple[str, str]]) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"/changes?{urlencode(query)}", "Asking what changed")
    return answer
