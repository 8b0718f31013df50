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

OpenPage = Callable[..., Any]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs chromium")
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


@pytest.fixture
def open_page(browser: Any, site: Site) -> Iterator[OpenPage]:
    """Open an address of the pages. A message on the console fails the test.

    With ``complaints`` those that contain one of these texts do not. ``prepare`` gets the page
    before it loads.
    """
    unexpected: list[str] = []
    contexts: list[Any] = []

    def open_(
        address: str,
        *,
        complaints: Sequence[str] = (),
        prepare: Callable[[Any], None] | None = None,
        **options: Any,
    ) -> Any:
        def complain(text: str) -> None:
            if not any(expected in text for expected in complaints):
                unexpected.append(text)

        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complain(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complain(f"error: {error}"))
        if prepare is not None:
            prepare(page)
        page.goto(f"{site.pages}{address}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert unexpected == []


@pytest.fixture(scope="package")
def modules(browser: Any, site: Site) -> Iterator[Callable[..., Any]]:
    """Call a function of a module of the pages."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.pages)

    def call(module: str, name: str, *arguments: Any) -> Any:
        source = "async ([module, name, given]) => (await import(module))[name](...given)"
        return page.evaluate(source, [f"{site.pages}{module}", name, list(arguments)])

    yield call
    context.close()
