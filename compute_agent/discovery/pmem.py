"""Namespaces of persistent memory, as the program ndctl lists them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any, Final

from compute_agent.discovery import program
from compute_agent.discovery.errors import DiscoveryError, FactMalformed
from compute_agent.discovery.facts import PmemNamespace

COMMAND: Final = ("ndctl", "list", "-X")


def discover() -> tuple[PmemNamespace, ...]:
    """Return the namespaces that have a name, by name.

    :raises DiscoveryError: ndctl is missing or fails, or prints something else.
    """
    text = program.output_of(COMMAND)
    # nothing is printed where there is no namespace
    try:
        document = json.loads(text) if text.strip() else []
        # one namespace may be printed without a list around it
        namespaces = _namespaces([document] if isinstance(document, dict) else document)
        return tuple(sorted(namespaces, key=lambda namespace: namespace.name))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        output = f"the output of {shlex.join(COMMAND)}"
        raise FactMalformed(output, text, "a JSON list of namespaces") from error


def list_namespaces() -> tuple[tuple[PmemNamespace, ...] | None, str | None]:
    """Return the namespaces, or None and the reason."""
    try:
        return discover(), None
    except DiscoveryError as error:
        return None, str(error)


def _namespaces(entries: list[dict[str, Any]]) -> Iterator[PmemNamespace]:
    for entry in entries:
        if not entry.get("name"):
            continue
        region = entry.get("daxregion") or {}
        devices = region.get("devices") or [{}]
        align = entry.get("align") or region.get("align") or devices[0].get("align")
        character_device = entry.get("chardev") or devices[0].get("chardev")
        device = character_device or entry.get("blockdev")
        yield PmemNamespace(
            name=str(entry["name"]),
            size_bytes=int(entry["size"]),
            align_bytes=None if align is None else int(align),
            device=f"/dev/{device}" if device else None,
        )
