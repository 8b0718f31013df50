"""Authorisation: strategies, identities, overrides of rules; the rights are in test_rights.py."""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from placement_server.api.request import TAKE_TURN_KEY, TURN_KEY
from placement_server.conf import InvalidConfiguration, new_config
from placement_server.errors import Forbidden
from placement_server.policies import enforcer
from placement_server.policies.enforcer import list_rules
from tests.fixtures.stub_server import StubHandler, StubServer

from .conftest import MakeApi
from .rights import OPERATIONS
from .wsgi_client import EXTENDED, Answer, Client


def ask(api: Client, method: str, path: str, roles: str, **kwargs: Any) -> Answer:
    headers = {"X-Roles": roles, "Content-Type": "application/json", **kwargs.pop("headers", {})}
    return api(method, path, token="someone:project", version=EXTENDED, headers=headers, **kwargs)


@pytest.mark.parametrize("roles", ["SERVICE", " Service , x", "x,service "])
def test_names_of_roles_are_compared_without_case_and_spaces(make_api: MakeApi, roles: str) -> None:
    api = make_api(oslo_policy__enforce_new_defaults=True)
    assert ask(api, "POST", "/reshaper", roles).status == 400


def test_without_the_project_a_reader_gets_403_and_an_admin_400(make_api: MakeApi) -> None:
    api = make_api(oslo_policy__enforce_new_defaults=True)
    assert ask(api, "GET", "/usages", "reader").status == 403
    answer = ask(api, "GET", "/usages", "admin")
    assert answer.status == 400
    assert "'project_id' is a required property" in answer.detail


def test_the_user_admin_has_the_role_only_when_no_roles_are_sent(api: Client) -> None:
    assert api.get("/traits", token="admin").status == 200
    assert api.get("/traits", token="admin:project").status == 200
    assert api.get("/traits", token="administrator").status == 403
    assert api.get("/traits", token="admin", headers={"X-Roles": "member"}).status == 403


def test_the_project_is_the_tokens_or_the_headers_or_the_users(make_api: MakeApi) -> None:
    api = make_api(oslo_policy__enforce_new_defaults=True)

    def status(token: str, project: str, **headers: str) -> int:
        return api.get(
            f"/usages?project_id={project}", token=token, headers={"X-Roles": "reader", **headers}
        ).status

    assert status("user:mine", "mine") == 200
    assert status("user", "user") == 200
    assert status("user:mine", "theirs", **{"X-Project-Id": "theirs"}) == 200
    assert status("user:mine", "mine", **{"X-Project-Id": "theirs"}) == 403


def test_rules_overridden_in_the_policy_file_let_anybody_in(make_api: MakeApi) -> None:
    names = [rule.name for rule in list_rules() if rule.name != "admin_api"]
    open_policy = "\n".join(f'"{name}": "@"' for name in names)
    api = make_api(policy=open_policy, oslo_policy__enforce_new_defaults=True)
    for operation in OPERATIONS:
        assert ask(api, operation.method, operation.path, "").status != 403
        scoped = ask(
            api, operation.method, operation.path, "", headers={"OpenStack-System-Scope": "all"}
        )
        assert scoped.status == 403


def test_a_rule_may_compare_the_roles_of_the_token_of_a_service_beside_the_users(
    make_api: MakeApi,
) -> None:
    api = make_api(policy='"placement:traits:list": "role:member and service_roles:service"\n')
    assert ask(api, "GET", "/traits", "member").status == 403
    for roles, status in (("admin,service", 200), ("services", 403)):
        headers = {"X-Service-Roles": roles}
        assert ask(api, "GET", "/traits", "member", headers=headers).status == status


def test_the_legacy_check_is_not_added_to_a_rule_that_the_operator_overrides(
    make_api: MakeApi,
) -> None:
    api = make_api(policy='"service_api": "role:robot"', oslo_policy__enforce_new_defaults=False)
    assert ask(api, "POST", "/reshaper", "admin").status == 403
    assert ask(api, "POST", "/reshaper", "robot").status == 400


def test_401_without_a_token_has_a_flat_body(api: Client) -> None:
    answer = api.get("/traits", token=None)
    assert answer.status == 401
    body = json.loads(answer.body)
    assert body["code"] == "401 Unauthorized"
    assert body["title"] == "Unauthorized"
    assert body["message"]


