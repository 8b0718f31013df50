"""Options of placement.conf that nothing reads."""

from pathlib import Path

import pytest

from placement_server import conf as server_conf
from placement_server.conf import unread_options


def unread(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "placement.conf"
    file.write_text(text)
    lines = unread_options.unread_options(server_conf.new_config(config_files=[file]))
    return [line.replace(str(file), "FILE") for line in lines]


def test_misspelt_options_are_named_with_what_is_probably_meant(tmp_path: Path) -> None:
    text = "[placement_databse]\nconnection = x\n[placement_server]\nheathcheck_path = /h\nx = 1\n"
    assert unread(tmp_path, text) == [
        "group [placement_databse] in FILE, probably [placement_database] is meant",
        "[placement_server]heathcheck_path in FILE, probably healthcheck_path is meant",
        "[placement_server]x in FILE, which is not an option of this version",
    ]


def test_a_file_of_openstack_placement_has_none(tmp_path: Path) -> None:
    text = """
[DEFAULT]
debug = true
log_file = /var/log/placement.log
tempdir = /tmp
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:5000
auth_uri = http://127.0.0.1:5000
auth_url = http://127.0.0.1:5000
auth_type = password
memcached_servers = 127.0.0.1:11211
username = placement
user_domain_name = Default
password = secret
[placement_database]
connection = sqlite://
max_retries = -1
slave_connection = sqlite://
[placement]
incomplete_consumer_project_id = 00000000-0000-0000-0000-000000000000
[oslo_policy]
policy_file = policy.yaml
[oslo_messaging_notifications]
driver = noop
[cors]
allowed_origin = *
[profiler]
enabled = false
[nova]
region_name = here
"""
    assert unread(tmp_path, text) == []


def test_files_are_those_that_the_library_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "placement.conf.d"
    directory.mkdir()
    (directory / "10.conf").write_text("[Placement_Database]\nb = 1\n")
    (directory / ".#10.conf").symlink_to("nowhere")
    conf = server_conf.new_config(["--config-dir=~/placement.conf.d"])
    assert unread_options.unread_options(conf) == [
        f"[placement_database]b in {directory}/10.conf, which is not an option of this version"
    ]
