"""Rights of roles, with tokens that a real Keystone issued and a real server validates."""

import uuid

import pytest
import requests

from tests.fixtures.keystone import Keystone

RESHAPE = {"inventories": {}, "allocations": {}}


@pytest.fixture
def placement(placement_behind_keystone: str) -> str:
    return placement_behind_keystone


def call(
    url: str, token: str | None, method: str = "GET", body: object = None
) -> requests.Response:
    headers = {"OpenStack-API-Version": "placement 1.39"}
    if token is not None:
        headers["X-Auth-Token"] = token
    return requests.request(method, url, headers=headers, json=body, timeout=30)


def test_without_a_token_the_answer_is_401_and_says_where_to_authenticate(
    placement: str, keystone: Keystone
) -> None:
    answer = call(f"{placement}/resource_providers", None)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{keystone.url}"'
    assert answer.json()["error"]["code"] == 401


def test_a_made_up_token_is_401(placement: str) -> None:
    assert call(f"{placement}/resource_providers", "made-up").status_code == 401


def test_the_version_document_needs_no_token(placement: str) -> None:
    assert call(f"{placement}/", None).status_code == 200


@pytest.mark.parametrize(("user", "status"), [("admin", 200), ("placement", 200)])
def test_admin_and_service_manage_providers(
    placement: str, keystone: Keystone, user: str, status: int
) -> None:
    body = {"name": f"{user}-{uuid.uuid4()}"}
    answer = call(f"{placement}/resource_providers", keystone.token(user), "POST", body)
    assert answer.status_code == status


@pytest.mark.parametrize("user", ["reader", "member"])
def test_reader_and_member_may_not_list_providers(
    placement: str, keystone: Keystone, user: str
) -> None:
    answer = call(f"{placement}/resource_providers", keystone.token(user))
    assert answer.status_code == 403
    assert "placement:resource_providers:list" in answer.json()["errors"][0]["detail"]


def test_a_reader_sees_the_usage_of_its_own_project_and_of_no_other(
    placement: str, keystone: Keystone
) -> None:
    token = keystone.token("reader")
    own = call(f"{placement}/usages?project_id={keystone.project_id}", token)
    assert own.status_code == 200
    foreign = call(f"{placement}/usages?project_id={keystone.admin_project_id}", token)
    assert foreign.status_code == 403
    assert call(f"{placement}/usages", token).status_code == 403


def test_only_service_may_reshape(placement: str, keystone: Keystone) -> None:
    refused = call(f"{placement}/reshaper", keystone.token("admin"), "POST", RESHAPE)
    assert refused.status_code == 403
    # Past the policy, the empty body is what is wrong.
    allowed = call(f"{placement}/reshaper", keystone.token("placement"), "POST", RESHAPE)
    assert allowed.status_code == 400


def test_a_system_scoped_admin_is_refused(placement: str, keystone: Keystone) -> None:
    token = keystone.token("admin", scope={"system": {"all": True}})
    assert call(f"{placement}/resource_providers", token).status_code == 403
