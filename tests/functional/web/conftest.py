"""One browser for the tests of this folder, and one server with pages for the whole run.

The browser ends when a worker leaves the folder: Playwright keeps an event loop in the thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.run_parts import RunPart

from . import site as sites
from .site import Site

CHROMIUM = shutil.which("chromium")
VIEWPORT = {"width": 1280, "height": 900}

OpenPage = Callable[..., Any]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian package: chromium)")
    with playwright.sync_playwright() as running:
        # Chromium's sandbox cannot be had as root, and its shared memory not in small containers.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site(browser: Any, run_directory: Path) -> Iterator[Site]:
    with RunPart("web", run_directory, sites.start).used() as part:
        yield Site(part["url"])


@pytest.fixture(scope="package")
def window(browser: Any) -> Iterator[Any]:
    """A context of the browser that pages share, as they keep nothing."""
    context = browser.new_context(viewport=VIEWPORT)
    yield context
    context.close()


@pytest.fixture(scope="package")
def tab(window: Any) -> Any:
    """A page that tests use one after another: a new one costs two processes of the browser."""
    return window.new_page()


@pytest.fixture
def open_page(tab: Any, site: Site) -> Iterator[OpenPage]:
    """Open an address of the pages. A message on the console fails the test.

    With `complaints` those that contain one of these texts do not. `prepare` gets the page
    before it loads.
    """
    unexpected: list[str] = []
    expected: list[str] = []

    def complain(text: str) -> None:
        if not any(part in text for part in expected):
            unexpected.append(text)

    def on_console(message: Any) -> None:
        complain(f"{message.type}: {message.text}")

    def on_error(error: Any) -> None:
        complain(f"error: {error}")

    def open_(
        address: str,
        *,
        complaints: Sequence[str] = (),
        prepare: Callable[[Any], None] | None = None,
        color_scheme: str | None = None,
    ) -> Any:
        expected.extend(complaints)
        tab.emulate_media(color_scheme=color_scheme or "light")
        tab.on("console", on_console)
        tab.on("pageerror", on_error)
        if prepare is not None:
            prepare(tab)
        tab.goto(f"{site.pages}{address}")
        return tab

    yield open_
    tab.remove_listener("console", on_console)
    tab.remove_listener("pageerror", on_error)
    tab.evaluate("sessionStorage.clear()")
    tab.unroute_all(behavior="ignoreErrors")
    tab.goto("about:blank")
    assert unexpected == []


@pytest.fixture(scope="package")
def modules(window: Any, site: Site) -> Iterator[Callable[..., Any]]:
    """Call a function of a module of the pages."""
    page = window.new_page()
    page.goto(site.pages)

    def call(module: str, name: str, *arguments: Any) -> Any:
        source = "async ([module, name, given]) => (await import(module))[name](...given)"
        return page.evaluate(source, [f"{site.pages}{module}", name, list(arguments)])

    yield call
    page.close()
