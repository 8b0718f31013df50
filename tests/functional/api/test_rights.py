"""Rights: every route for every role, scope and set of defaults, as the contract has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement_server.api.routes import ALL_ROUTES
from placement_server.policies.enforcer import list_rules
from placement_server.web import fleet

from .conftest import MakeApi
from .rights import OPERATIONS, PAGES, PROJECT, PUBLIC, Operation, Who, may
from .wsgi_client import EXTENDED, Answer, Client

ROLES = [
    frozenset(roles)
    for roles in (
        (),
        ("reader",),
        ("member",),
        ("member", "reader"),
        ("manager", "member", "reader"),
        ("admin",),
        ("admin", "manager", "member", "reader"),
        ("service",),
        ("admin", "service"),
        ("administrator", "services"),
    )
]
WIDER_SCOPES = (
    {"OpenStack-System-Scope": "all"},
    {"OpenStack-System-Scope": "all", "X-Project-Id": PROJECT},
    {"X-Domain-Id": "default"},
)


def ask(api: Client, operation: Operation, query: str, headers: dict[str, str]) -> Answer:
    return api(
        operation.method,
        operation.path + query,
        token=f"someone:{PROJECT}",
        version=EXTENDED,
        headers={"Content-Type": "application/json", **headers},
    )


def queries(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield the project that a request is about, with its query."""
    if operation.who is Who.READERS_OF_THE_PROJECT:
        yield from (
            (PROJECT, f"?project_id={PROJECT}"),
            ("other", "?project_id=other"),
            ("", ""),
        )
    else:
        yield PROJECT, ""


def test_the_table_has_every_method_of_every_route_and_every_rule() -> None:
    routes = [*ALL_ROUTES, *fleet.routes(PAGES).values()]
    served = {(method, route.template) for route in routes for method in route.methods}
    assert {(policy.method, policy.template) for policy in OPERATIONS} | set(PUBLIC) == served
    rules = {rule.name for rule in list_rules() if rule.name.startswith("placement:")}
    assert {operation.rule for operation in OPERATIONS} == rules


@pytest.mark.parametrize("new_defaults", [True, False])
def test_every_role_may_what_the_contract_lets_it_and_no_more(
    make_api: MakeApi, new_defaults: bool
) -> None:
    api = make_api(oslo_policy__enforce_new_defaults=new_defaults, placement_server__web_path=PAGES)
    for operation in OPERATIONS:
        for roles in ROLES:
            for project, query in queries(operation):
                answer = ask(api, operation, query, {"X-Roles": ",".join(sorted(roles))})
                case = f"{operation.method} {operation.path}{query} of {sorted(roles)}"
                if may(operation, roles, project=project, new_defaults=new_defaults):
                    assert answer.status not in (401, 403), case
                    assert answer.status < 500, case
                else:
                    assert answer.status == 403, case
                    assert answer.error["title"] == "Forbidden"
                    expected = f"Policy does not allow {operation.rule} to be performed."
                    assert answer.detail == expected, case


@pytest.mark.parametrize("new_defaults", [True, False])
def test_a_token_of_the_system_or_of_a_domain_may_nothing_whatever_its_roles(
    make_api: MakeApi, new_defaults: bool
) -> None:
    api = make_api(oslo_policy__enforce_new_defaults=new_defaults, placement_server__web_path=PAGES)
    for operation in OPERATIONS:
        for roles in ROLES:
            for scope in WIDER_SCOPES:
                for _, query in queries(operation):
                    headers = {"X-Roles": ",".join(sorted(roles)), **scope}
                    answer = ask(api, operation, query, headers)
                    assert answer.status == 403, (operation, roles, scope)
                    assert answer.detail == operation.rule


def test_without_a_token_there_is_the_version_document_and_nothing_else(make_api: MakeApi) -> None:
    api = make_api(placement_server__web_path=PAGES)
    assert api.get("/", token=None).status == 200
    for operation in OPERATIONS:
        headers = {"X-Roles": "admin", "X-User-Id": "admin"}
        answer = api(
            operation.method, operation.path, token=None, version=EXTENDED, headers=headers
        )
        assert answer.status == 401, operation
