"""Rendering of errors in the three forms."""

import json
import time
from typing import Any

import pytest

from placement_server import errors

REQUEST_ID = "req-00000000-0000-0000-0000-000000000001"


def environ(accept: str) -> dict[str, Any]:
    return {"HTTP_ACCEPT": accept, "REQUEST_METHOD": "GET", "CONTENT_TYPE": "text/plain"}


def render(
    error: errors.ApiError, accept: str = "application/json"
) -> tuple[str, dict[str, str], str]:
    status, headers, body = errors.render(error, environ(accept), (1, 39), REQUEST_ID)
    return status, {name.lower(): value for name, value in headers}, body.decode()


def entry(error: errors.ApiError) -> dict[str, Any]:
    _, headers, body = render(error)
    assert headers["content-type"] == "application/json"
    (only,) = json.loads(body)["errors"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize(
    ("error", "title", "lead"),
    [
        (
            errors.BadRequest("x"),
            "Bad Request",
            "The server could not comply with the request since it is either malformed or "
            "otherwise incorrect.",
        ),
        (errors.Forbidden("x"), "Forbidden", "Access was denied to this resource."),
        (errors.NotFound("x"), "Not Found", "The resource could not be found."),
        (
            errors.MethodNotAllowed("x"),
            "Method Not Allowed",
            "The method GET is not allowed for this resource.",
        ),
        (
            errors.NotAcceptable("x"),
            "Not Acceptable",
            "The resource could not be generated that was acceptable to your browser "
            "(content of type application/json.",
        ),
        (
            errors.Conflict("x"),
            "Conflict",
            "There was a conflict when trying to complete your request.",
        ),
        (
            errors.UnsupportedMediaType("x"),
            "Unsupported Media Type",
            "The request media type text/plain is not supported by this server.",
        ),
        (
            errors.InternalError("x"),
            "Internal Server Error",
            "The server has either erred or is incapable of performing the requested operation.",
        ),
    ],
)
def test_each_status_has_its_title_and_lead_sentence(
    error: errors.ApiError, title: str, lead: str
) -> None:
    shown = entry(error)
    assert shown["status"] == error.status
    assert shown["title"] == title
    head, _, rest = shown["detail"].partition("\n\n")
    assert head.strip() == lead
    assert rest.strip() == "x"


def test_line_breaks_become_blanks_and_tags_vanish() -> None:
    detail = entry(errors.BadRequest("a\nb <script>c</script> d < e"))["detail"]
    assert detail.partition("\n\n")[2].strip() == "a b c d < e"


def test_the_html_rendering_escapes_the_message() -> None:
    status, headers, body = render(errors.NotFound("a <b> c"), "text/html")
    assert status == "404 Not Found"
    assert headers["content-type"] == "text/html; charset=UTF-8"
    assert "<h1>404 Not Found</h1>" in body
    assert "The resource could not be found.<br /><br />" in body
    assert "a &lt;b&gt; c" in body


def test_the_plain_rendering_is_for_clients_that_accept_neither() -> None:
    _, headers, body = render(errors.NotFound("gone"), "text/x-unknown")
    assert headers["content-type"] == "text/plain; charset=UTF-8"
    assert body.startswith("404 Not Found\n\nThe resource could not be found.\n\n")
    assert "gone" in body


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/plain"])
def test_a_lone_surrogate_in_a_message_breaks_no_rendering(accept: str) -> None:
    body = render(errors.BadRequest("a\ud800b"), accept)[2]
    assert any(shown in body for shown in ("a\ufffdb", "a\\ufffdb", "a&#65533;b"))


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/plain"])
def test_megabytes_of_opening_brackets_are_rendered_in_no_time(accept: str) -> None:
    begun = time.process_time()
    render(errors.BadRequest("<" * 10_000_000), accept)
    assert time.process_time() - begun < 2
