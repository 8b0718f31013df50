"""The page docs/understand/dependencies.md: what other projects bring, and what would replace them.

From setup.cfg, whose comments say what a package is for, from the constraints, from what is
installed (all extras have to be), and from the index that uv is configured for.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parent.parent
TARGET: Final = ROOT / "docs" / "understand" / "dependencies.md"
_REQUIREMENT: Final = re.compile(r"^    ([A-Za-z][\w.-]*)(\[\w+\])?[><=]")
_OF_TESTS: Final = {"unit", "test", "bench", "lint"}
_CONSTRAINTS: Final = ("constraints-flamingo.txt", "constraints-gazpacho.txt", "constraints.txt")
_OF_OPENSTACK: Final = "nothing: part of OpenStack"
_REPLACEMENTS: Final = {
    "alembic": "migrations in SQL, as there are few",
    "fixtures": "context managers; projects of OpenStack expect it",
    "granian": "any WSGI server with threads, such as gunicorn: `placement_server.wsgi`",
    "jsonschema": "fastjsonschema, with other texts in errors",
    "libvirt-python": "nothing; `host.HostDriver` does without a hypervisor",
    "msgspec": "dataclasses, and a check of each document by hand",
    "numpy": "nothing: the search is array operations",
    "nvidia-ml-py": "sysfs, which shows GPUs and vGPUs and no MIG",
    "opentelemetry-exporter-otlp-proto-http": "spans posted as JSON with requests",
    "opentelemetry-sdk": "trace ids of our own",
    "orjson": "json of the standard library, which takes more CPU",
    "prometheus-client": "a writer of its text format",
    "psycopg": "pg8000, in pure Python",
    "PyMySQL": "mysqlclient, which is compiled",
    "PyYAML": "ruamel.yaml",
    "python-memcached": "pymemcache, once keystonemiddleware takes it",
    "requests": "httpx; keystoneauth1 brings requests anyway",
    "rich": "tables and trees drawn by hand",
    "SQLAlchemy": "SQL by dialect, as the most frequent statements are already",
    "tenacity": "a loop with a limit",
    "WebOb": "parsers of Accept and of entity tags",
}


class Dependency(NamedTuple):
    """A package, the extra that has it, and what it is for."""

    name: str
    extra: str
    purpose: str


def dependencies() -> Iterator[Dependency]:
    """Yield the packages of setup.cfg that programs use."""
    content = (ROOT / "setup.cfg").read_text()
    always = content.partition("install_requires =\n")[2].partition("\n[")[0]
    extras = content.partition("[options.extras_require]\n")[2]
    extra, purpose, line_before = "always", "", ""
    for line in [*always.splitlines(), *extras.splitlines()]:
        if comment := re.match(r" *# (.*)", line):
            # of several lines the first says it
            purpose = purpose if line_before.lstrip().startswith("# ") else comment[1]
        elif line and not line.startswith((" ", "#")):
            extra = line.split(" ")[0]
        elif (found := _REQUIREMENT.match(line)) and extra not in _OF_TESTS:
            yield Dependency(found[1], extra, purpose)
        line_before = line


def text() -> str:
    """Return the current content of the page."""
    versions = [versions_of(ROOT / name) for name in _CONSTRAINTS]
    releases = _last_releases(dependency.name for dependency in dependencies())
    rows = [
        f"| [{name}](https://pypi.org/project/{name}/) | {extra} | {purpose} | "
        f"{', '.join(dict.fromkeys(v for known in versions if (v := known.get(key_of(name)))))} | "
        f"{releases[key_of(name)]} | {_licence(name)} | {_keeper(name)} | "
        f"{_REPLACEMENTS.get(name, _OF_OPENSTACK)} |"
        for name, extra, purpose in dependencies()
    ]
    return "\n".join(
        [
            "# Dependencies",
            "",
            "What programs use of other projects, made by `python -m tools.dependencies`.",
            "Versions: the newest on 2025-10-01 and on 2026-04-01, and the one that everything is",
            "tested with (`constraints.txt`), as far as they differ. `setup.cfg` has the oldest.",
            "The last release is the newest that there was when this page was made, with its day.",
            "",
            "| package | extra | for | versions | last release | licence | kept by "
            "| in its place |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _last_releases(names: Iterable[str]) -> dict[str, str]:
    """Return version and day of the newest release of each package, as its index has them."""
    command = ["uv", "pip", "compile", "--no-deps", "--no-header", "--format=pylock.toml", "-"]
    compiled = subprocess.run(
        command, input="\n".join(names), check=True, capture_output=True, text=True
    )
    return {
        key_of(package["name"]): f"{package['version']}, {day:%Y-%m-%d}"
        for package in tomllib.loads(compiled.stdout)["packages"]
        for files in [[*package.get("wheels", ()), *filter(None, [package.get("sdist")])]]
        for day in [min(file["upload-time"] for file in files)]
    }


def versions_of(file: Path) -> dict[str, str]:
    pairs = re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(), re.MULTILINE)
    return {key_of(name): version for name, version in pairs}


def key_of(name: str) -> str:
    return re.sub(r"[._-]+", "-", name).lower()


def _licence(name: str) -> str:
    found = metadata(name)
    words = found["License-Expression"] or (found["License"] or "").partition("\n")[0]
    if words and words != "UNKNOWN" and len(words) < 60:
        return words
    licences = [c for c in found.get_all("Classifier") or [] if c.startswith("License :: ")]
    return ", ".join(licence.rpartition(" :: ")[2] for licence in licences)


def _keeper(name: str) -> str:
    """Return who has its source, else its author."""
    found = metadata(name)
    entries = [*(found.get_all("Project-URL") or []), f", {found['Home-page']}"]
    for url in (urlsplit(entry.partition(", ")[2]) for entry in entries):
        owner = url.path.strip("/").split("/")[0]
        if url.netloc in ("github.com", "opendev.org", "gitlab.com") and owner != "sponsors":
            return f"{url.netloc}/{owner}"
    return found["Author"] or found["Maintainer"] or "its project"


if __name__ == "__main__":
    TARGET.write_text(text())
