"""Properties of all routes: headers, versions, methods, errors, content negotiation."""

import re
from typing import Any

import pytest

from placement_server.api import routes
from placement_server.api.routes import ROUTES

from .wsgi_client import Client

RP = "/resource_providers"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
REQUEST_ID = re.compile(r"req-[a-fA-F0-9-]{36}")


def concrete(template: str) -> str:
    return re.sub(r"\{\w+\}", UNKNOWN, template)


def test_json_answers_and_errors_have_exactly_the_content_type_application_json(
    api: Client,
) -> None:
    assert api.get(RP).headers["content-type"] == "application/json"
    assert api.get("/nowhere").headers["content-type"] == "application/json"
    assert api.get(RP, version="1.40").headers["content-type"] == "application/json"


def test_answers_without_a_body_have_no_content_type(api: Client) -> None:
    for answer in (
        api.put("/traits/CUSTOM_A"),
        api.put("/traits/CUSTOM_A"),
        api.post("/resource_classes", {"name": "CUSTOM_A"}),
        api.post(RP, {"name": "old"}, version="1.19"),
        api.delete("/traits/CUSTOM_A"),
    ):
        assert answer.status in (201, 204)
        assert "content-type" not in answer.headers
        assert answer.body == b""
        assert answer.headers["content-length"] == "0"


def test_location_is_absolute_and_links_are_paths_and_both_carry_the_mount_point(
    api: Client,
) -> None:
    mounted = {"SCRIPT_NAME": "/placement"}
    answer = api.post(RP, {"name": "a"}, environ=mounted)
    uuid = answer.json["uuid"]
    url = f"http://placement.example.org/placement{RP}/{uuid}"
    assert answer.headers["location"] == url
    assert answer.json["links"][0] == {"rel": "self", "href": f"/placement{RP}/{uuid}"}
    answer = api.put(
        "/traits/CUSTOM_A", headers={"Host": "cloud.example.com:8778"}, environ=mounted
    )
    assert answer.headers["location"] == "http://cloud.example.com:8778/placement/traits/CUSTOM_A"
    classes = api.get("/resource_classes", environ=mounted).json["resource_classes"]
    assert classes[0]["links"] == [{"rel": "self", "href": "/placement/resource_classes/VCPU"}]


@pytest.mark.parametrize("template", ROUTES)
@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])
def test_a_method_that_no_route_has_is_405_with_the_methods_there_are(
    api: Client, template: str, method: str
) -> None:
    answer = api(method, concrete(template), version="1.0")
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == set(ROUTES[template])
    if method == "HEAD":
        assert answer.body == b""
    else:
        assert answer.error["title"] == "Method Not Allowed"
        assert answer.detail == "The method specified is not allowed for this resource."


def test_allow_is_exactly_get_on_the_root_and_post_on_allocations_and_reshaper(
    api: Client,
) -> None:
    assert api.post("/").headers["allow"] == "GET"
    assert api.get("/allocations").headers["allow"] == "POST"
    assert api.get("/reshaper").headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path",
    [
        "/resource_providers/",
        f"/resource_providers/{UNKNOWN}/",
        "//resource_providers",
        "/resource_providers//inventories",
        f"/resource_providers/{UNKNOWN}/inventories/",
        f"/resource_providers/{UNKNOWN}/nothing",
        "/traits/",
        "//",
        "/nowhere",
        "x/resource_providers",
    ],
)
def test_a_trailing_or_doubled_slash_makes_an_unknown_path(api: Client, path: str) -> None:
    answer = api.get(path)
    assert answer.status == 404
    assert answer.detail == ""


def test_the_root_and_the_empty_path_serve_the_version_document(api: Client) -> None:
    for path in ("/", ""):
        answer = api.get(path)
        assert answer.status == 200
        assert answer.json == {
            "versions": [
                {
                    "id": "v1.0",
                    "max_version": "1.39",
                    "min_version": "1.0",
                    "status": "CURRENT",
                    "links": [{"rel": "self", "href": ""}],
                }
            ]
        }
    assert api.get("/", environ={"SCRIPT_NAME": "/placement"}).json["versions"][0]["links"] == [
        {"rel": "self", "href": ""}
    ]


