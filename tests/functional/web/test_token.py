"""The token of a person who looks: asked for, sent to the API, and kept nowhere."""

from __future__ import annotations

from typing import Any

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def with_tokens(site: Site, sent: list[str]) -> Any:
    """Let the page believe that callers are known by Keystone, which says 401 to one of them."""

    def prepare(page: Any) -> None:
        def document(route: Any) -> None:
            answer = route.fetch()
            body = answer.text().replace('data-auth="noauth2"', 'data-auth="keystone"')
            route.fulfill(response=answer, body=body)

        def api(route: Any) -> None:
            token = route.request.headers.get("x-auth-token", "")
            sent.append(token)
            if token == "expired":
                route.fulfill(status=401, json={})
            else:
                route.continue_()

        page.route(site.pages, document)
        page.route("**/changes*", api)

    return prepare


def test_a_token_is_asked_for_and_is_neither_stored_nor_in_an_address(
    open_page: OpenPage, site: Site
) -> None:
    sent: list[str] = []
    page = open_page("#/fleet", prepare=with_tokens(site, sent), complaints=["401", "403"])
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_label("Password", exact=True).wait_for()
    assert violations(page) == []
    assert sent == []

    def use(token: str) -> None:
        page.get_by_text("Use a token instead").click()
        page.get_by_label("Token", exact=True).fill(token)
        page.get_by_role("button", name="Use it").click()

    use("expired")
    page.get_by_text("The server does not accept this login").wait_for()
    use("nobody")
    page.get_by_text("You may not read this.").wait_for()
    page.get_by_role("button", name="Log out").click()
    use("admin")
    page.locator(".summary", has_text="VCPU in use").wait_for()
    assert sent[:3] == ["expired", "nobody", "admin"]
    assert not any("admin" in url for url in [*requests, page.url])
    kept = page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]")
    assert kept == ["", 0, 0]
    page.reload()
    page.get_by_label("Password", exact=True).wait_for()
    assert page.get_by_label("Password", exact=True).input_value() == ""


def test_a_login_is_renewed_before_it_expires_and_is_kept_nowhere(
    open_page: OpenPage, site: Site
) -> None:
    sent: list[str] = []
    logins: list[Any] = []

    def prepare(page: Any) -> None:
        with_tokens(site, sent)(page)

        def login(route: Any) -> None:
            logins.append(route.request.post_data_json)
            if logins[-1]["password"] != "s3cret":
                detail = {"detail": "Keystone does not accept this name and password."}
                route.fulfill(status=401, json={"errors": [detail]})
                return
            # the first is about to expire when it comes
            expiry = "2020-01-01T00:00:00Z" if len(logins) == 2 else "2100-01-01T00:00:00Z"
            route.fulfill(json={"token": "admin", "expires_at": expiry})

        page.route("**/login", login)

    page = open_page("#/fleet", prepare=prepare, complaints=["401"])
    page.get_by_label("User", exact=True).fill("ops")
    for password in ("wrong", "s3cret"):
        page.get_by_label("Password", exact=True).fill(password)
        page.get_by_role("button", name="Log in").click()
        if password == "wrong":
            page.get_by_text("Keystone does not accept").wait_for()
    page.locator(".summary", has_text="VCPU in use").wait_for()
    assert [login["password"] for login in logins] == ["wrong", "s3cret", "s3cret"]
    assert logins[0] == {"user": "ops", "password": "wrong", "domain": "Default", "project": ""}
    assert set(sent) == {"admin"}
    assert "s3cret" not in page.url
    kept = page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]")
    assert kept == ["", 0, 0]
    page.get_by_role("button", name="Log out").click()
    assert page.get_by_label("Password", exact=True).input_value() == ""


def test_who_logs_out_stays_out_when_a_renewal_is_answered(open_page: OpenPage, site: Site) -> None:
    logins: list[Any] = []

    def prepare(page: Any) -> None:
        with_tokens(site, [])(page)

        def login(route: Any) -> None:
            logins.append(route)
            if len(logins) == 1:
                route.fulfill(json={"token": "admin", "expires_at": "2020-01-01T00:00:00Z"})

        page.route("**/login", login)

    page = open_page("#/fleet", prepare=prepare)
    page.get_by_label("User", exact=True).fill("ops")
    page.get_by_label("Password", exact=True).fill("s3cret")
    with page.expect_request(lambda request: request.url.endswith("/login") and logins):
        page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").click()
    with page.expect_response("**/login"):
        logins[1].fulfill(json={"token": "admin", "expires_at": "2100-01-01T00:00:00Z"})
    # what was answered before this is answered has been read
    page.evaluate("fetch(document.baseURI).then(answer => answer.text())")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    api = next(address for address in loaded if address.endswith("/api.js"))
    assert not page.evaluate("address => import(address).then(api => api.hasToken())", api)
    page.get_by_label("Password", exact=True).wait_for()
