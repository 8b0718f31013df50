"""The meaning of an answer of placement."""

import json

import pytest

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.transports.transport import Request, make_response


def explained(status: int, detail: str = "d", **more):
    entry = {"status": status, "title": "t", "detail": detail, "request_id": "req-1", **more}
    return make_response(
        status, [("Content-Type", "application/json")], json.dumps({"errors": [entry]})
    )


def judge(response):
    responses.raise_unless_answered(Request("GET", "/x", doing="Doing it"), response)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.PlacementUnauthorized),
        (403, errors.PlacementUnauthorized),
        (429, errors.PlacementUnavailable),
        (500, errors.PlacementUnavailable),
        (502, errors.PlacementUnavailable),
        (503, errors.PlacementUnavailable),
        (504, errors.PlacementUnavailable),
    ],
)
@pytest.mark.parametrize("body", ["placement", "html", "empty"])
def test_trouble_that_does_not_depend_on_the_question_has_one_type(status, kind, body):
    response = {
        "placement": explained(status),
        "html": make_response(status, [], "<html>proxy</html>"),
        "empty": make_response(status, [], ""),
    }[body]
    with pytest.raises(kind) as raised:
        judge(response)
    assert raised.value.status == status
    assert raised.value.method == "GET"


def test_a_page_of_a_proxy_is_named_in_one_line():
    page = "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>\n<hr>nginx</body></html>\n"
    with pytest.raises(errors.PlacementUnavailable) as raised:
        judge(make_response(502, [], page))
    assert str(raised.value) == (
        "Doing it failed: placement answered 502 to GET /x: a page '502 Bad Gateway'"
    )


@pytest.mark.parametrize("status", [400, 404, 409])
def test_placements_own_refusals_are_left_to_the_caller(status):
    judge(explained(status))


@pytest.mark.parametrize("status", [400, 404, 409, 413])
@pytest.mark.parametrize(
    "text", ["<html>", "", "{}", '{"errors": []}', '{"errors": [{"status": "x"}]}', "[1]", '"s"']
)
def test_a_refusal_that_is_not_placements_is_never_taken_for_its_opinion(status, text):
    with pytest.raises(errors.PlacementError) as raised:
        judge(make_response(status, [], text))
    assert type(raised.value) is errors.PlacementError


def test_a_foreign_body_is_shown_up_to_500_characters():
    with pytest.raises(errors.PlacementError) as raised:
        judge(make_response(418, [], "y" * 600))
    assert "y" * 500 in str(raised.value)
    assert "y" * 501 not in str(raised.value)


def test_an_unsupported_microversion_names_both_sides():
    with pytest.raises(errors.PlacementTooOld, match=r"needs microversion 1\.30.*1\.0 to 1\.29"):
        judge(explained(406, min_version="1.0", max_version="1.29"))


def test_an_error_says_what_to_what_and_where_to_look_it_up():
    response = explained(
        409,
        "There was a conflict.\n\n  generation\n conflict  ",
        code="placement.concurrent_update",
    )
    request = Request("PUT", "/p", doing="Replacing the traits of x")
    error = responses.failure(errors.ResourceProviderUpdateConflict, request, response)
    assert str(error) == (
        "Replacing the traits of x failed: placement answered 409 to PUT /p: "
        "generation conflict [req-1]"
    )
    assert error.code == "placement.concurrent_update"
    assert error.request_id == "req-1"
    assert error.detail == "generation conflict"


@pytest.mark.parametrize(
    ("detail", "code", "conflict", "consumer"),
    [
        ("resource provider generation conflict", responses.CONCURRENT_UPDATE, True, False),
        ("consumer generation conflict - expected 1", responses.CONCURRENT_UPDATE, True, True),
        ("would exceed the capacity", "placement.undefined_code", False, False),
    ],
)
def test_the_kinds_of_conflict_are_told_apart(detail, code, conflict, consumer):
    response = explained(409, detail, code=code)
    assert responses.is_conflict(response) is conflict
    assert responses.is_consumer_conflict(response) is consumer


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [([("Retry-After", "3")], 3.0), ([("retry-after", "0.5")], 0.5), ([], None)],
)
def test_retry_after_is_read_as_seconds(headers, seconds):
    assert responses.retry_after(make_response(503, headers, "")) == seconds