def test_an_unknown_path_is_404_not_403_for_a_caller_without_rights(api: Client) -> None:
    assert api.get("/nowhere", token="user").status == 404


@pytest.fixture
def keystone_api(make_api: MakeApi) -> Client:
    # The kind of credentials that has no option that must be there.
    return make_api(
        api__auth_strategy="keystone",
        keystone_authtoken__auth_type="none",
        keystone_authtoken__www_authenticate_uri="http://keystone.example.org",
    )


def test_keystone_refuses_without_a_token_and_says_where_to_get_one(keystone_api: Client) -> None:
    answer = keystone_api.get("/traits", token=None)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == ('Keystone uri="http://keystone.example.org"')
    assert answer.json == {
        "error": {
            "code": 401,
            "title": "Unauthorized",
            "message": "The request you have made requires authentication.",
        }
    }
    assert "x-openstack-request-id" in answer.headers


def test_keystone_is_not_asked_for_the_version_document(keystone_api: Client) -> None:
    assert keystone_api.get("/", token=None).status == 200
    assert keystone_api.get("", token=None).status == 200


def test_keystone_strips_identities_that_a_client_claims(keystone_api: Client) -> None:
    claimed = {"X-User-Id": "me", "X-Roles": "admin", "X-Identity-Status": "Confirmed"}
    assert keystone_api.get("/traits", token=None, headers=claimed).status == 401


