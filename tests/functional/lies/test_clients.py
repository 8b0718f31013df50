"""A service that lies, as the scheduler, keystone's client and the operators' tools see it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.cmd.manage import main as manage
from compute_agent.drift.instances.instance import Instance, PortsUnreadable
from compute_agent.drift.instances.openstack import NeutronPorts, Nova
from compute_agent.openstack.service import TRIES, Service, ServiceUnusable
from compute_agent.placement.connection import Retries
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.programs.exit_status import Exit
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.placement.client import PlacementClient
from tests.fixtures.clocks import WaitingClock
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.lies.elsewhere import Elsewhere
from tests.functional.lies.menu import A_FEW, MENU, Entry, answer, says

pytestmark = pytest.mark.waiting

TOKEN = "a-token-of-the-cloud"
INSTANCE = Instance(
    "4b1c3e0e-0000-4000-8000-000000000001", "host", "node", RequestSpec("a-project", "a-user")
)
lies = pytest.mark.parametrize("lie", MENU.values(), ids=MENU)
few_lies = pytest.mark.parametrize("lie", [MENU[name] for name in A_FEW], ids=A_FEW)


@pytest.fixture
def configured(tmp_path: Path, proxy: LyingProxy) -> Callable[..., Any]:
    """Makes the configuration that an operator has written."""

    def make(seconds: int = 30, **groups: dict[str, Any]) -> Any:
        sections = {
            "DEFAULT": {"state_path": tmp_path / "state", "host": f"host-{uuid.uuid4().hex[:8]}"},
            "placement": {
                "auth_type": "noauth",
                "endpoint_override": proxy.url,
                "timeout": seconds,
            },
        } | groups
        lines = []
        for group, options in sections.items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in options.items())]
        (tmp_path / "agent.conf").write_text("\n".join(lines) + "\n")
        return agent_conf.new_config([f"--config-file={tmp_path}/agent.conf"])

    return make


@pytest.fixture
def new_client(configured: Callable[..., Any]) -> Callable[[int], PlacementClient]:
    """Makes clients with so many seconds for an answer."""

    def make(seconds: int) -> PlacementClient:
        transport = KeystoneTransport.from_conf(configured(seconds))
        return PlacementClient(transport, retries=Retries(clock=WaitingClock()))

    return make


@pytest.fixture
def client(new_client: Callable[[int], PlacementClient]) -> PlacementClient:
    return new_client(30)


def said_about(lie: Entry, call: Callable[[], object]) -> str:
    """What the error of a call says, which has the words for the lie."""
    with pytest.raises(errors.PlacementError) as raised:
        call()
    assert re.search(lie.words, str(raised.value)), raised.value
    return str(raised.value)


@lies
def test_the_scheduler_is_told_what_is_wrong_and_goes_on_when_placement_is_honest(
    new_client: Callable[[int], PlacementClient],
    proxy: LyingProxy,
    elsewhere: Elsewhere,
    lie: Entry,
) -> None:
    client = new_client(lie.seconds)
    proxy.lie(lie.tell, elsewhere.url)
    assert len(said_about(lie, client.connect)) < 2000
    proxy.honest()
    client.connect()
    assert client.roots_by_layout()


@few_lies
def test_an_answer_to_a_question_that_is_a_lie_is_an_error_of_placement(
    new_client: Callable[[int], PlacementClient],
    proxy: LyingProxy,
    elsewhere: Elsewhere,
    lie: Entry,
) -> None:
    client = new_client(lie.seconds)
    client.connect()
    proxy.lie(lie.tell, elsewhere.url)
    said_about(lie, client.roots_by_layout)
    proxy.honest()
    assert client.roots_by_layout()


def test_what_breaks_a_bound_is_asked_for_once(
    new_client: Callable[[int], PlacementClient], proxy: LyingProxy, elsewhere: Elsewhere
) -> None:
    client = new_client(1)
    proxy.requests.clear()
    proxy.lie(MENU["a body that drips"].tell, elsewhere.url)
    with pytest.raises(errors.PlacementAnswerRefused):
        client.connect()
    assert len(proxy.requests) == 1


def test_a_redirect_within_the_server_is_followed_with_method_and_token(
    client: PlacementClient, proxy: LyingProxy
) -> None:
    proxy.answer("GET", "^/$", 308, headers={"Location": "/moved/"})
    proxy.answer("GET", "^/moved/$", 302, headers={"Location": f"{proxy.url}/moved?once=more"})
    document = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}
    proxy.answer("GET", "^/moved.once=more$", 200, document)
    proxy.requests.clear()
    client.connect()
    assert proxy.requests[:3] == ["GET /", "GET /moved/", "GET /moved?once=more"]


def test_an_honest_compressed_answer_is_read(client: PlacementClient, proxy: LyingProxy) -> None:
    import gzip

    version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.36"}
    packed = gzip.compress(json.dumps({"versions": [version]}).encode())
    versions = answer("200 OK", packed, Content_Encoding="gzip")
    proxy.lie(lambda to: to.send(versions), "", "GET", "^/$")
    client.connect()
    assert client._connection.versions().maximum == (1, 36)


# -- keystone ------------------------------------------------------------------------------------


def password(proxy: LyingProxy, **options: Any) -> dict[str, Any]:
    return {
        "auth_type": "password",
        "auth_url": f"{proxy.url}/v3",
        "username": "u",
        "password": "the-password",
        "project_name": "p",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "timeout": 30,
    } | options


@lies
def test_a_keystone_that_lies_is_an_error_of_placement(
    configured: Callable[..., Any], proxy: LyingProxy, elsewhere: Elsewhere, lie: Entry
) -> None:
    transport = KeystoneTransport.from_conf(
        configured(placement=password(proxy, timeout=lie.seconds))
    )
    proxy.lie(lie.tell, elsewhere.url)
    with pytest.raises(errors.PlacementError):
        transport.send(Request("GET", "/", (1, 0)))


@pytest.mark.parametrize("path", ["", "/v3"])
def test_what_breaks_a_bound_is_refused_whatever_auth_url_names(
    configured: Callable[..., Any], proxy: LyingProxy, elsewhere: Elsewhere, path: str
) -> None:
    proxy.lie(MENU["a redirect 308 elsewhere"].tell, elsewhere.url)
    with pytest.raises(errors.PlacementAnswerRefused, match="Redirects are followed"):
        ask_through_keystone(configured, proxy, path)


@pytest.mark.parametrize("path", ["", "/identity"])
def test_a_keystone_whose_versions_need_a_token_is_refused_and_not_waited_for(
    configured: Callable[..., Any], proxy: LyingProxy, elsewhere: Elsewhere, path: str
) -> None:
    proxy.lie(says({}, "401 Unauthorized"), elsewhere.url)
    with pytest.raises(errors.PlacementUnauthorized, match="asks for a token"):
        ask_through_keystone(configured, proxy, path)


def ask_through_keystone(configured: Callable[..., Any], proxy: LyingProxy, path: str) -> Response:
    options = password(proxy, auth_url=f"{proxy.url}{path}")
    transport = KeystoneTransport.from_conf(configured(placement=options))
    return transport.send(Request("GET", "/", (1, 0)))


def token(**changes: Any) -> Entry:
    body = {"expires_at": "2999-01-01T00:00:00.000000Z", "methods": ["password"]} | changes
    return Entry(says({"token": body}, "201 Created", X_Subject_Token=TOKEN), "")


TOKENS = {
    "a number": Entry(says({"token": 5}, "201 Created", X_Subject_Token=TOKEN), ""),
    "a list": Entry(says([], "201 Created", X_Subject_Token=TOKEN), ""),
    "without a token": Entry(says({"token": {}}, "201 Created"), ""),
    "an expiry that is a number": token(expires_at=7),
    "an expiry that is text": token(expires_at="tomorrow"),
    "a catalogue that is a number": token(catalog=5),
    "a catalogue of texts": token(catalog=["a", "b"]),
    "services without endpoints": token(catalog=[{"type": "placement", "endpoints": 7}]),
    "an endpoint that is a number": token(
        catalog=[{"type": "placement", "endpoints": [{"interface": "public", "url": 7}]}]
    ),
    "an endpoint that is text": token(
        catalog=[{"type": "placement", "endpoints": [{"interface": "public", "url": "http://["}]}]
    ),
}


@pytest.mark.parametrize("lie", TOKENS.values(), ids=TOKENS)
def test_a_token_of_wrong_types_is_an_error_of_placement(
    configured: Callable[..., Any], proxy: LyingProxy, lie: Entry
) -> None:
    transport = KeystoneTransport.from_conf(configured(placement=password(proxy)))
    proxy.lie(lie.tell, "")
    with pytest.raises(errors.PlacementError):
        transport.send(Request("GET", "/", (1, 0)))


@pytest.mark.parametrize("value", ["86400", "-5", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_keystoneauth_sleeps_no_longer_than_a_period_for_a_retry_after(
    configured: Callable[..., Any],
    proxy: LyingProxy,
    caplog: pytest.LogCaptureFixture,
    value: str,
) -> None:
    options = {
        "auth_type": "noauth",
        "endpoint_override": proxy.url,
        "status_code_retries": 1,
        "retriable_status_codes": "503",
    }
    conf = configured(placement=options, DEFAULT={"update_resources_interval": 1})
    proxy.lie(says({}, "503 Busy", Retry_After=value), "")
    answered = KeystoneTransport.from_conf(conf).send(Request("GET", "/", (1, 0)))
    assert answered.status == 503
    assert float(answered.headers["retry-after"]) <= 1.0
    told = [record.getMessage() for record in caplog.records if "Retry-After" in record.message]
    assert len(told) == (0 if value == "-5" else 1), "once, though it lasts"


# -- Nova, and tools -----------------------------------------------------------------------------


@few_lies
def test_a_nova_that_lies_is_a_service_that_cannot_be_used(
    configured: Callable[..., Any], proxy: LyingProxy, elsewhere: Elsewhere, lie: Entry
) -> None:
    options = {"auth_type": "none", "endpoint_override": proxy.url, "timeout": lie.seconds}
    service = Service(configured(nova=options), "nova", "Nova", wait=lambda _seconds: None)
    proxy.lie(lie.tell, elsewhere.url)
    with pytest.raises(ServiceUnusable):
        list(Nova(service).servers())


@pytest.mark.parametrize("path", ["", "/v3"])
@pytest.mark.parametrize("status", [None, 503], ids=["silent", "unavailable"])
def test_nova_is_asked_again_while_keystone_is_away(
    configured: Callable[..., Any], proxy: LyingProxy, status: int | None, path: str
) -> None:
    options = password(proxy, auth_url=f"{proxy.url}{path}")
    waits: list[float] = []
    service = Service(configured(nova=options), "nova", "Nova", wait=waits.append)
    proxy.answer("GET|POST", "", status)
    with pytest.raises(ServiceUnusable, match=r"does not answer .* Try again when it does"):
        list(Nova(service).servers())
    assert len(waits) == TRIES - 1


@few_lies
def test_a_neutron_that_lies_leaves_ports_unread(
    configured: Callable[..., Any], proxy: LyingProxy, elsewhere: Elsewhere, lie: Entry
) -> None:
    options = {"auth_type": "none", "endpoint_override": proxy.url, "timeout": lie.seconds}
    service = Service(configured(neutron=options), "neutron", "Neutron", wait=lambda _seconds: None)
    proxy.lie(lie.tell, elsewhere.url)
    with pytest.raises(PortsUnreadable, match="Listing the ports of instance"):
        NeutronPorts(service).of(INSTANCE)


PORTS: dict[str, Any] = {
    "a number": 5,
    "texts": ["a"],
    "without an id": [{"binding:profile": {}, "resource_request": {"request_groups": []}}],
    "a profile that is text": [{"id": "p", "binding:profile": "{", "resource_request": {"a": 1}}],
    "a request that is a number": [{"id": "p", "binding:profile": {}, "resource_request": 7}],
}


@pytest.mark.parametrize("ports", PORTS.values(), ids=PORTS)
def test_ports_of_wrong_types_leave_ports_unread(
    configured: Callable[..., Any], proxy: LyingProxy, ports: Any
) -> None:
    options = {"auth_type": "none", "endpoint_override": proxy.url}
    service = Service(configured(neutron=options), "neutron", "Neutron", wait=lambda _seconds: None)
    proxy.answer("GET", "^/ports", 200, {"ports": ports})
    with pytest.raises(PortsUnreadable):
        NeutronPorts(service).of(INSTANCE)


VERSION = {"version": {"id": "v2.1", "version": "2.100"}}
SERVERS: dict[str, Any] = {
    "a number": 5,
    "texts": ["a"],
    "without an id": [{}],
    "a flavor that is a number": [{"id": "u", "flavor": 5}],
    "an image that is text": [{"id": "u", "image": "i"}],
    "a host that is a list": [{"id": "u", "OS-EXT-SRV-ATTR:host": []}],
}


@pytest.mark.parametrize("servers", SERVERS.values(), ids=SERVERS)
def test_servers_of_wrong_types_are_not_understood(
    configured: Callable[..., Any], proxy: LyingProxy, servers: Any
) -> None:
    options = {"auth_type": "none", "endpoint_override": f"{proxy.url}/nova"}
    service = Service(configured(nova=options), "nova", "Nova", wait=lambda _seconds: None)
    proxy.answer("GET", "^/nova/?$", 200, VERSION)
    proxy.answer("GET", "^/nova/servers", 200, {"servers": servers})
    with pytest.raises(ServiceUnusable, match=r"has no list|not understood"):
        list(Nova(service).servers())


@pytest.mark.parametrize("links", [5, ["a"], [{"rel": "next", "href": "http://["}]])
def test_links_of_wrong_types_end_no_tool(
    configured: Callable[..., Any], proxy: LyingProxy, links: Any
) -> None:
    options = {"auth_type": "none", "endpoint_override": proxy.url}
    service = Service(configured(nova=options), "nova", "Nova", wait=lambda _seconds: None)
    proxy.answer("GET", "^/things.limit=1$", 200, {"things": [{}], "things_links": links})
    proxy.error("GET", "^/things.$", 404)
    with pytest.raises(ServiceUnusable):
        list(service.pages("/things", "things", "Listing", limit="1"))


@few_lies
def test_a_tool_ends_with_its_status_for_errors_and_without_traceback(
    configured: Callable[..., Any],
    tmp_path: Path,
    proxy: LyingProxy,
    elsewhere: Elsewhere,
    capsys: pytest.CaptureFixture[str],
    lie: Entry,
) -> None:
    configured(lie.seconds)
    proxy.lie(lie.tell, elsewhere.url)
    status = manage.main(
        ["placement", "delete-host", "a-host", "--config-file", f"{tmp_path}/agent.conf"]
    )
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert status == Exit.PLACEMENT, told
    assert re.search(lie.words, told), told
