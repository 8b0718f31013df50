"""The page of the fleet in a real browser: what it loads, and how long until the fleet is drawn."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.parts.servers import ours, write_config
from tests.fixtures.sample_fleet import hosts
from tests.functional.web.site import WEB_PATH, load

_HOSTS: Final = 10_000
_CAPTURED: Final = 500
"""So many of them are machines of 13 providers."""
_TIMES: Final = 5
_MOST_BYTES: Final = 2_000_000
_MOST_SECONDS: Final = 1.0
_OBSERVE: Final = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".summary")?.textContent.includes("hosts:")) return;
  observer.disconnect();
  // The second frame begins when the first one, with the map, has been painted.
  requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = performance.now(); }));
}).observe(document, {childList: true, subtree: true, characterData: true});
"""
_LOADED: Final = """[...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource")].map(each => each.transferSize)"""


def show(console: Console, quick: bool) -> bool:
    """Measure; return whether the page is as small and as quick as it has to be."""
    from playwright.sync_api import sync_playwright

    scale = 10 if quick else 1
    options = "sync_on_startup = true\nsqlite_synchronous = false\n"
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        directory = Path(name)
        connection = f"sqlite:///{directory}/placement.db"
        extra = f"[placement_database]\n{options}[placement_server]\nweb_path = {WEB_PATH}\n"
        config = write_config(directory, connection)
        config.write_text(config.read_text() + extra)
        load(config, hosts(directory, (_HOSTS - _CAPTURED) // scale, _CAPTURED // scale))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with ours(directory, connection, 1, extra) as server:
            measurements = [_measure(browser, f"{server.url}{WEB_PATH}/") for _ in range(_TIMES)]
        browser.close()
    size = max(size for size, _ in measurements)
    seconds = statistics.median(seconds for _, seconds in measurements)
    table = Table(title=f"The page of a fleet of {_HOSTS // scale:,} hosts")
    for heading in ("", "measured", "at most"):
        table.add_column(heading)
    table.add_row("bytes loaded", f"{size:,}", f"{_MOST_BYTES:,}")
    table.add_row("seconds until drawn", f"{seconds:.2f}", f"{_MOST_SECONDS:.2f}")
    console.print(table)
    return size <= _MOST_BYTES and seconds <= _MOST_SECONDS


def _measure(browser: Any, url: str) -> tuple[int, float]:
    """The bytes that the page loads, and the seconds until the fleet is drawn."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(_OBSERVE)
    page.goto(url)
    page.locator(".summary", has_text="hosts:").wait_for()
    drawn_at = None
    while drawn_at is None:
        drawn_at = page.evaluate("window.drawn ?? null")
    size = sum(page.evaluate(_LOADED))
    page.context.close()
    return size, drawn_at / 1000
