"""The command `compute-agent diff A B`: differences between two hosts in placement."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from compute_agent.manage.host_diff import (
    PROVIDER,
    HostDifference,
    HostTree,
    differences,
    read_host,
)
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.programs.exit_status import Exit
from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    from oslo_config import cfg


def run(conf: cfg.ConfigOpts, first: str, second: str, *, as_json: bool) -> int:
    """Print the differences; return 0 without any, 6 otherwise.

    :raises ComputeAgentError: one of the hosts cannot be read.
    """
    report = ReportClient(
        KeystoneTransport.from_conf(conf),
        use_extensions=conf.compute_agent.use_placement_extensions == "auto",
    )
    try:
        report.connect()
        first_tree, second_tree = read_host(report, first), read_host(report, second)
    finally:
        report.close()
    all_differences = differences(first_tree, second_tree)
    if as_json:
        document = {
            "first": {"name": first_tree.name, "uuid": first_tree.uuid},
            "second": {"name": second_tree.name, "uuid": second_tree.uuid},
            "differences": [asdict(difference) for difference in all_differences],
        }
        print(json.dumps(document, indent=2))
    else:
        _print(first_tree, second_tree, all_differences)
    return Exit.WOULD_CHANGE if all_differences else Exit.FINE


def _print(first: HostTree, second: HostTree, all_differences: list[HostDifference]) -> None:
    if not all_differences:
        print(f"{first.name} and {second.name} are equal: {len(first.providers)} provider(s) each")
        return
    print(f"< {first.name}  {first.uuid}")
    print(f"> {second.name}  {second.uuid}")
    before = None
    for difference in all_differences:
        if difference.provider != before:
            print(difference.provider or "(root provider)")
        before = difference.provider
        if difference.aspect == PROVIDER:
            print(f"  only {'<' if difference.first == 'present' else '>'} has this provider")
        elif isinstance(difference.first, list):
            for sign, only in (("<", difference.first), (">", difference.second)):
                if only:
                    print(f"  {difference.aspect} only {sign} has: {' '.join(only)}")
        else:
            values = (
                "none" if value is None else value
                for value in (difference.first, difference.second)
            )
            print(f"  {difference.aspect}: " + " < > ".join(map(str, values)))
    print(f"{len(all_differences)} difference(s)")
