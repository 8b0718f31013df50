"""Content types: what clients accept, and what bodies are."""

import pytest

from .wsgi_client import Client

RP = "/resource_providers"


def test_the_406_of_accept_tells_no_versions(api: Client) -> None:
    answer = api.get(RP, headers={"Accept": "text/plain"})
    assert answer.status == 406
    assert b"Only application/json is provided" in answer.body
    assert b"max_version" not in answer.body


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/html", "text/html; charset=UTF-8"),
        ("text/plain", "text/plain; charset=UTF-8"),
        ("application/json", "application/json"),
    ],
)
def test_the_text_of_an_error_is_in_every_rendering(
    api: Client, accept: str, content_type: str
) -> None:
    for version, text in (
        ("0.5", b"Unacceptable version header: 0.5"),
        ("pony.horse", b"invalid version string: pony.horse"),
        ("1.39", b"The resource could not be found"),
    ):
        answer = api.get("/nowhere", version=version, headers={"Accept": accept})
        assert answer.headers["content-type"] == content_type
        assert text in answer.body


@pytest.mark.parametrize("accept", ["*/*", "", None])
def test_no_preference_yields_json_errors(api: Client, accept: str | None) -> None:
    answer = api.get("/nowhere", headers={} if accept is None else {"Accept": accept})
    assert answer.error["title"] == "Not Found"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 200),
        ("text/html,application/xhtml+xml,application/xml;q=0.9", 406),
        ("application/*", 200),
        ("application/json;q=0.1", 200),
        ("application/json;q=0", 406),
        ("nonsense", 200),
    ],
)
def test_accept_is_negotiated_with_wildcards_and_weights(
    api: Client, accept: str, status: int
) -> None:
    assert api.get(RP, headers={"Accept": accept}).status == status


def test_writes_and_single_traits_ignore_accept_on_success(api: Client) -> None:
    html = {"Accept": "text/html"}
    assert api.put("/traits/CUSTOM_A", headers=html).status == 201
    assert api.get("/traits/CUSTOM_A", headers=html).status == 204
    assert api.post(RP, {"name": "a"}, headers=html).status == 200
    assert api.get("/", headers=html).status == 200


def test_a_body_with_a_length_but_no_type_is_400(api: Client) -> None:
    for method, path in (("POST", RP), ("GET", RP), ("GET", "/nowhere")):
        answer = api(method, path, raw=b"1", content_type=None)
        assert answer.status == 400
        assert answer.detail == "content-type header required when content-length > 0"


def test_no_body_and_no_type_is_415(api: Client) -> None:
    answer = api.post(RP)
    assert answer.status == 415
    assert answer.detail == "The media type None is not supported, use application/json"
    assert answer.error["detail"].startswith("The request media type None is not supported by ")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/json;charset=utf-8", 200),
        ("Application/JSON", 415),
        ("text/plain", 415),
        ("json", 415),
    ],
)
def test_the_media_type_is_exactly_application_json(
    api: Client, content_type: str, status: int
) -> None:
    answer = api.post(RP, {"name": "a"}, content_type=content_type)
    assert answer.status == status
    if status == 415:
        assert answer.detail == (
            f"The media type {content_type} is not supported, use application/json"
        )


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", RP, "/traits/X", "/nowhere"])
def test_a_content_length_that_is_no_number_is_a_clean_400(
    api: Client, method: str, path: str
) -> None:
    answer = api(method, path, headers={"Content-Length": "hi mom"})
    assert answer.status == 400
    assert answer.detail == "content-length header must be an integer"
    assert answer.headers["openstack-api-version"] == "placement 1.39"
