"""[profiler]: traces by osprofiler, and what happens without it."""

from __future__ import annotations

import logging
import sys
from typing import Any, ClassVar

import osprofiler.notifier
import osprofiler.web
import pytest
from osprofiler import _utils as signing
from osprofiler.drivers.base import Driver

from placement_server.conf import new_config

from .conftest import MakeApi
from .wsgi_client import Client

KEY = "secret"
TRACE = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"


@pytest.fixture(autouse=True)
def _osprofiler_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its switches are global."""
    monkeypatch.setattr(Kept, "points", [])
    for name in ("_ENABLED", "_HMAC_KEYS"):
        monkeypatch.setattr(osprofiler.web, name, getattr(osprofiler.web, name))
    for name in [variable for variable in vars(osprofiler.notifier) if "notifier" in variable]:
        monkeypatch.setattr(osprofiler.notifier, name, getattr(osprofiler.notifier, name))


class Kept(Driver):  # type: ignore[misc]
    """A place for traces, chosen by ``kept://``."""

    points: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def get_name(cls) -> str:
        return "kept"

    def notify(self, info: dict[str, Any], **kwargs: Any) -> None:
        self.points.append(info)


def traced_api(make_api: MakeApi, **more: object) -> Client:
    options = {"enabled": True, "hmac_keys": KEY, "connection_string": "kept://", **more}
    return make_api(**{f"profiler__{name}": value for name, value in options.items()})


def traces() -> list[str]:
    """The names of what was traced, in order."""
    return [point["name"] for point in Kept.points if point["base_id"] == TRACE]


def signed(key: str) -> dict[str, str]:
    info, mac = signing.signed_pack({"base_id": TRACE, "parent_id": TRACE}, key)
    return {
        "X-Trace-Info": info.decode() if isinstance(info, bytes) else info,
        "X-Trace-HMAC": mac,
    }


def test_a_request_with_a_signed_trace_is_traced(make_api: MakeApi) -> None:
    api = traced_api(make_api)
    answer = api.get("/resource_classes", headers=signed(KEY))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert traces() == ["wsgi-start", "wsgi-stop"]


def test_its_sql_is_traced_when_that_is_asked_for(make_api: MakeApi) -> None:
    api = traced_api(make_api, trace_sqlalchemy=True)
    api.post("/resource_providers", {"name": "host"}, headers=signed(KEY))
    told = traces()
    assert (told[0], told[-1]) == ("wsgi-start", "wsgi-stop")
    assert told.count("db-start") == told.count("db-stop") > 1


@pytest.mark.parametrize("headers", [{}, signed("another key"), {"X-Trace-Info": "nonsense"}])
def test_a_request_without_a_good_signature_is_not_traced(
    make_api: MakeApi, headers: dict[str, str]
) -> None:
    api = traced_api(make_api)
    assert api.get("/resource_classes", headers=headers).status == 200
    assert traces() == []


def test_traced_answers_are_those_of_others(make_api: MakeApi) -> None:
    api = traced_api(make_api)
    for method, url, headers in (
        ("GET", "/nowhere", {}),
        ("HEAD", "/traits", {}),
        ("PUT", "/traits/CUSTOM_X", {}),
        ("GET", "/traits", {"Content-Length": "hi mom"}),
        ("GET", "/traits", {"Accept": "text/html"}),
    ):
        plain = api(method, url, headers=headers)
        traced = api(method, url, headers={**headers, **signed(KEY)})
        different = {"x-openstack-request-id", "last-modified", "content-length"}
        assert traced.status in (plain.status, 204)
        assert {name: value for name, value in traced.headers.items() if name not in different} == {
            name: value for name, value in plain.headers.items() if name not in different
        }


def test_by_default_nothing_is_traced(make_api: MakeApi) -> None:
    api = make_api(profiler__connection_string="kept://")
    api.get("/resource_classes", headers=signed(KEY))
    assert traces() == []


def test_without_osprofiler_the_server_says_so_and_serves(
    make_api: MakeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "osprofiler"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "osprofiler", None)
    assert new_config(config_files=[]).profiler.enabled is False
    with caplog.at_level(logging.WARNING):
        api = make_api(profiler__enabled=True)
    assert api.get("/resource_classes", headers={"X-Trace-Info": "x"}).status == 200
    (warning,) = [
        record.getMessage()
        for record in caplog.records
        if "profiler" in record.name + record.getMessage()
    ]
    assert "pip install 'compute-agent[profiler]'" in warning
