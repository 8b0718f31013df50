"""placement-server serve does not start, and tells why and what to do."""

import contextlib
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from placement_server.cmd import serve
from tests.fixtures import programs


def fails(tmp_path: Path, *arguments: str) -> str:
    """What a process tells when it does not start: never a traceback."""
    with contextlib.chdir(tmp_path):
        done = programs.run("placement-server", "serve", *arguments, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What the command tells in this process, for what goes wrong before the log is set up."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        assert serve.main(["serve", *arguments]) == 1
        return capsys.readouterr().err

    return run


def config(tmp_path: Path, text: str = "") -> str:
    path = tmp_path / "test.conf"
    path.write_text(
        f"[placement_database]\nconnection = sqlite:///{tmp_path}/p.db\nsync_on_startup = true\n"
        f"[api]\nauth_strategy = noauth2\n{text}"
    )
    return str(path)


def test_without_a_database_it_says_what_to_do(told: Callable[..., str]) -> None:
    text = told()
    assert text.startswith("placement-server: No database is configured.")
    assert "connection = " in text
    assert "--database-url sqlite:///" in text


def test_a_misspelt_group_is_named_with_what_it_made_go_wrong(
    tmp_path: Path, told: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "test.conf"
    file.write_text("[placement_databse]\nconnection = sqlite://\n")
    assert "No database is configured" in told("--config-file", str(file))
    assert "[placement_databse]" in caplog.text
    assert "probably [placement_database] is meant" in caplog.text


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = fails(tmp_path, "--config-file", config(tmp_path), "--port", str(port))
    assert text.splitlines()[-1] == (
        f"placement-server: Port {port} of 127.0.0.1 is in use by another process. Stop that "
        "process, or choose another port with --port (0 takes any free one)."
    )


def test_a_missing_or_broken_configuration_file_is_told(
    tmp_path: Path, told: Callable[..., str]
) -> None:
    missing = str(tmp_path / "missing.conf")
    assert told("--config-file", missing) == (
        f"placement-server: The configuration file {missing} does not exist or is not a file.\n"
    )
    broken = tmp_path / "broken.conf"
    broken.write_text("this is [no ini file\n")
    text = told("--config-file", str(broken))
    assert text.startswith("placement-server: The configuration is not valid: ")
    assert str(broken) in text


def _bomb(path: Path) -> None:
    """1,000 bytes that stand for ten to the power of nine values."""
    levels = [f"r{n}: &r{n} [{', '.join([f'*r{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join(["r0: &r0 x", *levels]))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 * 1024**3)


def _text(policy: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(policy)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (_sparse, "is larger than 1024 KiB"),
        (_bomb, "has more than 1000000 values"),
        (_text("a: [b\n"), ""),
        (_text("- a\n- b\n"), ""),
        (_text("just text\n"), ""),
    ],
)
def test_a_policy_file_that_is_none_or_has_no_end_is_told(
    tmp_path: Path, told: Callable[..., str], make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "policy.yaml"
    make(path)
    text = told("--config-file", config(tmp_path, f"[oslo_policy]\npolicy_file = {path}\n"))
    assert text.startswith(f"placement-server: The policy file {path} cannot be used: ")
    assert reason in text


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("rolle:admin", 'there is no check "rolle"'),
        ("not rolle:admin", 'there is no check "rolle"'),
        ("role:admin and (rule:admin_api or rule:nothing)", 'there is no rule "nothing"'),
        ("role:admin or", "that is not a policy expression"),
        ("admin", "that is not a policy expression"),
    ],
)
def test_a_rule_that_cannot_be_checked_is_reported_with_its_name(
    tmp_path: Path, rule: str, problem: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f'"placement:usages": "{rule}"\n')
    option = f"[oslo_policy]\npolicy_file = {path}\n"
    text = fails(tmp_path, "--config-file", config(tmp_path, option))
    assert (
        f"placement-server: The policy file {path} cannot be used: the rule "
        f'"placement:usages" is "{rule}", and {problem}'
    ) in text


KEYSTONE = ("--auth-strategy", "keystone")
LACKS = [
    ("", "[keystone_authtoken] lacks auth_type, auth_url, username or user_id, password."),
    (
        "auth_type = password\nusername = placement\npassword = x\n",
        "[keystone_authtoken] lacks auth_url.",
    ),
    (
        "auth_type = password\nauth_url = http://127.0.0.1/\nuser_id = u\n",
        "[keystone_authtoken] lacks password.",
    ),
    (
        "auth_type = v3applicationcredential\nauth_url = http://127.0.0.1/\n",
        "[keystone_authtoken] lacks application_credential_secret, "
        "application_credential_id or application_credential_name.",
    ),
    (
        "auth_section = elsewhere\n[elsewhere]\nauth_type = password\n",
        "[elsewhere] lacks auth_url, username or user_id, password.",
    ),
    ("auth_type = magic\n", "[keystone_authtoken]auth_type is magic"),
    (
        "memcached_servers = 127.0.0.1:1\n",
        "[keystone_authtoken]memcached_servers is set, and the library for it is not installed",
    ),
    (
        "memcached_servers = 127.0.0.1:1\nmemcache_sasl_enabled = true\n"
        "memcache_use_advanced_pool = false\n",
        "Install python-binary-memcached beside",
    ),
]


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("[placement]\nmax_allocation_candidates = many\n", (), "max_allocation_candidates"),
        ("[placement_server]\nsearch_deadline = -1\n", (), "search_deadline"),
        ("[DEFAULT]\nlog_options = perhaps\n", (), "log_options"),
        ("[api]\nauth_strategy = magic\n", (), "auth_strategy"),
        ("[DEFAULT]\nlog_file = nowhere/test.conf.log\n", (), "log_file = nowhere/test.conf.log"),
        ("", ("--tls-cert", "x"), "--tls-cert and --tls-key go together: give both or neither."),
        *((f"[keystone_authtoken]\n{options}", KEYSTONE, missing) for options, missing in LACKS),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(
    tmp_path: Path,
    told: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    arguments: tuple[str, ...],
    reason: str,
) -> None:
    for library in ("memcache", "bmemcached"):
        monkeypatch.setitem(sys.modules, library, None)
    sentence = told("--config-file", config(tmp_path, text), *arguments)
    assert sentence.startswith("placement-server: ")
    assert sentence.count("\n") == 1
    assert reason in sentence
    assert "LocationInfo" not in sentence
    assert arguments or "test.conf" in sentence


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("[api]\nauth_strategy = keystone\n", "[keystone_authtoken] lacks auth_type, auth_url"),
        ("[oslo_policy]\npolicy_file = {policy}\n", 'there is no check "rolle"'),
    ],
)
def test_under_another_http_server_it_does_not_start_either(
    tmp_path: Path, options: str, reason: str
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"placement:usages": "rolle:admin"\n')
    Path(config(tmp_path, options.format(policy=policy))).rename(tmp_path / "placement.conf")
    done = programs.run(
        "tests.functional.api.wsgi_start",
        environment={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 1
    assert re.search(rf"InvalidConfiguration: .*{re.escape(reason)}", done.stdout + done.stderr)


def test_a_database_that_is_not_up_to_date_is_told(tmp_path: Path) -> None:
    trial = ("--database-url", f"sqlite:///{tmp_path}/empty.db", "--auth-strategy", "noauth2")
    text = fails(tmp_path, *trial, "--port", "0")
    assert "placement-manage db sync" in text


def test_a_database_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    path = tmp_path / "test.conf"
    path.write_text(
        f"[placement_database]\nconnection = postgresql+psycopg://u:secret@127.0.0.1:{port}/p\n"
        "max_retries = 1\nretry_interval = 0\n[api]\nauth_strategy = noauth2\n"
    )
    text = fails(tmp_path, "--config-file", str(path), "--port", "0")
    assert "secret" not in text


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_not_shared_by_workers_and_that_is_told(
    url: str, tmp_path: Path
) -> None:
    text = fails(tmp_path, "--database-url", url, "--workers", "2", "--port", "0")
    assert "--workers 1" in text


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_a_usage_error(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.main(["serve", "--port", port])
    assert ended.value.code == 2
    assert "--port" in capsys.readouterr().err
