"""Configurations in a bundle, without their secrets."""

import pytest

from compute_agent.manage.bundle import without_secrets

SECRET = "Pl4nted"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a = b\n", "a = b"),
        ("# password = Pl4nted\n\n; more Pl4nted\n[g]", "[g]"),
        ("password = Pl4nted", "password = ***"),
        ("  admin_password=Pl4nted", "admin_password = ***"),
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
        ("endpoint_override = http://placement:8778", "endpoint_override = http://placement:8778"),
        ("application_credential_secret = Pl4nted", "application_credential_secret = ***"),
        ("hosts = a\n   b", "hosts = a\n   b"),
    ],
)
def test_a_configuration_has_no_secrets_and_all_else(text: str, shown: str) -> None:
    assert without_secrets(text).rstrip("\n") == shown
    assert SECRET not in without_secrets(text)
