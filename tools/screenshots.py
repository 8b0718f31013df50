"""Screenshots of the pages for the documentation, taken in Chromium of a made-up fleet.

python tools/screenshots.py [NAME ...] writes docs/images/pages-NAME.png, all when none is named.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402

from tests.fixtures.sample_fleet import ZONES, uuid_of  # noqa: E402
from tests.functional.web import site as sites  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
SIZE: Final = {"width": 1120, "height": 740}
GUESTS: Final = (
    "resources=VCPU:8,MEMORY_MB:8192&resources_GPU=VGPU:2&required_GPU=CUSTOM_GPU_TESLA_T4"
)
TOO_LARGE: Final = (
    f"resources=VCPU:118,MEMORY_MB:65536&required=HW_CPU_X86_AVX2&member_of={ZONES[3]}"
)

PICTURES: Final = {
    "fleet": ("#/fleet", "light"),
    "fleet-dark": ("#/fleet?order=use", "dark"),
    "host": (f"#/host/{uuid_of('gpu-04')}", "light"),
    "consumer": (f"#/consumer/{uuid_of('gpu-03 guest 4')}", "light"),
    "search": (f"#/search?q={quote(GUESTS, safe='')}", "light"),
    "explanation": (f"#/search?q={quote(TOO_LARGE, safe='')}", "dark"),
    "changes": ("#/changes", "light"),
}
"""By name of the picture: the address, and light or dark."""


def main(names: list[str]) -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    part = sites.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            for name in names or PICTURES:
                take(browser, f"{part['url']}{sites.WEB_PATH}/", name)
            browser.close()
    finally:
        os.kill(part["pid"], signal.SIGTERM)
        shutil.rmtree(part["directory"])


def take(browser: Any, pages: str, name: str) -> None:
    """Take one picture."""
    address, colours = PICTURES[name]
    page = browser.new_page(viewport=SIZE, color_scheme=colours)
    page.goto(f"{pages}{address}")
    # Every page ends with a table, which it fills last.
    page.locator("tbody tr").first.wait_for()
    page.screenshot(path=IMAGES / f"pages-{name}.png")
    page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
