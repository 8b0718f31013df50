"""The transport over real HTTP: options, headers, broken servers, time limits."""

import socket
import threading
import uuid as uuidlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from keystoneauth1 import loading
from oslo_config import cfg

from compute_agent import __version__, errors
from compute_agent.conf import services
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request
from compute_agent.report.client import ReportClient
from tests.fixtures.clocks import WaitingClock
from tests.fixtures.stub_server import StubHandler, StubServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class Stub:
    """An HTTP server that keeps what it was sent and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Answer = lambda handler: text(handler, 200, "{}")
        self.released = threading.Event()
        stub = self

        class Handler(StubHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                stub.requests.append((self.command, self.path, headers, body))
                stub.answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = handle_one

        self.server = StubServer(Handler)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.released.set()
        self.server.close()


def text(handler: BaseHTTPRequestHandler, status: int, body: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("X-Openstack-Request-Id", "req-from-server")
    handler.end_headers()
    handler.wfile.write(body.encode())


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


def configured(**options: object) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    services.register_opts(conf, "placement")
    conf([])
    for name, value in options.items():
        conf.set_override(name, value, group="placement")
    return conf


def from_conf(**options: object) -> KeystoneTransport:
    return KeystoneTransport.from_conf(configured(**options))


def test_the_options_have_the_names_and_defaults_every_openstack_service_uses():
    conf = configured()
    assert conf.placement.service_type == "placement"
    assert conf.placement.valid_interfaces == ["internal", "public"]
    for name in (
        *("auth_type", "auth_section", "service_name", "region_name", "endpoint_override"),
        *("cafile", "certfile", "keyfile", "timeout", "connect_retries", "connect_retry_delay"),
        *("status_code_retries", "status_code_retry_delay", "retriable_status_codes"),
    ):
        assert conf.placement[name] is None
    assert conf.placement.insecure is False


def test_a_sample_of_the_options_names_those_of_the_password_plugin():
    _, options = services.list_opts()[0]
    assert {"auth_url", "username", "password", "project_name", "user_domain_name"} <= {
        option.dest for option in options
    }


def test_noauth_sends_what_a_placement_without_keystone_takes_on_trust(stub):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    transport.send(Request("GET", "/traits?name=in:A", (1, 30), global_request_id="req-1"))
    method, path, headers, _ = stub.requests[0]
    assert (method, path) == ("GET", "/traits?name=in:A")
    assert headers["x-auth-token"] == "admin"
    assert headers["x-roles"] == "admin,service,reader"
    assert headers["accept"] == "application/json"
    assert headers["openstack-api-version"] == "placement 1.30"
    assert headers["x-openstack-request-id"] == "req-1"
    assert headers["user-agent"] == f"compute-agent/{__version__}"


def test_none_claims_no_role_and_no_token_that_means_anything(stub):
    from_conf(auth_type="none", endpoint_override=stub.url).send(Request("GET", "/", (1, 0)))
    headers = stub.requests[0][2]
    assert "x-roles" not in headers
    assert headers.get("x-auth-token") == "notused"


def test_http_basic_sends_user_and_password(stub):
    conf = configured(auth_type="http_basic", endpoint_override=stub.url)
    conf.register_opts(loading.get_auth_plugin_conf_options("http_basic"), group="placement")
    conf.set_override("username", "agent", group="placement")
    conf.set_override("password", "secret", group="placement")
    KeystoneTransport.from_conf(conf).send(Request("GET", "/", (1, 0)))
    assert stub.requests[0][2]["authorization"].startswith("Basic ")


def test_a_body_is_sent_and_answered_as_json(stub):
    stub.answer = lambda handler: text(handler, 200, '{"a": [1]}')
    transport = KeystoneTransport.to_endpoint(stub.url)
    response = transport.send(Request("PUT", "/x", (1, 30), {"b": 2}))
    _, _, headers, body = stub.requests[0]
    assert headers["content-type"] == "application/json"
    assert body == b'{"b": 2}'
    assert (response.status, response.content) == (200, b'{"a": [1]}')
    assert response.request_id == "req-from-server"


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_every_status_comes_back_as_an_answer(stub, status):
    stub.answer = lambda handler: text(handler, status, "<html>")
    response = KeystoneTransport.to_endpoint(stub.url).send(Request("GET", "/", (1, 0)))
    assert (response.status, response.text) == (status, "<html>")


def test_a_prefix_of_the_endpoint_is_kept(stub):
    KeystoneTransport.to_endpoint(f"{stub.url}/placement").send(Request("GET", "/traits", (1, 6)))
    assert stub.requests[0][1] == "/placement/traits"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "auth_type is not set"),
        ({"auth_type": "no_such_plugin"}, "no_such_plugin"),
        ({"auth_type": "noauth"}, "endpoint"),
    ],
)
def test_options_that_lead_nowhere_are_said_to(options, said):
    with pytest.raises(errors.PlacementUnauthorized, match=said):
        from_conf(**options).send(Request("GET", "/", (1, 0)))


def test_a_file_of_certificates_that_is_not_there_is_a_matter_of_options():
    with pytest.raises(errors.PlacementUnauthorized, match=r"nowhere/ca\.pem.*cafile"):
        from_conf(
            auth_type="noauth", endpoint_override="https://127.0.0.1:1", cafile="/nowhere/ca.pem"
        ).send(Request("GET", "/", (1, 0)))


def with_password(auth_url: str) -> KeystoneTransport:
    conf = configured(auth_type="password")
    conf.register_opts(loading.get_auth_plugin_conf_options("password"), group="placement")
    for name, value in {
        "auth_url": auth_url,
        "username": "u",
        "password": "p",
        "project_name": "p",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }.items():
        conf.set_override(name, value, group="placement")
    return KeystoneTransport.from_conf(conf)


def test_a_keystone_that_never_answers_is_given_up_sooner_than_placement(monkeypatch):
    monkeypatch.setattr("compute_agent.placement.transports.keystone.KEYSTONE_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v3"
        with pytest.raises(errors.PlacementUnavailable, match=f"{url}/auth/tokens"):
            with_password(url).send(Request("GET", "/", (1, 0)))


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def half_an_answer(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"resource_providers": [')
    hang_up(handler)


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"220 mail ready\r\n")
    hang_up(handler)


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("answer", [hang_up, half_an_answer, no_http])
def test_a_connection_that_breaks_is_a_connect_failure(stub, answer, earlier):
    transport = KeystoneTransport.to_endpoint(stub.url)
    for _ in range(earlier):
        transport.send(Request("GET", "/", (1, 0)))
    stub.answer = answer
    with pytest.raises(errors.PlacementAPIConnectFailure, match="got no answer: "):
        transport.send(Request("GET", "/", (1, 0)))


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/a?b=c", (1, 39), global_request_id="req-1"),
        Request("PUT", "/x", (1, 39), {"a": [1]}, own_headers={"If-None-Match": '"e"'}),
        Request("POST", "/y", (1, 39)),
    ],
)
def test_a_later_request_is_sent_as_the_first_one_was(stub, request_):
    transport = from_conf(auth_type="noauth", endpoint_override=f"{stub.url}/placement/")
    for _ in range(3):
        assert transport.send(request_).status == 200
    for _, _, headers, _ in stub.requests:
        headers.pop("connection", None)
    assert stub.requests[1:] == stub.requests[:1] * 2


def test_a_later_request_is_redirected_and_has_cookies_as_the_first_one(stub):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    transport.send(Request("GET", "/", (1, 0)))

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/new":
            text(handler, 200, "[1]")
            return
        handler.send_response(307)
        handler.send_header("Location", "/new")
        handler.send_header("Set-Cookie", "node=7")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    stub.answer = elsewhere
    assert transport.send(Request("GET", "/old", (1, 0))).content == b"[1]"
    transport.send(Request("GET", "/old", (1, 0)))
    assert stub.requests[-1][2]["cookie"] == "node=7"


def test_a_write_whose_answer_has_a_cookie_is_sent_once(stub):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    transport.send(Request("GET", "/", (1, 0)))

    def with_cookie(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(204)
        handler.send_header("Set-Cookie", "node=7")
        handler.end_headers()

    stub.answer = with_cookie
    for _ in range(3):
        assert transport.send(Request("PUT", "/x", (1, 0), {})).status == 204
    cookies = [headers.get("cookie") for _, _, headers, _ in stub.requests]
    assert cookies == [None, None, None, "node=7"]


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_server_that_never_answers_is_given_up_after_the_time_limit(stub, earlier):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url, timeout=1)
    for _ in range(earlier):
        transport.send(Request("GET", "/", (1, 0)))
    stub.answer = lambda _: stub.released.wait(60) and None
    with pytest.raises(errors.PlacementAPIConnectFailure, match="timed out"):
        transport.send(Request("POST", "/reshaper", (1, 30), {}, timeout=(10.0, 300.0)))


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_server_that_is_gone_is_named_as_refusing_and_not_as_slow(stub, earlier):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    stub.answer = lambda handler: (text(handler, 200, "{}"), hang_up(handler))[0]
    for _ in range(earlier):
        transport.send(Request("GET", "/", (1, 0)))
    stub.close()
    with pytest.raises(errors.PlacementAPIConnectFailure, match=r": Connection refused\."):
        transport.send(Request("GET", "/", (1, 0)))


@pytest.mark.parametrize("earlier", [0, 1])
def test_the_time_to_connect_does_not_limit_the_time_for_the_answer(stub, earlier):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    for _ in range(earlier):
        transport.send(Request("GET", "/", (1, 0)))
    stub.answer = lambda handler: stub.released.wait(1) or text(handler, 200, "{}")
    answer = transport.send(Request("POST", "/reshaper", (1, 30), {}, timeout=(0.5, 300.0)))
    assert answer.status == 200


def test_without_an_option_the_time_limits_are_10_60_and_300_seconds(stub):
    transport = from_conf(auth_type="noauth", endpoint_override=stub.url)
    given = []

    class Adapter:
        def request(self, path, method, timeout, **rest):
            given.append(timeout)
            raise errors.PlacementAPIConnectFailure("not sent")

    transport._adapter = Adapter()
    for timeout in (None, (10.0, 300.0)):
        with pytest.raises(errors.PlacementAPIConnectFailure):
            transport.send(Request("GET", "/", (1, 0), timeout=timeout))
    assert given == [(10.0, 60.0), (10.0, 300.0)]


def test_connections_are_kept_and_used_again(stub):
    transport = KeystoneTransport.to_endpoint(stub.url)
    ports = []
    stub.answer = lambda handler: (
        ports.append(handler.client_address[1]),
        text(handler, 200, "{}"),
    )[1]
    for _ in range(3):
        transport.send(Request("GET", "/", (1, 0)))
    assert len(set(ports)) == 1


def test_after_a_401_credentials_are_made_anew(stub):
    loads = []
    working = KeystoneTransport.to_endpoint(stub.url)

    def load():
        loads.append(1)
        return working._load()

    transport = KeystoneTransport(load)
    transport.send(Request("GET", "/", (1, 0)))
    stub.answer = lambda handler: text(handler, 401, "{}")
    transport.send(Request("GET", "/", (1, 0)))
    stub.answer = lambda handler: text(handler, 200, "{}")
    transport.send(Request("GET", "/", (1, 0)))
    assert len(loads) == 2


def test_a_client_works_against_a_real_server_process(placement_url):
    root = str(uuidlib.uuid4())
    client = ReportClient(KeystoneTransport.to_endpoint(placement_url), clock=WaitingClock())
    assert client.connect().maximum == (1, 39)
    with client.tracing() as tally:
        base = client.get_provider_tree_and_ensure_root(root, f"http {root}")
        new = base.snapshot()
        for number in range(12):
            child = new.new_child(f"http {root} {number}", root)
            new.update_inventory(child, {"VGPU": {"total": 1}})
        client.update_from_provider_tree(base, new)
    assert tally.requests == 1 + 13 + 1 + 1
    assert tally.failed_count == 0
    again = ReportClient(KeystoneTransport.to_endpoint(placement_url), clock=WaitingClock())
    assert len(again.get_provider_tree(root)) == 13
    assert client.find_provider_by_name(f"http {root}").uuid == root
    assert client.find_provider_by_name("nobody & nothing?") is None
    client.close()
    again.close()
