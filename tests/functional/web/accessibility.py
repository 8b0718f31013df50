"""The rules of axe-core that a page breaks."""

from __future__ import annotations

from typing import Any


def violations(page: Any) -> list[str]:
    """The rules that a page breaks, with the first places."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {rule['help']}: {[node['html'] for node in rule['nodes'][:3]]}"
        for rule in found
    ]
