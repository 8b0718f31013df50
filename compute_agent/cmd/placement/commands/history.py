"""The commands history and watch: what was changed in placement, by whom, and what is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent.cmd.output import chosen_columns, show_rows, text_of
from compute_agent.cmd.placement.client import Client
from compute_agent.cmd.placement.parser import Commands

_WAIT: Final = 30
_MOST: Final = 1000
_OVERLAP: Final = 1000
"""Ids that are asked for again: a write may end after one with a greater id."""
_COLUMNS: Final = ("at", "host", "consumer", "provider", "change", "user", "request_id")
_SIGNS: Final = {(0, 1): "+", (1, 0): "-"}


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    filters = """
        host HOST ?      only changes of this host
        --consumer UUID  only what this consumer got or lost
        --name NAME      only changes of this resource class, trait or aggregate
        """
    commands.add(
        "history",
        _history,
        "list what was changed, and by whom",
        filters,
        "--limit N (100)  at most N writes, the newest first; default: 100, at most 1000",
    )
    commands.add("watch", _watch, "print each change as it happens, until Ctrl-C", filters)


def _history(namespace: argparse.Namespace, client: Client) -> None:
    client.require_extensions("placement history")
    query = [*_query(namespace, client), ("limit", str(min(namespace.limit, _MOST)))]
    answer = _ask(client, query)
    rows = [
        [row[name] for name in _COLUMNS] for past in answer["history"] for row in _rows_of(past)
    ]
    show_rows(namespace, _COLUMNS, rows, answer)


def _watch(namespace: argparse.Namespace, client: Client) -> int:
    client.require_extensions("placement watch")
    columns = [_COLUMNS[number] for number in chosen_columns(namespace, _COLUMNS)]
    query = _query(namespace, client)
    roots = [(name, value) for name, value in query if name == "root"]
    last = _feed(client, roots)["last"]
    newest = max((past["id"] for past in _ask(client, [("limit", "1")])["history"]), default=0)
    known_ids = set(range(max(newest - _OVERLAP, 0), newest + 1))
    while True:
        feed = _feed(client, [*roots, ("after", str(last)), ("wait", str(_WAIT))])
        last = feed["last"]
        if not feed["changes"]:
            continue
        after = ("after", str(max(max(known_ids, default=0) - _OVERLAP, 0)))
        for past in _ask(client, [*query, after, ("limit", str(_MOST))])["history"]:
            if past["id"] not in known_ids:
                for line in _lines(namespace, columns, past):
                    print(line, flush=True)
                known_ids.add(past["id"])
        known_ids = {number for number in known_ids if number >= max(known_ids) - _OVERLAP}


def _query(namespace: argparse.Namespace, client: Client) -> list[tuple[str, str]]:
    query = []
    if namespace.host:
        query.append(("root", client.provider(namespace.host)["root_provider_uuid"]))
    query += [
        (key, value)
        for key in ("consumer", "name")
        if (value := getattr(namespace, key)) is not None
    ]
    return query


def _lines(
    namespace: argparse.Namespace, columns: list[str], past: Mapping[str, Any]
) -> Iterator[str]:
    if namespace.format == "json":
        yield json.dumps(past)
        return
    for row in _rows_of(past):
        yield " ".join(text_of(row[name]) for name in columns if row[name] != "")


def _rows_of(past: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for change in past["changes"]:
        yield {
            "at": past["at"],
            "host": past["root_provider_name"] or past["root_provider_uuid"] or "",
            "consumer": past["consumer_uuid"] or "",
            "provider": change["provider_name"] or change["provider_uuid"],
            "change": _text(change),
            "user": past["user_id"],
            "request_id": past["request_id"],
        }


def _text(change: Mapping[str, Any]) -> str:
    what, name, before, after = (change[key] for key in ("what", "name", "before", "after"))
    if what in ("trait", "aggregate", "provider"):
        return f"{_SIGNS.get((before, after), '')}{what} {name}"
    if what in ("name", "parent"):
        return f"{what} {before or 'none'} to {after or 'none'}"
    return f"{name} {'' if what == 'used' else f'{what} '}{before} to {after}"


def _ask(client: Client, query: list[tuple[str, str]]) -> dict[str, Any]:
    return dict(client.get(f"/history?{urlencode(query)}", "Asking what was changed"))


def _feed(client: Client, query: list[tuple[str, str]]) -> dict[str, Any]:
    return dict(client.get(f"/changes?{urlencode(query)}", "Waiting for changes"))
