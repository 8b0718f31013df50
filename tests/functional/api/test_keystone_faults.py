"""A Keystone that is slow, hangs or answers nonsense: nobody gets in, and nobody waits for ever."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from placement_server.app import build_app
from placement_server.conf import InvalidConfiguration, new_config
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.lies.menu import Conversation, Lie, answer, drips, says, silence

from .served import ServerProcess
from .wsgi_client import Answer, Client

pytestmark = pytest.mark.waiting

READS = "^/v3/auth/tokens"
OF_A_SERVICE: dict[str, Any] = {
    "token": {
        "methods": ["password"],
        "expires_at": "2999-01-01T00:00:00.000000Z",
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "user": {"id": "u", "name": "nova", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p", "name": "service", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r", "name": "service"}],
        "catalog": [],
    }
}

SILENT: dict[str, tuple[Lie, str]] = {
    "silence about a token": (silence, f"GET {READS}"),
    "silence about its own token": (silence, f"POST {READS}"),
    "silence": (silence, ".* .*"),
    "a status line that drips": (partial(drips, begun=b"HTTP/1.1 200 ", drop=b"O"), f"GET {READS}"),
    "a body that drips": (
        partial(drips, begun=answer("200 OK", b"", Content_Length="100000"), drop=b" "),
        f"GET {READS}",
    ),
}
NONSENSE: dict[str, Lie] = {
    "a login page": says(b"<html>log in</html>", Content_Type="text/html"),
    "an empty body": says(b""),
    "an empty object": says({}),
    "a number": says(b"17"),
    "a list": says([]),
    "a token that is text": says({"token": "admin"}),
    "a token without anything": says({"token": {}}),
    "roles that are text": says({"token": OF_A_SERVICE["token"] | {"roles": "service"}}),
    "an expiry that is no time": says({"token": OF_A_SERVICE["token"] | {"expires_at": "soon"}}),
    "a token without an expiry": says(
        {"token": {k: v for k, v in OF_A_SERVICE["token"].items() if k != "expires_at"}}
    ),
    "half a body": says(b'{"token": {"roles":', Content_Length="4000"),
    "two lengths": says(OF_A_SERVICE, Content_Length="20, 30"),
    "bytes that are no text": says(b'{"token": "\xff\xfe"}'),
    "404": says({"error": {"code": 404}}, "404 Not Found"),
    "401": says({"error": {"code": 401}}, "401 Unauthorized"),
    "403": says({"error": {"code": 403}}, "403 Forbidden"),
    "500": says({"error": {"code": 500}}, "500 Oops"),
    "a redirect to itself": says(b"", "302 Found", Location="/v3/auth/tokens"),
    "a redirect to nothing": says(b"", "302 Found", Location="http://[nowhere"),
}

CONFIGURATION = (
    "[keystone_authtoken]\nauth_type = password\nauth_url = {url}/v3\n"
    "username = placement\npassword = s3cret\nproject_name = service\n"
    "user_domain_id = default\nproject_domain_id = default\nhttp_connect_timeout = 1\n"
)


@pytest.fixture
def keystone() -> Iterator[LyingProxy]:
    """A Keystone to which each token is one of a service, until it lies."""
    server = LyingProxy("http://127.0.0.1:1")
    endpoint = {"interface": "internal", "region_id": "R", "region": "R", "url": f"{server.url}/v3"}
    catalog = [{"type": "identity", "name": "keystone", "id": "k", "endpoints": [endpoint]}]
    version = {
        "id": "v3.14",
        "status": "stable",
        "links": [{"rel": "self", "href": f"{server.url}/v3/"}],
    }
    server.answer("GET", "^/v3/?$", 200, {"version": version})
    own = {"token": OF_A_SERVICE["token"] | {"catalog": catalog}}
    server.answer("POST", READS, 201, own, headers={"X-Subject-Token": "own"})
    server.answer("GET", READS, 200, OF_A_SERVICE)
    yield server
    server.close()


@pytest.fixture
def make_behind_keystone(
    make_database: Callable[[], str], keystone: LyingProxy, tmp_path: Path
) -> Iterator[Callable[..., Client]]:
    """Make a server that gives Keystone three seconds for a token."""
    stores = []

    def make(options: str = "") -> Client:
        (tmp_path / "placement.conf").write_text(CONFIGURATION.format(url=keystone.url) + options)
        stores.append(Store.open(make_database(), options=StoreOptions(sqlite_synchronous=False)))
        conf = new_config([], [tmp_path / "placement.conf"])
        return Client(build_app(conf, stores[-1]), stores[-1])

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def api(make_behind_keystone: Callable[..., Client], keystone: LyingProxy) -> Client:
    return make_behind_keystone(f"www_authenticate_uri = {keystone.url}\n")


def read(api: Client, token: str = "a-token") -> Answer:
    return api.get("/traits", token=token)


@pytest.mark.parametrize(("lie", "requests"), SILENT.values(), ids=SILENT)
def test_a_keystone_that_does_not_answer_in_time_is_503(
    api: Client, keystone: LyingProxy, lie: Lie, requests: str
) -> None:
    method, _, path = requests.partition(" ")
    keystone.lie(lie, "", method, path)
    begin = time.monotonic()
    reply = read(api)
    assert reply.status == 503
    assert "The Keystone service is temporarily unavailable." in reply.detail
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("lie", NONSENSE.values(), ids=NONSENSE)
def test_a_keystone_that_answers_nonsense_lets_nobody_in(
    api: Client, keystone: LyingProxy, lie: Lie
) -> None:
    keystone.lie(lie, "", method="GET", path=READS)
    reply = read(api)
    assert reply.status in (401, 503), reply.body


@pytest.mark.parametrize("lie", NONSENSE.values(), ids=NONSENSE)
def test_a_keystone_that_answers_nonsense_logs_nobody_in(
    make_behind_keystone: Callable[..., Client], keystone: LyingProxy, lie: Lie
) -> None:
    api = make_behind_keystone("[placement_server]\nweb_path = /-/web\n")
    keystone.lie(lie, "", method="POST", path=READS)
    reply = api.post("/-/web/login", {"user": "a", "password": "b"}, token=None)
    assert reply.status in (401, 503), reply.body


@pytest.mark.parametrize("kind", ["a status line that drips", "a body that drips"])
@pytest.mark.parametrize("method", ["GET", "POST"], ids=["validation", "login"])
def test_a_keystone_that_drips_is_listened_to_for_a_limited_time(
    make_behind_keystone: Callable[..., Client], keystone: LyingProxy, method: str, kind: str
) -> None:
    api = make_behind_keystone("[placement_server]\nweb_path = /-/web\n")
    hung_up, (lie, _requests) = threading.Semaphore(0), SILENT[kind]

    def drip(to: Conversation) -> None:
        try:
            lie(to)
        finally:
            hung_up.release()

    keystone.lie(drip, "", method, READS)
    if method == "GET":
        assert read(api).status == 503
    else:
        with ThreadPoolExecutor(1) as pool:
            body = {"user": "a", "password": "b"}
            reply = pool.submit(api.post, "/-/web/login", body, token=None)
            is_over = hung_up.acquire(timeout=20)
            keystone.close()
            assert reply.result().status == 503
        assert is_over
        return
    assert hung_up.acquire(timeout=20)


def test_logins_that_wait_for_keystone_are_few_and_make_way_when_they_end(
    make_behind_keystone: Callable[..., Client], keystone: LyingProxy
) -> None:
    api = make_behind_keystone(
        "http_connect_timeout = 600\n[placement_server]\nweb_path = /-/web\n"
    )
    log_in = partial(api.post, "/-/web/login", {"user": "a", "password": "b"}, token=None)
    asked, go_on = threading.Semaphore(0), threading.Event()

    def wait(to: Conversation) -> None:
        asked.release()
        assert go_on.wait(60)
        says(OF_A_SERVICE, "201 Created", X_Subject_Token="own")(to)

    keystone.lie(wait, "", "POST", READS)
    with ThreadPoolExecutor(4) as pool:
        logins = [pool.submit(log_in) for _ in range(4)]
        try:
            assert all(asked.acquire(timeout=60) for _ in logins)
            refused = log_in()
        finally:
            go_on.set()
        assert [login.result().status for login in logins] == [200] * 4
    assert refused.status == 503
    assert b"too many logins" in refused.body
    assert log_in().status == 200


def test_a_login_names_the_domain_of_the_user_and_that_of_a_project_if_any(
    make_behind_keystone: Callable[..., Client],
    keystone: LyingProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = make_behind_keystone("[placement_server]\nweb_path = /-/web\n")
    bodies, serve = list[bytes](), keystone.serve

    def record(handler: Any, body: bytes) -> None:
        bodies.append(body)
        serve(handler, body)

    monkeypatch.setattr(keystone, "serve", record)
    cases: list[tuple[dict[str, str], str, tuple[str, str] | None]] = [
        ({}, "Default", None),
        ({"domain": "d", "project_domain": "e"}, "d", None),
        ({"project": "p"}, "Default", ("p", "Default")),
        ({"project": "p", "domain": "d"}, "d", ("p", "d")),
        ({"project": "p", "domain": "d", "project_domain": "e"}, "d", ("p", "e")),
    ]
    for fields, domain, project in cases:
        body = {"user": "a", "password": "b", **fields}
        assert api.post("/-/web/login", body, token=None).status == 200
        auth = json.loads(bodies[-1])["auth"]
        user = {"name": "a", "password": "b", "domain": {"name": domain}}
        assert auth["identity"] == {"methods": ["password"], "password": {"user": user}}
        scope = project and {"project": {"name": project[0], "domain": {"name": project[1]}}}
        assert auth.get("scope") == scope


def test_only_an_object_with_user_and_password_of_a_limited_size_is_a_login(
    make_behind_keystone: Callable[..., Client],
) -> None:
    api = make_behind_keystone("[placement_server]\nweb_path = /-/web\n")
    least = len(json.dumps({"user": "a", "password": ""}))
    bodies: list[tuple[Any, int]] = [
        *((body, 400) for body in (["user", "password"], "user password", None, {"user": "a"})),
        *(({"user": "a", "password": "x" * (8192 + n - least)}, 200 + 200 * n) for n in (0, 1)),
    ]
    for body, status in bodies:
        assert api.post("/-/web/login", body, token=None).status == status


def test_a_token_that_keystone_could_not_be_asked_about_is_not_remembered(
    api: Client, keystone: LyingProxy
) -> None:
    keystone.answer("GET", READS, 500, times=1)
    assert read(api).status == 503
    assert read(api).status == 200


def test_a_known_token_is_valid_while_keystone_is_silent(api: Client, keystone: LyingProxy) -> None:
    assert read(api, "known").status == 200
    keystone.lie(silence, "")
    assert read(api, "known").status == 200
    assert read(api, "unknown").status == 503


def test_many_unknown_tokens_keep_no_known_one_waiting_while_keystone_is_silent(
    keystone: LyingProxy, tmp_path: Path
) -> None:
    config = CONFIGURATION.format(url=keystone.url)
    config = config.replace("http_connect_timeout = 1\n", "http_connect_timeout = 600\n")
    config += f"www_authenticate_uri = {keystone.url}\nhttp_request_max_retries = 0\n"
    arguments = ("--workers", "1", "--threads", "2", "--auth-strategy", "keystone")
    server = ServerProcess(tmp_path, *arguments, config=config)
    get = partial(requests.get, f"{server.url}/resource_providers")
    asked = threading.Semaphore(0)

    def hang(to: Conversation) -> None:
        asked.release()
        silence(to)

    try:
        assert get(headers={"X-Auth-Token": "known"}, timeout=60).status_code == 200
        keystone.lie(hang, "")
        with ThreadPoolExecutor(4) as pool:
            unknown = [pool.submit(get, headers={"X-Auth-Token": f"u{n}"}) for n in range(4)]
            try:
                assert all(asked.acquire(timeout=60) for _ in range(4))
                assert get(headers={"X-Auth-Token": "known"}, timeout=60).status_code == 200
            finally:
                keystone.close()
            assert [answer.result().status_code for answer in unknown] == [503] * 4
    finally:
        server.stop()


def test_a_request_without_a_token_does_not_wait_for_keystone(
    make_behind_keystone: Callable[..., Client], keystone: LyingProxy
) -> None:
    api = make_behind_keystone()
    keystone.lie(silence, "")
    begin = time.monotonic()
    assert api.get("/traits", token=None).status == 401
    assert time.monotonic() - begin < 20


def test_each_attempt_to_ask_keystone_is_bounded_without_an_option() -> None:
    assert new_config([], []).keystone_authtoken.http_connect_timeout == 10


@pytest.mark.parametrize("seconds", ["", "0", "-1"])
def test_a_bound_that_is_none_is_refused(
    make_behind_keystone: Callable[..., Client], seconds: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"http_connect_timeout .* from 1 on"):
        make_behind_keystone(f"http_connect_timeout = {seconds}\n")


def test_an_expired_token_is_accepted_beside_one_of_a_service_only(
    api: Client, keystone: LyingProxy
) -> None:
    expired = {"token": OF_A_SERVICE["token"] | {"expires_at": "2020-01-01T00:00:00.000000Z"}}
    keystone.answer("GET", f"{READS}.*allow_expired=1", 200, expired)
    beside = {"X-Service-Token": "of-a-service"}
    assert api.get("/traits", token="expired", headers=beside).status == 200
    assert read(api, "expired").status == 401
    keystone.answer("GET", READS, 200, expired)
    assert read(api, "another").status == 401
    assert api.get("/traits", token="expired", headers={"X-Service-Token": "old"}).status == 401


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about Keystone that a server has by default in its log."""
    least = {"placement_server.middleware.keystone": logging.INFO}
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= least.get(record.name, logging.WARNING)
    ]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (NONSENSE["500"], "Keystone"),
        (NONSENSE["401"], "Keystone refuses the user of [keystone_authtoken] (HTTP 401)"),
        (NONSENSE["an empty body"], "Keystone's answer is not understood"),
        # the library logs each try, of which a request has several
        (lambda to: to.send(b""), "Keystone"),
    ],
    ids=["500", "401", "nonsense", "no answer"],
)
def test_an_outage_is_logged_when_it_begins_with_its_reason_and_when_it_ends(
    api: Client, keystone: LyingProxy, caplog: pytest.LogCaptureFixture, lie: Lie, reason: str
) -> None:
    assert read(api, "known").status == 200
    caplog.set_level(logging.INFO)
    keystone.lie(lie, "", method="GET", path=READS)
    for number in range(3):
        assert read(api, f"unknown-{number}").status == 503
        # that Keystone answered this one before is no sign that it answers now
        assert read(api, "known").status == 200
    keystone.answer("GET", READS, 200, OF_A_SERVICE)
    for number in range(3):
        assert read(api, f"unknown-{number}").status == 200
    begin, end = messages(caplog)
    assert reason in begin
    assert "requests are answered with 503" in begin
    assert end == "Keystone validates tokens again."


def test_an_outage_ends_with_a_token_that_keystone_does_not_know(
    api: Client, keystone: LyingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keystone.lie(NONSENSE["500"], "", method="GET", path=READS)
    assert read(api, "unknown").status == 503
    keystone.answer("GET", READS, 404, {"error": {"code": 404}})
    assert read(api, "another").status == 401
    assert "Keystone validates tokens again." in messages(caplog)