def test_the_root_needs_no_token_and_everything_else_is_401_first(api: Client) -> None:
    assert api.get("/", token=None).status == 200
    for path in ("", RP, "/nowhere", "/usages"):
        answer = api.get(path, token=None, version="pony.horse")
        assert answer.status == 401
        assert "openstack-api-version" not in answer.headers
        assert REQUEST_ID.fullmatch(answer.headers["x-openstack-request-id"])


def test_latest_is_answered_with_its_number(api: Client) -> None:
    answer = api.get(RP, version="latest")
    assert answer.headers["openstack-api-version"] == "placement 1.39"


@pytest.mark.parametrize(
    "version", ["pony.horse", "1.2.3", "1", "LATEST", "Latest", "1.", ".1", "1.x", "1.2 foo"]
)
def test_a_malformed_version_is_400(api: Client, version: str) -> None:
    answer = api.get(RP, version=version)
    assert answer.status == 400
    assert f"Invalid microversion: invalid version string: {version}; " in answer.detail
    assert answer.code is None
    assert "openstack-api-version" not in answer.headers
    assert "vary" not in answer.headers


@pytest.mark.parametrize("version", ["0.5", "0.9", "1.40", "1.-1", "-1.5", "2.0", "99.99"])
def test_a_version_out_of_range_is_406_and_tells_the_range(api: Client, version: str) -> None:
    answer = api.get(RP, version=version)
    assert answer.status == 406
    assert f"Invalid microversion: Unacceptable version header: {version}" in answer.detail
    assert answer.error["max_version"] == "1.39"
    assert answer.error["min_version"] == "1.0"
    assert answer.code is None
    assert "openstack-api-version" not in answer.headers
    assert "vary" not in answer.headers


def test_a_header_about_another_service_means_1_0(api: Client) -> None:
    answer = api.get(RP, version=None, headers={"OpenStack-API-Version": "compute 2.1"})
    assert answer.headers["openstack-api-version"] == "placement 1.0"


@pytest.mark.parametrize("between", ["  ", "\t", "\t ", "\xa0"])
def test_any_white_space_separates_the_service_from_the_version(api: Client, between: str) -> None:
    header = f"compute 2.1,\tPlacement{between}1.20\t"
    answer = api.get(RP, version=None, headers={"OpenStack-API-Version": header})
    assert answer.headers["openstack-api-version"] == "placement 1.20"


@pytest.mark.parametrize("text", ["x" * 200, "other"])
def test_random_version_headers_do_not_fill_the_memory(api: Client, text: str) -> None:
    known = routes._known_versions.cache_info
    before = known().currsize
    for number in range(600):
        assert api.get("/", version=f"1.1, {text} {number}").status == 200
    assert known().currsize <= (before if len(text) == 200 else 512)


def test_legacy_version_headers_are_ignored(api: Client) -> None:
    answer = api.get(
        RP, version=None, headers={"OpenStack-Placement-API-Version": "1.30", "X-OpenStack-A": "1"}
    )
    assert answer.headers["openstack-api-version"] == "placement 1.0"


def test_cache_headers_exist_from_1_15_only(api: Client) -> None:
    api.provider("a")
    for path in ("/", RP, "/traits", "/resource_classes"):
        old = api.get(path, version="1.14").headers
        new = api.get(path, version="1.15").headers
        assert not {"cache-control", "last-modified"} & old.keys()
        assert new["cache-control"] == "no-cache"
        assert new["last-modified"].endswith(" GMT")


def test_bodiless_trait_answers_have_cache_headers_and_class_writes_never(api: Client) -> None:
    for answer in (
        api.put("/traits/CUSTOM_A", version="1.15"),
        api.put("/traits/CUSTOM_A", version="1.15"),
        api.get("/traits/CUSTOM_A", version="1.15"),
    ):
        assert answer.headers["cache-control"] == "no-cache"
        assert "last-modified" in answer.headers
    for answer in (
        api.put("/traits/CUSTOM_B", version="1.14"),
        api.get("/traits/CUSTOM_B", version="1.14"),
        api.put("/resource_classes/CUSTOM_A"),
        api.put("/resource_classes/CUSTOM_A"),
        api.post("/resource_classes", {"name": "CUSTOM_B"}),
        api.delete("/resource_classes/CUSTOM_B"),
        api.post(RP, {"name": "a"}, version="1.19"),
        api.get("/nowhere"),
    ):
        assert not {"cache-control", "last-modified"} & answer.headers.keys()


