"""Short reasons of connections to placement that failed."""

from pathlib import Path

import pytest
from keystoneauth1 import exceptions

from compute_agent.conf import new_config
from compute_agent.errors import PlacementAPIConnectFailure, PlacementUnauthorized
from compute_agent.placement.transports.keystone import KeystoneTransport, short_reason
from compute_agent.placement.transports.transport import Request


def test_a_refused_connection_is_named_with_what_to_check() -> None:
    transport = KeystoneTransport.to_endpoint("http://127.0.0.1:1")
    with pytest.raises(PlacementAPIConnectFailure) as raised:
        transport.send(Request("GET", "/", (1, 0)))
    assert str(raised.value) == (
        "GET / got no answer: Unable to establish connection to http://127.0.0.1:1/: "
        "Connection refused. Check that a server answers there, and the URL and the token"
    )


def asked_with(tmp_path: Path, auth_url: str) -> None:
    file = tmp_path / "compute-agent.conf"
    file.write_text(
        f"[placement]\nauth_type = password\nauth_url = {auth_url}\nusername = u\n"
        "password = p\nuser_domain_name = Default\nendpoint_override = http://127.0.0.1:1\n"
    )
    conf = new_config([f"--config-file={file}"], default_config_dirs=[])
    KeystoneTransport.from_conf(conf).send(Request("GET", "/", (1, 0)))


@pytest.mark.parametrize("path", ["", "/identity", "/v3"])
def test_a_keystone_that_is_away_is_waited_for_whatever_its_url_names(
    tmp_path: Path, path: str
) -> None:
    with pytest.raises(PlacementAPIConnectFailure, match=r"Connection refused\. Check"):
        asked_with(tmp_path, f"http://127.0.0.1:1{path}")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/identity", "htp://127.0.0.1/identity"])
def test_a_url_of_keystone_that_cannot_be_read_is_not_waited_for(tmp_path: Path, url: str) -> None:
    with pytest.raises(PlacementUnauthorized, match=r"\[placement\]auth_url is 'ht"):
        asked_with(tmp_path, url)


def test_a_certificate_that_is_refused_is_one_short_sentence() -> None:
    error = exceptions.ConnectFailure(
        "SSL exception connecting to https://a/v3: HTTPSConnectionPool(host='a', port=443): Max "
        "retries exceeded with url: /v3 (Caused by SSLError(SSLCertVerificationError(1, '[SSL: "
        "CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired "
        "(_ssl.c:1006)')))"
    )
    assert short_reason(error) == (
        "SSL exception connecting to https://a/v3: certificate verify failed: certificate has "
        "expired"
    )


def test_a_certificate_that_is_refused_is_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = KeystoneTransport.to_endpoint("https://a")
    error = exceptions.SSLError("connecting to https://a/: certificate verify failed: expired (x)")

    def refuse(*_arguments: object, **_keywords: object) -> None:
        raise error

    monkeypatch.setattr("keystoneauth1.adapter.Adapter.request", refuse)
    with pytest.raises(PlacementAPIConnectFailure, match=r"expired\. Check its certificate, and"):
        transport.send(Request("GET", "/", (1, 0)))


def test_other_failures_keep_their_text() -> None:
    error = exceptions.ConnectFailure("Request to http://a timed out")
    assert short_reason(error) == "Request to http://a timed out"
