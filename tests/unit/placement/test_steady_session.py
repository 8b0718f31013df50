"""The HTTP session of the keystone transport."""

import pytest

from compute_agent.placement.transports.keystone import SteadySession


def settings(session: SteadySession, url: str, verify: object = True) -> dict[str, object]:
    merged = session.merge_environment_settings(url, {}, None, verify, None)
    assert isinstance(merged, dict)
    return merged


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SteadySession:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "placement.example")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/site.pem")
    return SteadySession()


def test_a_proxy_of_the_environment_is_used_but_for_the_hosts_that_need_none(session):
    proxies = settings(session, "http://keystone.example/v3")["proxies"]
    assert dict(proxies)["http"] == "http://proxy.example:3128"
    assert not settings(session, "http://placement.example/")["proxies"]


def test_the_certificates_of_the_environment_are_used_unless_others_are_named(session):
    url = "http://placement.example/"
    assert settings(session, url)["verify"] == "/etc/ssl/site.pem"
    assert settings(session, url, "/etc/ssl/ours.pem")["verify"] == "/etc/ssl/ours.pem"
    assert settings(session, url, False)["verify"] is False


def test_the_environment_is_looked_at_once_per_server(session, monkeypatch):
    first = settings(session, "http://keystone.example/v3/auth")
    monkeypatch.delenv("http_proxy")
    assert settings(session, "http://keystone.example/other") == first