def test_inventories_of_an_empty_provider_have_cache_control_but_no_last_modified(
    api: Client,
) -> None:
    provider = api.provider()
    answer = api.get(f"{provider}/inventories", version="1.15")
    assert answer.headers["cache-control"] == "no-cache"
    assert "last-modified" not in answer.headers
    api.inventory(provider, VCPU=1)
    assert "last-modified" in api.get(f"{provider}/inventories", version="1.15").headers


def test_vary_accompanies_the_version_header(api: Client) -> None:
    for answer in (api.get(RP), api.get("/nowhere"), api.put("/traits/CUSTOM_A"), api.post(RP)):
        assert answer.headers["openstack-api-version"] == "placement 1.39"
        assert answer.headers["vary"] == "openstack-api-version"


def test_code_appears_from_1_23_on(api: Client) -> None:
    assert api.get("/nowhere", version="1.22").code is None
    assert api.get("/nowhere", version="1.23").code == "placement.undefined_code"


def test_every_answer_has_a_request_id_of_its_own_and_errors_repeat_it(api: Client) -> None:
    inbound = "req-11111111-1111-1111-1111-111111111111"
    seen = set()
    for path in (RP, "/nowhere", "/"):
        answer = api.get(path, headers={"X-Openstack-Request-Id": inbound})
        request_id = answer.headers["x-openstack-request-id"]
        assert REQUEST_ID.fullmatch(request_id)
        seen.add(request_id)
        if answer.status == 404:
            assert answer.error["request_id"] == request_id
    assert len(seen) == 3
    assert inbound not in seen


# What is checked before the lookups, in order: V the version that began it (404), A that JSON is
# accepted (406), C that JSON is sent (415), P the policy (403).
ORDERS = (
    ("GET", RP, "AP", 0),
    ("POST", RP, "CP", 0),
    ("GET", f"{RP}/{UNKNOWN}", "AP", 0),
    ("PUT", f"{RP}/{UNKNOWN}", "CP", 0),
    ("DELETE", f"{RP}/{UNKNOWN}", "P", 0),
    ("GET", f"{RP}/{UNKNOWN}/inventories", "AP", 0),
    ("POST", f"{RP}/{UNKNOWN}/inventories", "CP", 0),
    ("PUT", f"{RP}/{UNKNOWN}/inventories", "CP", 0),
    ("DELETE", f"{RP}/{UNKNOWN}/inventories", "P", 5),
    ("GET", f"{RP}/{UNKNOWN}/inventories/VCPU", "AP", 0),
    ("PUT", f"{RP}/{UNKNOWN}/inventories/VCPU", "CP", 0),
    ("DELETE", f"{RP}/{UNKNOWN}/inventories/VCPU", "P", 0),
    ("GET", f"{RP}/{UNKNOWN}/usages", "AP", 0),
    ("GET", f"{RP}/{UNKNOWN}/allocations", "AP", 0),
    ("GET", f"{RP}/{UNKNOWN}/aggregates", "AVP", 1),
    ("PUT", f"{RP}/{UNKNOWN}/aggregates", "CVP", 1),
    ("GET", f"{RP}/{UNKNOWN}/traits", "VAP", 6),
    ("PUT", f"{RP}/{UNKNOWN}/traits", "VCP", 6),
    ("DELETE", f"{RP}/{UNKNOWN}/traits", "VP", 6),
    ("GET", "/resource_classes", "VAP", 2),
    ("POST", "/resource_classes", "VCP", 2),
    ("GET", "/resource_classes/CUSTOM_A", "VAP", 2),
    ("PUT", "/resource_classes/CUSTOM_A", "VCP", 2),
    ("PUT", "/resource_classes/CUSTOM_A", "P", 7),
    ("DELETE", "/resource_classes/CUSTOM_A", "VP", 2),
    ("GET", "/traits", "VAP", 6),
    ("GET", "/traits/CUSTOM_A", "VP", 6),
    ("PUT", "/traits/CUSTOM_A", "VP", 6),
    ("DELETE", "/traits/CUSTOM_A", "VP", 6),
    ("GET", "/usages", "VAP", 9),
    ("GET", f"/allocations/{UNKNOWN}", "AP", 0),
    ("PUT", f"/allocations/{UNKNOWN}", "CP", 0),
    ("DELETE", f"/allocations/{UNKNOWN}", "P", 0),
    ("POST", "/allocations", "VCP", 13),
    ("GET", "/allocation_candidates", "VAP", 10),
    ("POST", "/reshaper", "VCP", 30),
    ("GET", "/candidate_explanation", "VAP", 10),
    ("GET", "/agent_reports", "AP", 0),
    ("GET", "/changes", "AP", 0),
    ("GET", "/history", "AP", 0),
    ("GET", f"/provider_trees/{UNKNOWN}", "AP", 0),
    ("POST", "/what_if", "VCAP", 10),
    ("POST", "/make_room", "VCAP", 34),
    ("GET", "/capacity", "VAP", 29),
    ("GET", "/fragmentation", "VAP", 29),
)


