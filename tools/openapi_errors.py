"""Errors of the API as examples: answers of the server itself to requests that are wrong."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from requests import Response

from placement_server.conf import new_config
from placement_server.direct import DirectSession, direct

HOST, CELL, OTHER, CONSUMER = (f"{n}1111111-0000-4000-8000-00000000000{n}" for n in range(1, 5))
REQUEST_ID: Final = "req-00000000-0000-0000-0000-000000000000"
_PROVIDER: Final = f"/resource_providers/{HOST}"
_VCPU: Final = {"VCPU": {"total": 8}}
_EXTENDED: Final = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
_TWICE: Final = "root_required=CUSTOM_A&root_required=CUSTOM_B"
_SLOW: Final = "&".join(f"resources{number}=VGPU:{34 + number}" for number in range(15))


class Mistake(NamedTuple):
    """A request that the server refuses."""

    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}


def _claim(amount: int) -> Mapping[str, Any]:
    return {
        "allocations": {HOST: {"resources": {"VCPU": amount}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
    }


_RESHAPE: Final = {
    "inventories": {OTHER: {"resource_provider_generation": 0, "inventories": {}}},
    "allocations": {},
}
_MISTAKES: Final = (
    Mistake("no such field", "POST", "/resource_providers", {"title": "host1"}),
    Mistake("malformed value", "GET", "/allocation_candidates?resources=VCPU:2&limit=few"),
    Mistake("missing value", "GET", "/allocation_candidates?required=HW_CPU_X86_VMX"),
    Mistake("bad value", "GET", "/allocation_candidates?resources_A=VCPU:2&same_subtree=_A,_B"),
    Mistake("repeated key", "GET", f"/allocation_candidates?resources=VCPU:1&{_TWICE}"),
    Mistake("unknown provider", "POST", "/reshaper", _RESHAPE),
    Mistake("unknown provider", "GET", f"/resource_providers/{OTHER}"),
    Mistake(
        "policy",
        "POST",
        "/resource_providers",
        {"name": "x"},
        {"X-Roles": "reader"},
    ),
    Mistake(
        *("unknown version", "GET", "/resource_providers", None),
        {"OpenStack-API-Version": "placement 1.99"},
    ),
    Mistake(
        *("later version", "DELETE", f"{_PROVIDER}/inventories", None),
        {"OpenStack-API-Version": "placement 1.4"},
    ),
    Mistake("name is taken", "POST", "/resource_providers", {"name": "host1"}),
    Mistake("has children", "DELETE", _PROVIDER),
    Mistake("is in use", "DELETE", f"/resource_providers/{CELL}"),
    Mistake("is in use", "DELETE", f"/resource_providers/{CELL}/inventories"),
    Mistake("is in use", "DELETE", f"/resource_providers/{CELL}/inventories/VCPU"),
    Mistake(
        *("generation has moved", "PUT", f"{_PROVIDER}/inventories"),
        {"resource_provider_generation": 99, "inventories": _VCPU},
    ),
    Mistake("generation has moved", "PUT", f"/allocations/{CONSUMER}", _claim(1)),
    Mistake("too little is free", "PUT", f"/allocations/{OTHER}", _claim(9)),
    Mistake("changes are deleted", "GET", "/changes?after=1000000", None, _EXTENDED),
    Mistake(*("not JSON", "POST", "/resource_providers", "name=x"), {"Content-Type": "text/plain"}),
    Mistake("takes too long", "GET", f"/capacity?{_SLOW}&group_policy=none", None, _EXTENDED),
)


def add_errors(document: dict[str, Any]) -> None:
    """Give each error of each operation an example: its own, or that of another operation."""
    operations = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    examples = document["components"]["examples"] = {}
    own: dict[tuple[str, str, str], list[str]] = {}
    of_status: dict[str, str] = {}
    for mistake, answer in _answers():
        status, template = str(answer.status_code), _template(document["paths"], mistake.path)
        name = re.sub(r"\W+", "-", f"{status} {mistake.name} {mistake.method} {template}").strip(
            "-"
        )
        path = mistake.path if len(mistake.path) < 100 else f"{mistake.path[:60]}..."
        body = answer.json()
        body["errors"][0]["request_id"] = REQUEST_ID
        summary = f"{mistake.name}: {mistake.method} {path}"
        examples[name] = {"summary": summary, "value": body}
        own.setdefault((mistake.method, template, status), []).append(name)
        of_status.setdefault(status, name)
    for (method, template), operation in operations.items():
        for status, response in operation["responses"].items():
            if "#/components/schemas/Error" in str(response):
                names = own.get((method, template, status), [of_status[status]])
                response["content"]["application/json"]["examples"] = {
                    name: {"$ref": f"#/components/examples/{name}"} for name in names
                }


def _template(paths: Mapping[str, Any], path: str) -> str:
    """Return the path of the operation that a request is for."""
    parts = path.partition("?")[0]
    for template in paths:
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), parts):
            return template
    raise ValueError(f"no operation has the path {path}")


def _answers() -> Iterator[tuple[Mistake, Response]]:
    """Yield the answer to each mistake, and that to one wait too many."""
    with _server() as ask:
        for mistake in _MISTAKES:
            method, path, body = mistake.method, mistake.path, mistake.body
            content = {"data": body} if isinstance(body, str) else {"json": body}
            answer = ask.request(method, path, headers=dict(mistake.headers), **content)
            if answer.status_code < 400:
                raise ValueError(f"{mistake.name} was answered {answer.status_code}")
            yield mistake, answer
        last = ask.get("/changes", headers=_EXTENDED).json()["last"]
        wait = Mistake("too many wait", "GET", f"/changes?after={last}&wait=1", None, _EXTENDED)
        with ThreadPoolExecutor(2) as pool:
            requests = [pool.submit(ask.get, wait.path, headers=_EXTENDED) for _ in range(2)]
        (answer,) = [r.result() for r in requests if r.result().status_code >= 400]
        yield wait, answer


@contextmanager
def _server() -> Iterator[DirectSession]:
    """A server with a host, a cell of it that is in use, and many ways to place devices."""
    with tempfile.TemporaryDirectory() as directory:
        conf = new_config(config_files=[])
        for group, name, value in (
            ("placement_database", "connection", f"sqlite:///{Path(directory) / 'placement.db'}"),
            ("placement_database", "sync_on_startup", True),
            ("placement_database", "sqlite_synchronous", False),
            ("placement_server", "max_watchers", 1),
            ("placement_server", "search_deadline", 0.1),
        ):
            conf.set_override(name, value, group=group)
        with direct(conf, latest_microversion=True) as ask:

            def must(method: str, path: str, body: Any) -> None:
                ask.request(method, path, json=body).raise_for_status()

            def new_provider(uuid: str, name: str, inventories: Any, parent: str | None) -> None:
                provider = {"uuid": uuid, "name": name, "parent_provider_uuid": parent}
                must("POST", "/resource_providers", provider)
                stock = {"resource_provider_generation": 0, "inventories": inventories}
                must("PUT", f"/resource_providers/{uuid}/inventories", stock)

            new_provider(HOST, "host1", _VCPU, None)
            new_provider(CELL, "host1_NUMA0", _VCPU, HOST)
            for number in range(7):
                gpu = f"51111111-0000-4000-8000-00000000000{number}"
                new_provider(gpu, f"host1_GPU{number}", {"VGPU": {"total": 95 + number}}, HOST)
            allocations = {CELL: {"resources": {"VCPU": 1}}}
            must("PUT", f"/allocations/{CONSUMER}", {**_claim(1), "allocations": allocations})
            yield ask
