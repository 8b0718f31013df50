"""Archives of machines whose single files nobody needs to look at."""

from __future__ import annotations

import tarfile
from pathlib import Path

HERE = Path(__file__).parent


def unpack(name: str, directory: Path) -> Path:
    """Unpack tests/data/<name>.tar.xz below `directory`; returns where the machine is."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(directory, filter="tar")
        else:  # before Python 3.11.4
            archive.extractall(directory)
    return directory / name
