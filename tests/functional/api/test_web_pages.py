"""The files of the pages: where they are, and what keeps a browser from doing more with them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import placement_server

from .conftest import MakeApi
from .wsgi_client import Client

STATIC = Path(placement_server.__file__).parent / "web" / "static"


def test_the_pages_are_nowhere_until_they_are_configured(make_api: MakeApi) -> None:
    api = make_api(placement_server__web_path="")
    assert api.get("/-/web/", token=None).status == 401
    assert api.get("/-/web/").status == 404
    assert api.get("/-/web/fleet").status == 404


def test_every_file_is_served_without_a_token_and_is_asked_for_again_only_if_it_changed(
    api: Client,
) -> None:
    names = [str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file()]
    assert len(names) > 5
    for name in names:
        shown = "" if name == "index.html" else name
        answer = api.get(f"/-/web/{shown}", token=None)
        assert answer.status == 200, name
        if shown:
            assert answer.body == (STATIC / name).read_bytes()
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        known = {"If-None-Match": answer.headers["etag"]}
        again = api.get(f"/-/web/{shown}", token=None, headers=known)
        assert (again.status, again.body) == (304, b"")
        other = api.get(f"/-/web/{shown}", token=None, headers={"If-None-Match": '"other"'})
        assert other.status == 200


def test_what_is_not_a_file_of_the_pages_is_not_found(api: Client) -> None:
    for name in ("x.js", "../__init__.py", "%2e%2e/pages.py", "index.html", "fleet/", "fleet"):
        expected = 401 if name == "fleet" else 404
        assert api.get(f"/-/web/{name}", token=None).status == expected, name
    assert api.get("/-/webs", token=None).status == 401
    assert api.post("/-/web/", {}, token=None).status == 405
    assert api("HEAD", "/-/web/style.css", token=None).body == b""
    assert api("HEAD", "/-/web/x.js", token=None).body == b""


def test_the_page_knows_where_the_api_is_and_how_callers_are_known(make_api: MakeApi) -> None:
    api = make_api(placement_server__web_path="/ui", placement_server__cloud_name="A<b>")
    moved = api.get("/ui", token=None, environ={"SCRIPT_NAME": "/placement"})
    assert (moved.status, moved.headers["location"]) == (308, "/placement/ui/")
    page = api.get("/ui/", token=None).body.decode()
    assert 'data-cloud="A&lt;b&gt;"' in page
    assert '<body data-api="../" data-auth="noauth2"' in page
    modules = re.findall('rel="modulepreload" href="([^"]*)"', page)
    assert modules == sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*.js"))
    other = make_api(placement_server__web_path="/a/b").get("/a/b/", token=None).body.decode()
    assert 'data-api="../../"' in other


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_from_elsewhere() -> None:
    """What the content policy would refuse, found before a browser does."""

    class StrictParser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            names = dict(attrs)
            assert tag != "style"
            assert tag != "script" or names.get("src"), "an inline script"
            assert not any(name.startswith("on") or name == "style" for name in names)
            for name in ("src", "href"):
                assert ":" not in (names.get(name) or ""), "something of another origin"

    StrictParser().feed((STATIC / "index.html").read_text())
    for path in STATIC.rglob("*.js"):
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"localStorage|sessionStorage|cookie|indexedDB", text)
