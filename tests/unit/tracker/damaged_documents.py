"""Damaged forms of the files that an agent keeps: what a disk, a person or an older program left.

Each form is made from a good document, so that a form that is refused is refused for one reason.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compute_agent.provider_tree.inventory import PLACEMENT_DEFAULTS

ROOT = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
CHILD = "11111111-5c46-4f0a-a1a3-8e0a9a5ec0a0"
GUEST = "22222222-5c46-4f0a-a1a3-8e0a9a5ec0a0"

CLAIM: dict[str, Any] = {
    "consumer": GUEST,
    "node": "host1",
    "amounts": {ROOT: {"PCPU": 2}},
    "instance": GUEST,
    "claimed_at": 1.5,
    "units": [{"provider_uuid": ROOT, "resource_class": "PCPU", "name": "3"}],
    "providers_of": {"": [ROOT]},
    "migration": "",
    "cells": [
        {
            "cell": 0,
            "vcpus": 1,
            "shared_cpus": [1],
            "pinned_cpus": [3],
            "memory_mib": 512,
            "page_size_kib": 2048,
        }
    ],
}
RECORD = {"total": 8, **PLACEMENT_DEFAULTS}
PROVIDER: dict[str, Any] = {
    "uuid": ROOT,
    "name": "host1",
    "generation": 3,
    "parent_provider_uuid": None,
    "inventory": {"VCPU": RECORD},
    "traits": ["COMPUTE_NODE"],
    "aggregates": [CHILD],
    "stale": ["traits"],
}
LEDGERS: dict[str, dict[str, Any]] = {
    "ledger.json": {"created": [ROOT, CHILD]},
    "provider-config.json": {ROOT: {"inventories": ["CUSTOM_A"], "traits": ["CUSTOM_B"]}},
    "service.json": {"enabled": False, "reason": "fan", "automatic": True},
    "claims.json": {"claims": {GUEST: CLAIM}},
    "nodes.json": {"nodes": {ROOT: "host1"}},
    "faults.json": {"faults": {CHILD: "boot"}, "reserves": {CHILD: {"VGPU": 1}}},
}
CACHE: dict[str, Any] = {
    "format": 1,
    "trees": {
        ROOT: [
            PROVIDER,
            {**PROVIDER, "uuid": CHILD, "name": "host1_child", "parent_provider_uuid": ROOT},
        ]
    },
}
MARKER: dict[str, Any] = {"uuid": ROOT, "name": "host1", "machine_id": "m"}

OTHER_KINDS: tuple[Any, ...] = (None, True, 3, "x", "\ud800", [], {}, [[]], {"a": {}}, 1e999)
ODD = ("\ud800", [[]], 1e999)
"""Damage in place of a value of the same type too."""

RAW = {
    "nothing": b"",
    "half": b'{"version": 1, "sta',
    "zeros": b"\0" * 4096,
    "no text": b"\xff\xfe\xfd",
    "null": b"null",
    "a number": b"3",
    "a list": b"[]",
    "a text": b'"x"',
    "no keys": b"{}",
    "a huge number": b"9" * 5000,
    "deep lists": b"[" * 200_000 + b"]" * 200_000,
    "deep objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "deep, but not too deep for Python": b"[" * 300 + b"]" * 300,
}


def _directory(path: Path) -> None:
    path.mkdir()


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 * 1024**3)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(path.parent)  # the path of a socket may be no longer than 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless": _endless,
    "10 GiB": _large,
    "directory": _directory,
    "socket": _socket,
    "loop of links": _loop,
}


def envelope(state: Any) -> bytes:
    """A state file around a document, with the right checksum."""
    canonical = json.dumps(state, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(canonical.encode()).hexdigest()
    return json.dumps({"version": 1, "sha256": checksum, "state": state}).encode()


def misshapen(document: Any) -> Iterator[tuple[str, Any]]:
    """Copies of a document in each of which one value is of another type; before each, its key."""
    for path in places(document):
        for other in OTHER_KINDS:
            made = {"": copy.deepcopy(document)}
            above: Any = made
            *steps, last = ("", *path)
            for step in steps:
                above = above[step]
            if _kind(above[last]) != _kind(other) or other in ODD:
                above[last] = other
                yield str(last), made[""]


def places(document: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of a document but the document itself, outer ones first."""
    if path:
        yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, *path, key)
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from places(value, *path, place)


def _kind(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return "number"
    return type(value).__name__
