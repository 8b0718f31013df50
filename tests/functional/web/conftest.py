"""One browser for the tests of this folder, and one server with pages for the whole run.

The browser ends when a worker leaves the folder: Playwright keeps an event loop in the thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
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
    """Open an address of the pages. A message on the console fails the test."""
    complaints: list[str] = []
    contexts: list[Any] = []

    def open_(address: str, *, url: str = site.pages, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.goto(f"{url}{address}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
