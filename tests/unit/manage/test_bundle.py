"""Configurations in a bundle, without their secrets."""

import pytest

from compute_agent.cmd.manage.bundle import without_secrets

SECRET = "Pl4nted"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a = b\n", "a = b"),
        ("# password = Pl4nted\n\n; more Pl4nted\n[g]", "[g]"),
        ("password = Pl4nted", "password = ***"),
        ("  admin_password=Pl4nted", "  admin_password = ***"),
        ("memcache_secret_key: Pl4nted", "memcache_secret_key = ***"),
        ("password =\n  Pl4nted\n  Pl4nted\nuser = u", "password = ***\nuser = u"),
        (
            "transport_url = rabbit://u:Pl4nted@a:1,u:Pl4nted@b:2//",
            "transport_url = rabbit://***@b:2//",
        ),
        (
            "connection = mysql+pymysql://u:Pl4n/ted:Pl4nted@db/p",
            "connection = mysql+pymysql://***@db/p",
        ),
        (
            "transport_url = rabbit://u:Pl4nted@a:1, u:Pl4nted@b:2,\n  u:Pl4nted@c:3/\na = b",
            "transport_url = rabbit://***@b:2,\n  ***@c:3/\na = b",
        ),
        ("transport_url = rabbit://u:Pl4nted Pl4nted@a:1/", "transport_url = rabbit://***@a:1/"),
        ("password = a\x0cPl4nted\x85Pl4nted\u2028Pl4nted", "password = ***"),
        # which takes hours where the time goes with the square of the length
        ("hosts = " + 100_000 * "a:", "hosts = " + 100_000 * "a:"),
        (
            "connection = postgresql://db/p?user=u&password=Pl4nted",
            "connection = postgresql://db/p?user=u&password = ***",
        ),
        ("passwd = Pl4nted\nuser_pass = Pl4nted", "passwd = ***\nuser_pass = ***"),
        (
            "a:\n  auth: {user: u, password: Pl4nted}\n  b: c",
            "a:\n  auth: {user: u, password = ***\n  b: c",
        ),
        (
            "- password: |\n    Pl4nted\n  user: u\n- 'token': Pl4nted",
            "- password = ***\n  user: u\n- 'token = ***",
        ),
        (
            '{\n  "password": "Pl4nted",\n  "keys": [\n    "Pl4nted"\n  ],\n  "a": 1\n}',
            '{\n  "password = ***\n  "keys = ***\n  ],\n  "a": 1\n}',
        ),
        ("endpoint_override = http://placement:8778", "endpoint_override = http://placement:8778"),
        ("application_credential_secret = Pl4nted", "application_credential_secret = ***"),
        ("hosts = a\n   b", "hosts = a\n   b"),
    ],
)
def test_a_configuration_has_no_secrets_and_all_else(text: str, shown: str) -> None:
    assert without_secrets(text).rstrip("\n") == shown
    assert SECRET not in without_secrets(text)
