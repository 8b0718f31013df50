"""Files of what a release is installed with, beside setup.cfg and constraints.txt."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
NOT_OF_PROGRAMS = {"dev", "testing", "unit", "test", "bench", "lint"}
AGAIN = "they differ: run tools/release_constraints.sh"


def pins(name: str) -> dict[str, Version]:
    """Names and versions of a file of pip."""
    found = re.findall(r"^([\w.-]+)==([^ ;\\\n]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in found}


def requirements() -> list[Requirement]:
    """The packages that all programs need."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"]]
    extras = setup["options.extras_require"]
    texts += [text for extra, text in extras.items() if extra not in NOT_OF_PROGRAMS]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "name",
    [
        "requirements-release.txt",
        "constraints-oldest.txt",
        "constraints-flamingo.txt",
        "constraints-gazpacho.txt",
    ],
)
def test_every_package_that_a_program_needs_is_there_in_a_version_that_it_allows(name: str) -> None:
    versions = pins(name)
    wrong = [
        str(requirement)
        for requirement in requirements()
        if versions.get(canonicalize_name(requirement.name)) not in requirement.specifier
    ]
    assert wrong == [], AGAIN


def test_a_release_has_the_versions_that_everything_is_tested_with() -> None:
    tested = pins("constraints.txt")
    released = pins("requirements-release.txt")
    assert {name: tested.get(name, version) for name, version in released.items()} == released, (
        AGAIN
    )


def test_every_package_of_a_release_has_hashes() -> None:
    text = (ROOT / "requirements-release.txt").read_text()
    packages = re.split(r"\n(?=[a-zA-Z])", text.partition("\n")[2])
    assert len(packages) == len(pins("requirements-release.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", package) for package in packages)


def test_the_oldest_versions_are_the_bounds_of_setup_cfg() -> None:
    oldest = pins("constraints-oldest.txt")
    for requirement in requirements():
        (bound,) = (spec.version for spec in requirement.specifier if spec.operator == ">=")
        # the first version that there is from the bound on, which may have one more number
        version = oldest[canonicalize_name(requirement.name)]
        assert version.release[:2] == (*Version(bound).release, 0)[:2], requirement
