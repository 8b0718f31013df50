"""Orders to the terminal in names from elsewhere: shown by each program, and never obeyed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from compute_agent.programs.printable import PrintableStream, terminal
from tests.fixtures import programs
from tests.fixtures.allocations import claim_body, new_uuid
from tests.fixtures.databases import migrated_sqlite
from tests.fixtures.plain_trees import make_provider
from tests.fixtures.terminal import IS_ORDER, ORDERS
from tests.functional.agent.processes import (
    HEADERS,
    AgentProcess,
    PlacementProcess,
    eventually,
)


class HostileNames(NamedTuple):
    agent: AgentProcess
    host: str
    consumer: str
    url: str


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileNames]:
    """Hosts, a project and a user whose names give orders, and a configuration to look at them."""
    directory = tmp_path_factory.mktemp("hostile")
    placement = PlacementProcess(directory)
    placement.start()
    host = f"host{ORDERS}"
    for name in (host, "other"):
        totals = {"VCPU": 4, "MEMORY_MB": 4096}
        root = make_provider(placement.send, name, totals, ["COMPUTE_NODE"])
        if name != host:
            continue
        consumer, owner = new_uuid(), {"project_id": f"p{ORDERS}", "user_id": f"u{ORDERS}"}
        placement.send("PUT", f"/allocations/{consumer}", claim_body({root: {"VCPU": 1}}, **owner))
        place = dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), ORDERS)
        bus = {"state": "refused", "since": None, "why": ORDERS}
        report = {"period": 60, "bus": bus, "disabled_reason": ORDERS, "trouble": ORDERS}
        headers = {**HEADERS, "X-Compute-Agent-Report": json.dumps({**report, "place": place})}
        url = f"{placement.url}/provider_trees/{root}"
        assert requests.get(url, headers=headers, timeout=30).ok
    eventually(lambda: placement.get("/agent_reports")["agent_reports"], "the report")
    agent = AgentProcess(directory, placement.url)
    agent.script(nodes=[host])
    yield HostileNames(agent, host, consumer, placement.url)
    placement.kill()


@pytest.mark.parametrize(
    "command",
    [
        ("compute-scheduler", "list", "CONSUMER"),
        ("compute-scheduler", "list", "--host", "NAME"),
        ("compute-scheduler", "list", "--project", "pNAME"),
        ("compute-agent", "plan"),
        ("compute-agent", "diff", "NAME", "other"),
        ("compute-agent", "diff", "none of NAME", "other"),
        ("compute-manage", "placement", "delete-host", "NAME"),
        ("compute-manage", "placement", "rename", "NAME", "new NAME"),
        ("compute-manage", "host", "list"),
        ("placement", "--url", "URL", "history"),
        ("placement", "--url", "URL", "history", "NAME", "--json"),
        ("compute-scheduler", "make-room", "--host", "NAME", "--resources", "VCPU=4"),
    ],
    ids=" ".join,
)
def test_no_program_obeys_a_name(hostile: HostileNames, command: tuple[str, ...]) -> None:
    program, *words = (
        word.replace("CONSUMER", hostile.consumer)
        .replace("NAME", hostile.host)
        .replace("URL", hostile.url)
        for word in command
    )
    configured = () if program == "placement" else ("--config-file", str(hostile.agent.config))
    ended = programs.run(
        program,
        *(*configured, *words),
        timeout=90,
        environment=hostile.agent.environment(),
    )
    printed = ended.stdout + ended.stderr
    assert "usage:" not in printed
    assert "Traceback" not in printed
    # the sums of a project have no names
    assert "\\x1b" in printed or "--project" in command
    assert IS_ORDER.findall(printed) == []


@pytest.mark.parametrize("command", ["manage audit", "status upgrade check"])
def test_no_command_of_the_server_obeys_a_name(tmp_path: Path, command: str) -> None:
    """Of a class that other software wrote, and of a rule of a policy file."""
    database = tmp_path / "placement.db"
    url = migrated_sqlite(database)
    with closing(sqlite3.connect(database)) as connection, connection:
        root = "11111111-0000-4000-8000-000000000001"
        connection.execute(
            "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id) "
            "VALUES (1, ?, 'host', 0, 1)",
            (root,),
        )
        connection.execute("INSERT INTO resource_classes (id, name) VALUES (9999, ?)", (ORDERS,))
        connection.execute(
            "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, "
            "min_unit, max_unit, step_size, allocation_ratio, capacity, used) "
            "VALUES (1, 9999, 8, 0, 1, 8, 1, 1.0, 8, 7)"
        )
    policy = tmp_path / "policy.yaml"
    policy.write_text('"placement:\\e[31m": "role:admin"\n')
    config = tmp_path / "placement.conf"
    config.write_text(
        f"[placement_database]\nconnection = {url}\n[oslo_policy]\npolicy_file = {policy}\n"
    )
    module, *words = command.split()
    ended = programs.run(
        f"placement_server.cmd.{module}", "--config-file", str(config), *words, timeout=60
    )
    printed = ended.stdout + ended.stderr
    assert "\\x1b" in printed, printed
    assert IS_ORDER.findall(printed) == []


def test_orders_of_the_program_itself_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = PrintableStream(sys.stdout)
    print("\x1b[31mred", file=stream)
    print("\x1b[31mred", file=terminal(stream))
    assert capsys.readouterr().out == "\\x1b[31mred\n\x1b[31mred\n"