def test_a_policy_file_that_breaks_while_it_is_in_use_leaves_the_rules_as_they_were(
    make_api: MakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = make_api(policy='"placement:traits:list": "role:gardener"\n')
    (policy_file,) = tmp_path.glob("policy-*.yaml")
    assert ask(api, "GET", "/traits", "gardener").status == 200
    policy_file.write_text('"placement:traits:list": [role: : \n')
    os.utime(policy_file, (time.time() + 10,) * 2)
    assert ask(api, "GET", "/traits", "gardener").status == 200
    assert ask(api, "GET", "/traits", "reader").status == 403
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == [
        "placement_server.policies.enforcer"
    ]
    policy_file.write_text('"placement:traits:list": "role:reader"\n')
    os.utime(policy_file, (time.time() + 20,) * 2)
    assert ask(api, "GET", "/traits", "gardener").status == 403
    assert ask(api, "GET", "/traits", "reader").status == 200
    caplog.clear()
    policy_file.write_text('"placement:traits:list": [role: : \n')
    os.utime(policy_file, (time.time() + 30,) * 2)
    for _ in range(2):
        assert ask(api, "GET", "/traits", "reader").status == 200
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


LIST = "placement:traits:list"
UNUSABLE = [
    (f'"{LIST}": "rule:{LIST}"', f"in a circle: {LIST} -> {LIST}"),
    (f'"{LIST}": "rule:b"\nb: "role:x or not rule:{LIST}"', f"{LIST} -> b -> {LIST}"),
    (f'"{LIST}": "rule:gone"\ndefault: "rule:gone"', "default -> default"),
    (f'"{LIST}": "{"not " * 120}role:x"', "more than 100 checks and rules deep"),
    (f'"{LIST}": "role:y or {"not " * 120}role:x"', "more than 100 checks and rules deep"),
    (
        f'"{LIST}": "rule:r0"\n'
        + "".join(f'r{n}: "rule:r{n + 1}"\n' for n in range(3000))
        + 'r3000: "@"',
        "deep",
    ),
    (f'"{LIST}": "project_id:%(x"', "cannot be filled in (incomplete format key)"),
    (f'"{LIST}": "role:100%"', "cannot be filled in"),
    (f'"{LIST}": "user_id:%(user_id)d"', "cannot be filled in"),
    (f'"{LIST}": "http://127.0.0.1/%(host)s"', "needs host"),
    (f'"{LIST}": "user_id.name:x"', 'there is no check "user_id.name"'),
    (f'"{LIST}": "user_id.1x:x"', 'there is no check "user_id.1x"'),
]


@pytest.mark.parametrize(("text", "problem"), UNUSABLE)
def test_rules_that_cannot_be_evaluated_are_refused(
    make_api: MakeApi, text: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        make_api(policy=text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(("text", "problem"), UNUSABLE)
def test_the_old_rules_stay_where_the_new_ones_cannot_be_evaluated(
    make_api: MakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, problem: str
) -> None:
    api = make_api(policy=f'"{LIST}": "role:gardener"\n')
    (policy_file,) = tmp_path.glob("policy-*.yaml")
    policy_file.write_text(text)
    os.utime(policy_file, (time.time() + 10,) * 2)
    assert ask(api, "GET", "/traits", "gardener").status == 200
    assert ask(api, "GET", "/traits", "reader").status == 403
    (message,) = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name.startswith("placement_server")
    ]
    assert problem in message


def test_rules_with_percent_signs_and_constants_are_used(make_api: MakeApi) -> None:
    text = f"'{LIST}': \"'100%%':100%% or token.user.id:%(user_id)s\"\n"
    api = make_api(policy=text)
    assert ask(api, "GET", "/traits", "reader").status == 403
    api = make_api(policy=f"'{LIST}': \"'100%':100%%\"\n")
    assert ask(api, "GET", "/traits", "reader").status == 200
    api = make_api(policy=f"'{LIST}': 'user_id:%(instance.user)s or role:gardener'\n")
    assert ask(api, "GET", "/traits", "gardener").status == 200
    assert ask(api, "GET", "/traits", "reader").status == 403


def test_decisions_are_remembered_for_so_many_questions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enforcer, "DECISIONS_KEPT", 3)
    rules = enforcer.Enforcer(new_config(config_files=[]))
    reader = enforcer.Caller("user", "7", ("reader",))
    for number in range(20):
        target = {"project_id": str(number % 10)}
        with nullcontext() if number % 10 == 7 else pytest.raises(Forbidden):
            rules.authorise("placement:usages", reader, target)
        assert len(rules._rules._decisions) <= 3


@pytest.fixture
def slow_service() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A service that allows everything, once it may: its URL, whether it was asked, and that."""
    is_asked, may_answer = threading.Event(), threading.Event()

    class Service(StubHandler):
        def do_POST(self) -> None:
            is_asked.set()
            answer = b"True" if may_answer.wait(30) else b"Nobody answered the other request"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with StubServer(Service) as server:
        yield server.url, is_asked, may_answer
        may_answer.set()


def test_a_slow_service_of_one_rule_holds_up_no_other_request(
    make_api: MakeApi, slow_service: tuple[str, threading.Event, threading.Event]
) -> None:
    url, is_asked, may_answer = slow_service
    api = make_api(policy=f'"{LIST}": "{url}/"\n')
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, api, "GET", "/traits", "reader")
        assert is_asked.wait(30)
        assert ask(api, "GET", "/resource_classes", "admin").status == 200
        may_answer.set()
        assert slow.result(30).status == 200


def test_the_turn_of_a_request_is_given_back_while_a_service_is_asked(
    make_api: MakeApi, slow_service: tuple[str, threading.Event, threading.Event]
) -> None:
    url, is_asked, may_answer = slow_service
    api = make_api(policy=f'"{LIST}": "{url}/"\n')
    turns: list[tuple[str, bool]] = []

    def give_back() -> None:
        turns.append(("given back", is_asked.is_set()))
        may_answer.set()

    environ = {TURN_KEY: give_back, TAKE_TURN_KEY: lambda: turns.append(("taken", True))}
    assert ask(api, "GET", "/traits", "reader", environ=environ).status == 200
    assert turns == [("given back", False), ("taken", True)]


def test_a_service_of_a_rule_that_is_down_is_503(
    make_api: MakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api = make_api(policy=f'"{LIST}": "http://127.0.0.1:{unused.getsockname()[1]}/"\n')
        answer = ask(api, "GET", "/traits", "reader")
    assert answer.status == 503
    assert LIST in answer.detail
    assert "Traceback" not in caplog.text


def test_a_policy_file_that_appears_is_found_at_the_next_search(
    make_api: MakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcer, "SECONDS_BETWEEN_SEARCHES", 0.0)
    policy_file = tmp_path / "later.yaml"
    api = make_api(oslo_policy__policy_file=str(policy_file))
    assert ask(api, "GET", "/traits", "gardener").status == 403
    policy_file.write_text('"placement:traits:list": "role:gardener"\n')
    assert ask(api, "GET", "/traits", "gardener").status == 200
