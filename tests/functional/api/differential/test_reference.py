"""A published package that cannot be had: the tests against it say what would help."""

from pathlib import Path

import pytest

from tests.fixtures.environments import EnvironmentMissing

from .reference import PACKAGE, VARIABLE, Reference


def test_a_package_that_pip_cannot_install_is_named_with_the_ways_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(EnvironmentMissing) as missing:
        Reference(tmp_path)
    text = str(missing.value)
    assert text.startswith(PACKAGE)
    assert "is not installed" in text
    assert "No matching distribution" in text, "pip's own words"
    assert "package index" in text
    assert VARIABLE in text
    assert "\n" not in text, "pytest shows the first line of a reason only"


def test_an_environment_that_is_named_and_is_none_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names one wants these tests run: they fail, and are not skipped."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="none/bin/python"):
        Reference(tmp_path)
