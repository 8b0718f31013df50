"""The drawing of folders in docs/understand/architecture.md, compared with the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {"__pycache__", "versions"}
LINE = re.compile(r"^(?P<indent> {4,})(?P<name>\w+)/(\s|$)")


def drawn_folders() -> set[str]:
    """Return the folders of the drawing, as paths below the repository."""
    text = (ROOT / "docs" / "understand" / "architecture.md").read_text()
    section = text.split("## Folders")[1].split("Imports go down")[0]
    folders, path = set(), []
    for line in section.splitlines():
        match = LINE.match(line)
        if match:
            depth = len(match["indent"]) // 4 - 1
            path[depth:] = [match["name"]]
            folders.add("/".join(path))
    return folders


def code_folders() -> set[str]:
    """Return the folders that hold modules, as paths below the repository."""
    return {
        str(module.parent.relative_to(ROOT))
        for package in ("compute_agent", "placement_server")
        for module in (ROOT / package).rglob("*.py")
        if not LEFT_OUT & set(module.parts)
    }


def test_the_drawing_shows_every_folder_of_the_code_and_no_other() -> None:
    assert drawn_folders() == code_folders()


def test_every_folder_says_what_belongs_in_it() -> None:
    silent = [
        folder
        for folder in sorted(code_folders())
        if not (ROOT / folder / "__init__.py").read_text().startswith('"""')
    ]
    assert silent == []
