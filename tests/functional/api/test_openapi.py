"""The OpenAPI document is current, complete, and what the server does fits it whatever is sent."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case

from placement_server import errors
from placement_server.api import routes
from placement_server.app import build_app
from placement_server.candidates.query import parser
from placement_server.conf import new_config
from placement_server.negotiation import extensions, microversion
from placement_server.negotiation.microversion import MAX
from placement_server.openapi.document import build, version_header
from placement_server.openapi.operations import OPERATIONS
from placement_server.openapi.parameters import IN_PATH, IN_QUERY
from placement_server.store.store import Store
from tools.openapi import TARGET, text


def headers(path: str) -> dict[str, str]:
    [route] = [route for route in routes.ALL_ROUTES if route.template == path]
    version = version_header(route, MAX)
    return {"X-Auth-Token": "admin", "OpenStack-API-Version": version}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> schemathesis.BaseSchema:
    """The document at the newest version, bound to a server in this process."""
    database: Path = tmp_path_factory.mktemp("openapi") / "placement.db"
    conf = new_config(args=["--config-file", str(_config(database))])
    loaded = schemathesis.openapi.from_dict(build())
    loaded.app = build_app(conf, Store.from_conf(conf))
    return loaded


def _config(database: Path) -> Path:
    path = database.with_suffix(".conf")
    path.write_text(
        f"[placement_database]\nconnection = sqlite:///{database}\nsync_on_startup = true\n"
        "sqlite_synchronous = false\n"
        "[api]\nauth_strategy = noauth2\n[oslo_policy]\nenforce_new_defaults = false\n"
    )
    return path


def test_the_committed_document_is_the_one_the_code_makes() -> None:
    assert TARGET.read_text() == text(), "run: python -m tools.openapi"


def test_every_route_and_no_other_is_described() -> None:
    routed = {(method, route.template) for route in routes.ALL_ROUTES for method in route.methods}
    assert set(OPERATIONS) == routed


@pytest.mark.parametrize("minor", [0, 1, 7, 12, 24, 30, 39])
def test_the_document_of_a_version_has_the_routes_of_that_version(minor: int) -> None:
    documented = {
        (method.upper(), path)
        for path, methods in build((1, minor))["paths"].items()
        for method in methods
    }
    expected = {
        (method, route.template)
        for route in routes.ALL_ROUTES
        for method, endpoint in route.methods.items()
        if endpoint.since <= minor
    }
    assert documented == expected


def test_every_parameter_is_described_with_an_example() -> None:
    described = {
        name
        for methods in build()["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
        for name in [parameter["name"]]
        if parameter["description"] and (parameter["in"] == "header" or parameter["example"])
    }
    named = {
        parameter["name"]
        for methods in build()["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
    }
    assert described == named
    assert {*IN_PATH, *IN_QUERY} <= named


def test_every_error_has_an_example_of_the_server_and_so_has_every_code() -> None:
    document = json.loads(text())
    examples = document["components"]["examples"]
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if status >= "400" and status != "401":
                    shown = response["content"]["application/json"]["examples"]
                    entries = [examples[name]["value"]["errors"][0] for name in shown]
                    assert {entry["status"] for entry in entries} == {int(status)}
    codes = {example["value"]["errors"][0].get("code") for example in examples.values()}
    known = [value for module in (errors, parser) for value in vars(module).values()]
    assert codes - {None} == {
        value for value in known if isinstance(value, str) and value.startswith("placement.")
    }


def test_the_page_of_microversions_has_each_with_what_it_brought() -> None:
    page = (TARGET.parent / "microversions.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| 1.", "| placement-ext"))]
    assert rows == [
        *(f"| 1.{minor} | {text} |" for minor, text in enumerate(microversion.HISTORY)),
        *(f"| placement-ext 1.{minor} | {t} |" for minor, t in enumerate(extensions.HISTORY)),
    ]


def check(response: Response, documented: Iterable[str]) -> None:
    """No 500, no error outside the error format, no status that is not documented."""
    assert response.status_code < 500, response.text
    # A path whose segments came out odd is another path; a method or path may not exist there.
    assert str(response.status_code) in {*documented, "404", "405"}, response.text
    if response.status_code == 401:
        # An authentication filter answers in a form of its own.
        assert response.json()
    elif response.status_code >= 400:
        entry = response.json()["errors"][0]
        assert entry["status"] == response.status_code
        assert entry["detail"]
        # What was sent may have spoiled the version header too.
        if "placement 1.39" in str(response.headers.get("openstack-api-version")):
            assert entry["code"].startswith("placement.")


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), sorted(OPERATIONS))
def test_whatever_is_sent_the_answer_is_a_documented_one(
    schema: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schema[path][method]
    documented = build()["paths"][path][method.lower()]["responses"]

    @settings(
        max_examples=10,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case[Any]) -> None:
        if str((case.query or {}).get("wait", "")).isdecimal():
            # it would wait, up to a minute, for a change that nobody makes
            case.query["wait"] = 0
        check(case.call(headers=headers(path)), documented)

    send()