@pytest.mark.parametrize(("method", "path", "order", "since"), ORDERS)
def test_of_all_that_is_wrong_with_a_request_the_first_in_order_is_answered(
    api: Client, method: str, path: str, order: str, since: int
) -> None:
    for place, check in enumerate(order):
        wrong = order[place:]
        sent: dict[str, Any] = {
            "version": f"1.{since - 1 if 'V' in wrong else since}, placement-ext 1.1",
            "token": "nobody",
            "raw": None if method == "GET" else b"no json",
            "content_type": "text/plain" if "C" in wrong else "application/json",
            "headers": {"Accept": "text/plain" if "A" in wrong else "application/json"},
        }
        answer = api(method, path, **sent)
        assert answer.status == {"V": 404, "A": 406, "C": 415, "P": 403}[check], wrong
        if check == "V":
            # the bodies differ in their request ids
            assert len(answer.body) == len(api(method, "/nowhere", **sent).body)


def test_delete_inventories_before_1_5_is_405_without_allow(api: Client) -> None:
    answer = api.delete(f"{RP}/{UNKNOWN}/inventories", version="1.4")
    assert answer.status == 405
    assert "allow" not in answer.headers


def test_unknown_parameters_are_400_where_there_are_any_and_ignored_where_there_are_none(
    api: Client,
) -> None:
    provider = api.provider()
    for path in (RP, "/traits", "/usages?project_id=p&", "/allocation_candidates"):
        answer = api.get(f"{path}{'' if '?' in path else '?'}spam=1")
        assert answer.status == 400
        assert answer.detail.startswith("Invalid query string parameters: ")
        assert "spam" in answer.detail
    for path in (provider, f"{provider}/inventories", "/resource_classes", f"{provider}/usages"):
        assert api.get(f"{path}?spam=1").status == 200
    assert api.get("/allocations/x?spam=1").status == 200


def test_query_values_are_utf_8(api: Client) -> None:
    api.provider("\N{SNOWMAN}")
    (found,) = api.get(f"{RP}?name=%e2%98%83").json["resource_providers"]
    assert found["name"] == "\N{SNOWMAN}"
    answer = api.get(f"{RP}?name=%ff")
    assert answer.status == 400
    assert answer.detail.startswith(
        "Invalid query string parameters: 'utf-8' codec can't decode byte 0xff"
    )


def test_an_unforeseen_failure_is_a_500_in_the_usual_form(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the roof is on fire")

    monkeypatch.setattr(api.store, "read_single", fail)
    answer = api.get(RP)
    assert answer.status == 500
    assert answer.error["title"] == "Internal Server Error"
    assert answer.detail == "the roof is on fire"
    assert "openstack-api-version" not in answer.headers
    assert answer.error["request_id"] == answer.headers["x-openstack-request-id"]


def test_a_request_that_finds_no_memory_is_a_503(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(api.store, "read_single", fail)
    answer = api.get(RP)
    assert answer.status == 503
    assert "no memory" in answer.detail
