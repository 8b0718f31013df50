"""The command `compute-agent diff A B`: what two hosts have in placement that is not the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from compute_agent.manage.host_diff import (
    PROVIDER,
    Difference,
    HostTree,
    differences,
    read_host,
)
from compute_agent.placement.keystone import KeystoneTransport
from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    from oslo_config import cfg

EQUAL = 0
DIFFERENT = 6


def run(conf: cfg.ConfigOpts, first: str, second: str, *, as_json: bool) -> int:
    """Print what differs; 0 if nothing does, 6 otherwise.

    :raises ComputeAgentError: one of the hosts cannot be read.
    """
    report = ReportClient(KeystoneTransport.from_conf(conf))
    try:
        report.connect()
        one, other = read_host(report, first), read_host(report, second)
    finally:
        report.close()
    found = differences(one, other)
    if as_json:
        document = {
            "first": {"name": one.name, "uuid": one.uuid},
            "second": {"name": other.name, "uuid": other.uuid},
            "differences": [asdict(each) for each in found],
        }
        print(json.dumps(document, indent=2))
    else:
        _print(one, other, found)
    return DIFFERENT if found else EQUAL


def _print(first: HostTree, second: HostTree, found: list[Difference]) -> None:
    if not found:
        print(f"{first.name} and {second.name} are equal: {len(first.providers)} provider(s) each")
        return
    print(f"< {first.name}  {first.uuid}")
    print(f"> {second.name}  {second.uuid}")
    before = None
    for each in found:
        if each.provider != before:
            print(each.provider or "(root provider)")
        before = each.provider
        if each.aspect == PROVIDER:
            print(f"  only {'<' if each.first == 'present' else '>'} has this provider")
        elif isinstance(each.first, list):
            for sign, only in (("<", each.first), (">", each.second)):
                if only:
                    print(f"  {each.aspect} only {sign} has: {' '.join(only)}")
        else:
            values = ("none" if value is None else value for value in (each.first, each.second))
            print(f"  {each.aspect}: " + " < > ".join(map(str, values)))
    print(f"{len(found)} difference(s)")
