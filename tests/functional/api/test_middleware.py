"""The layers around the API: CORS, proxy headers, metrics and health."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from placement_server.middleware import monitoring
from placement_server.store.changes import snapshot
from placement_server.store.errors import StoreUnavailable
from placement_server.store.transaction import ReadTransaction
from tests.functional.agent.processes import eventually

from .conftest import MakeApi
from .wsgi_client import Client

RP = "/resource_providers"


CORS = {
    "cors__allowed_origin": ["http://valid.example.com"],
    "cors__allow_headers": ["openstack-api-version"],
}


def preflight(origin: str, method: str = "GET", headers: str | None = None) -> dict[str, str]:
    sent = {"Origin": origin, "Access-Control-Request-Method": method}
    if headers is not None:
        sent["Access-Control-Request-Headers"] = headers
    return sent


def test_a_preflight_is_answered_before_authentication(make_api: MakeApi) -> None:
    api = make_api(**CORS)
    answer = api(
        "OPTIONS",
        "/any/path",
        token=None,
        headers=preflight("http://valid.example.com", "PUT", "OpenStack-API-Version"),
    )
    assert answer.status == 200
    assert answer.body == b""
    assert answer.headers["access-control-allow-origin"] == "http://valid.example.com"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["access-control-max-age"] == "3600"
    assert answer.headers["access-control-allow-methods"] == "PUT"
    assert answer.headers["access-control-allow-headers"] == "OpenStack-API-Version"
    assert answer.headers["vary"] == "Origin"
    assert "openstack-api-version" not in answer.headers


@pytest.mark.parametrize(
    "sent",
    [
        preflight("http://invalid.example.com"),
        preflight("http://valid.example.com", "get"),
        preflight("http://valid.example.com", "HEAD"),
        preflight("http://valid.example.com", "GET", "X-Unknown"),
    ],
)
def test_a_preflight_that_is_not_allowed_is_200_without_the_headers(
    make_api: MakeApi, sent: dict[str, str]
) -> None:
    answer = make_api(**CORS)("OPTIONS", RP, token=None, headers=sent)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_answers_to_an_allowed_origin_have_cors_headers_errors_too(make_api: MakeApi) -> None:
    api = make_api(**CORS)
    origin = {"Origin": "http://valid.example.com"}
    for answer in (api.get(RP, headers=origin), api.get(RP, headers=origin, token=None)):
        assert answer.headers["access-control-allow-origin"] == "http://valid.example.com"
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "OpenStack-API-Version" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"].endswith("Origin")
    foreign = api.get(RP, headers={"Origin": "http://invalid.example.com"})
    assert foreign.status == 200
    assert not [name for name in foreign.headers if name.startswith("access-control-")]


def test_without_allowed_origin_options_is_an_ordinary_405(api: Client) -> None:
    answer = api("OPTIONS", RP, headers=preflight("http://valid.example.com"))
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


PROXIED = [
    ({"Forwarded": "proto=https;host=cloud.example.com;for=203.0.113.1"}, ""),
    (
        {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "cloud.example.com"},
        "",
    ),
    (
        {
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "cloud.example.com",
            "X-Forwarded-Prefix": "/placement",
        },
        "/placement",
    ),
]


@pytest.mark.parametrize(("headers", "prefix"), PROXIED)
def test_proxy_headers_count_when_switched_on(
    make_api: MakeApi, headers: dict[str, Any], prefix: str
) -> None:
    api = make_api(oslo_middleware__enable_proxy_headers_parsing=True)
    answer = api.put("/traits/CUSTOM_A", headers=headers)
    assert answer.headers["location"] == f"https://cloud.example.com{prefix}/traits/CUSTOM_A"


@pytest.mark.parametrize(("headers", "prefix"), PROXIED)
def test_proxy_headers_are_ignored_by_default(
    api: Client, headers: dict[str, Any], prefix: str
) -> None:
    answer = api.put("/traits/CUSTOM_A", headers=headers)
    assert answer.headers["location"] == "http://placement.example.org/traits/CUSTOM_A"


def test_metrics_and_health_are_served_only_at_the_paths_that_options_name(
    make_api: MakeApi,
) -> None:
    watched = make_api(
        placement_server__metrics_path="/-/metrics",
        placement_server__healthcheck_path="/-/healthy",
    )
    watched.get(RP)
    metrics = watched.get("/-/metrics", token=None)
    assert metrics.status == 200
    assert b'placement_http_requests_total{method="GET",route="/resource_providers"' in metrics.body
    assert watched.get("/-/healthy", token=None).status == 200
    plain = make_api()
    assert plain.get("/-/metrics", token=None).status == 401
    assert plain.get("/-/metrics").status == 404


@pytest.mark.parametrize(
    "options",
    [
        {"healthcheck__allowed_source_ranges": ["203.0.113.0/24"]},
        {"healthcheck__ignore_proxied_requests": True},
    ],
)
def test_to_clients_that_the_options_exclude_the_health_is_an_unknown_path(
    make_api: MakeApi, options: dict[str, Any]
) -> None:
    api = make_api(placement_server__healthcheck_path="/-/healthy", **options)
    headers = {"X-Forwarded-For": "198.51.100.1"}
    assert api.get("/-/healthy", token=None, headers=headers).status == 401
    assert api.get("/-/healthy", headers=headers).status == 404


def test_health_is_red_until_the_index_is_loaded_and_survives_a_failure_to_load_it(
    make_api: MakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_api(placement_server__healthcheck_path="/-/healthy")
    monkeypatch.setattr(monitoring, "LOADING_SECONDS", 0.05)
    go_on, loadings = threading.Event(), []

    def slow(tx: ReadTransaction) -> Sequence[Any]:
        loadings.append(tx)
        if len(loadings) == 1:
            raise StoreUnavailable("the database went away")
        go_on.wait(60)
        return provider_rows(tx)

    provider_rows = snapshot.provider_rows
    monkeypatch.setattr(snapshot, "provider_rows", slow)
    # The failure ends the first loading, and a later check begins another one.
    assert loadings == []
    eventually(
        lambda: api.get("/-/healthy", token=None).status == 503 and len(loadings) == 2,
        "it is loading again",
    )
    answer = api.get("/-/healthy", token=None, headers={"Accept": "application/json"})
    assert answer.status == 503
    assert answer.json["reasons"] == ["INDEX LOADING"]
    go_on.set()
    eventually(lambda: api.get("/-/healthy", token=None).status == 200, "it is healthy")
    assert len(loadings) == 2
