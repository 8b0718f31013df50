"""Secrets planted in every option, and searched for in all that the programs write."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fixtures import programs
from tests.functional.agent.processes import AgentProcess, eventually
from tests.functional.api.served import ServerProcess
from tests.functional.scheduler.running_service import service

pytestmark = pytest.mark.waiting

SECRET = "Pl4nted"
"""A part of each secret."""
PASSWORD = f"{SECRET}-password"
GONE = 1
"""A port on which nobody listens, nor will."""


def credentials(url: str) -> dict[str, str]:
    return {
        "auth_type": "password",
        "auth_url": url,
        "username": "user",
        "password": PASSWORD,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "connect_retries": "0",
    }


def with_credentials(port: int, scheme: str = "http", rest: str = "") -> str:
    return f"{scheme}://user:{SECRET}-in-url@127.0.0.1:{port}{rest}"


def written(path: Path, groups: Mapping[str, Mapping[str, Any]]) -> Path:
    lines: list[str] = []
    for group, options in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in options.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def agent_groups(directory: Path, *, in_url: bool = False) -> dict[str, dict[str, Any]]:
    port = GONE
    keystone = with_credentials(port, rest="/v3") if in_url else f"http://127.0.0.1:{port}/v3"
    services = {name: credentials(keystone) for name in ("placement", "nova", "neutron")}
    return {
        "DEFAULT": {
            "debug": "true",
            "state_path": directory / "state",
            "transport_url": with_credentials(GONE, "rabbit", "//"),
            "compute_driver": "host.HostDriver",
        },
        **services,
        "compute_agent": {"instance_source": "nova"},
    }


AGENT_COMMANDS = [
    ("compute-agent", "plan"),
    ("compute-agent", "plan", "--json"),
    ("compute-agent", "show"),
    ("compute-agent", "diff", "host-1", "host-2"),
    ("compute-agent", "status"),
    ("compute-agent", "status", "--json"),
    ("compute-agent", "doctor"),
    ("compute-agent", "doctor", "--json"),
    ("compute-scheduler", "status", "upgrade"),
    ("compute-scheduler", "list", "--json"),
    ("compute-scheduler", "release", "00000000-0000-4000-8000-000000000001"),
    ("compute-manage", "placement", "audit"),
    ("compute-manage", "placement", "audit", "--json"),
    ("compute-manage", "placement", "heal_allocations", "--verbose"),
    ("compute-manage", "host", "list"),
]


@pytest.mark.parametrize(
    ("command", "in_url"),
    [
        *((command, False) for command in AGENT_COMMANDS),
        *(
            (command, True)
            for command in AGENT_COMMANDS
            if command[-1] in ("plan", "list", "audit")
        ),
    ],
)
def test_a_command_that_fails_shows_none(
    command: tuple[str, ...], in_url: bool, tmp_path: Path
) -> None:
    config = written(tmp_path / "agent.conf", agent_groups(tmp_path, in_url=in_url))
    place = ("--config-file", str(config))
    program, *rest = command
    arguments = [*place, *rest] if program == "compute-scheduler" else [*rest, *place]
    done = programs.run(program, *arguments, timeout=100)
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout + done.stderr
    assert "usage:" not in done.stderr, done.stderr


def test_an_agent_writes_none_in_logs_dumps_and_state(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, "http://127.0.0.1:1")
    groups = agent_groups(tmp_path)
    groups["DEFAULT"].pop("compute_driver")
    agent.configure(**groups)
    agent.start()
    try:
        eventually(lambda: "cannot be reached" in agent.logged(), "a pass that failed")
        agent.send(signal.SIGUSR2)
        eventually(lambda: "compute-agent: end" in agent.logged(), "a dump")
        agent.configure(placement={"password": f"{PASSWORD}-new"})
        agent.send(signal.SIGHUP)
        eventually(lambda: "Reloaded; every node" in agent.logged(), "a reload")
        assert agent.stop() == 0
    finally:
        agent.cleanup()
    assert SECRET not in agent.logged()
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path


def test_a_scheduler_writes_none_in_logs_and_dumps(tmp_path: Path) -> None:
    groups = agent_groups(tmp_path)
    bus = groups["DEFAULT"].pop("transport_url")
    state = groups.pop("DEFAULT")
    file = written(tmp_path / "scheduler.conf", groups)
    lines = "".join(f"{name} = {value}\n" for name, value in state.items())
    file.write_text(lines + file.read_text())
    with service(file, bus=bus) as scheduler:
        scheduler.until("READY=1")
        scheduler.process.send_signal(signal.SIGUSR2)
        eventually(lambda: "compute-scheduler: end" in scheduler.logged(), "a dump")
        assert scheduler.stop() == 0
        assert SECRET not in scheduler.logged()


SERVER_SECRETS = {
    "profiler": {"enabled": "false", "hmac_keys": f"{SECRET}-hmac"},
    "keystone_authtoken": {
        **credentials("http://127.0.0.1:1"),
        "memcache_secret_key": f"{SECRET}-memcache",
        "memcache_password": f"{SECRET}-memcache",
    },
}
DATABASES = [
    "postgresql+psycopg://placement:{password}@127.0.0.1:{port}/placement",
    "mysql+pymysql://placement:{password}@127.0.0.1:{port}/placement",
    "postgresql+psycopg://placement:{password}@127.0.0.1:{port}/placement?sslmode=nonsense",
    "postgresql+psycopg://placement:{password}@127.0.0.1:nonsense/placement",
    "nonsense://placement:{password}@127.0.0.1:{port}/placement",
    "placement:{password}@127.0.0.1",
    "mysql+pymysql://placement:an@at:{password}@127.0.0.1/placement",
    "postgresql+psycopg://placement@127.0.0.1:{port}/placement?password={password}",
    "mysql+pymysql://placement@127.0.0.1:{port}/placement?ssl_key_password={password}",
]


@pytest.mark.parametrize("url", DATABASES)
def test_a_database_that_cannot_be_used_shows_none(url: str, tmp_path: Path) -> None:
    connection = url.format(password=PASSWORD, port=GONE)
    config = written(
        tmp_path / "placement.conf",
        {
            "DEFAULT": {"debug": "true"},
            "placement_database": {
                "connection": connection,
                "slave_connection": connection,
                "max_retries": 0,
            },
            **SERVER_SECRETS,
        },
    )
    commands = [("placement-server", "serve", "--port", "0")]
    if url == DATABASES[0]:
        commands += [
            ("placement-server", "serve", "--port", "0", "--database-url", connection),
            ("placement_server.cmd.manage", "db", "sync"),
            ("placement_server.cmd.status", "upgrade", "check"),
        ]
    for command in commands:
        done = programs.run(*command, "--config-file", str(config), timeout=100)
        assert done.returncode, command
        assert SECRET not in done.stdout + done.stderr, command
        assert "Traceback" not in done.stderr, (command, done.stderr)


def test_a_server_shows_none_while_keystone_is_away(tmp_path: Path) -> None:
    keystone = f"http://127.0.0.1:{GONE}/v3"
    lines = ["[DEFAULT]", "debug = true"]
    options = {**SERVER_SECRETS["keystone_authtoken"], "auth_url": keystone}
    options |= {"http_request_max_retries": "0", "www_authenticate_uri": keystone}
    lines += ["[keystone_authtoken]", *(f"{name} = {value}" for name, value in options.items())]
    lines += ["[placement_server]", "metrics_path = /metrics", "web_path = /-/web"]
    config = "\n".join(lines) + "\n"
    server = ServerProcess(tmp_path, "--workers", "1", "--auth-strategy", "keystone", config=config)
    answers = []
    for headers in (
        {"X-Auth-Token": f"{SECRET}-token"},
        {"X-Auth-Token": f"{SECRET}-token", "X-Service-Token": f"{SECRET}-service"},
        {"X-Auth-Token": f"{SECRET}-token", "Authorization": f"Bearer {SECRET}-bearer"},
    ):
        answers.append(requests.get(f"{server.url}/traits", headers=headers, timeout=100))
        assert answers[-1].status_code == 503
    answers += [requests.get(f"{server.url}{path}", timeout=30) for path in ("/metrics", "/-/web/")]
    server.exchange(b"GET /traits HTTP/1.1\r\nX-Auth-Token : " + SECRET.encode() + b"\r\n\r\n")
    assert server.stop() == 0
    for answer in answers:
        assert SECRET not in answer.text + str(answer.headers)
    assert SECRET not in server.output


def test_the_placement_command_shows_none(tmp_path: Path) -> None:
    url = with_credentials(GONE)
    environment = {
        "HOME": str(tmp_path),
        "OS_AUTH_URL": with_credentials(GONE, rest="/v3"),
        "OS_USERNAME": "user",
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_NAME": "p",
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }
    for arguments in (
        ("provider", "list"),
        ("--url", url, "--token", f"{SECRET}-token", "provider", "list"),
        ("--url", url, "--token", f"{SECRET}-token", "provider", "list", "--json"),
    ):
        done = programs.run("placement", *arguments, timeout=100, environment=environment)
        assert done.returncode, arguments
        assert SECRET not in done.stdout + done.stderr, arguments


REFUSED = [
    ("placement", "endpoint_override", "compute-agent plan"),
    ("placement", "auth_url", "compute-agent plan"),
    ("keystone_authtoken", "auth_url", "placement-server serve"),
    ("keystone_authtoken", "www_authenticate_uri", "placement-server serve"),
]
URLS = ["http://user:{secret}@127.0.0.1:1", "http://user:{secret}/x@[::1", "//u:{secret}@h"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(("group", "option", "command"), REFUSED)
def test_a_url_with_a_password_is_refused_by_name_of_its_option(
    group: str, option: str, command: str, url: str, tmp_path: Path
) -> None:
    options = {**credentials("http://127.0.0.1:1"), option: url.format(secret=SECRET)}
    database = {"placement_database": {"connection": f"sqlite:///{tmp_path}/x.db"}}
    config = written(tmp_path / "x.conf", {group: options, **database})
    done = programs.run(*command.split(), "--config-file", str(config), timeout=100)
    assert done.returncode
    assert f"[{group}]{option} has a user or a password in its URL" in done.stderr
    assert SECRET not in done.stdout + done.stderr


WITHOUT_A_SIGN = f"[{{group}}]\npassword {PASSWORD}\n"
INDENTED = f"[{{group}}]\n password = {PASSWORD}\n"


@pytest.mark.parametrize("text", [WITHOUT_A_SIGN, INDENTED])
@pytest.mark.parametrize(
    ("group", "command"),
    [
        ("placement", "compute-agent plan"),
        ("placement", "compute-agent doctor"),
        ("placement", "compute-scheduler status upgrade"),
        ("placement", "compute-manage host list"),
        ("keystone_authtoken", "placement-server serve"),
    ],
)
def test_a_line_that_is_not_an_option_is_not_quoted(
    text: str, group: str, command: str, tmp_path: Path
) -> None:
    config = tmp_path / "x.conf"
    config.write_text(text.format(group=group))
    program, *rest = command.split()
    place = ("--config-file", str(config))
    arguments = [*place, *rest] if program == "compute-scheduler" else [*rest, *place]
    done = programs.run(program, *arguments, timeout=100)
    assert done.returncode
    assert f"{config}:2" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("token", [f"{SECRET}-token\r\n", f" {SECRET}-token", f"{SECRET}\nx: y"])
def test_a_token_that_is_no_header_is_not_quoted(token: str, tmp_path: Path) -> None:
    arguments = ("--url", f"http://127.0.0.1:{GONE}", "--token", token, "provider", "list")
    environment = {"HOME": str(tmp_path)}
    done = programs.run("placement", *arguments, timeout=100, environment=environment)
    assert done.returncode
    assert SECRET not in done.stdout + done.stderr
    assert "X-Auth-Token" in done.stderr
