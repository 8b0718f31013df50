"""Options of placement.conf that parse and have no effect: logged once where they are set."""

import logging
from pathlib import Path

import pytest

from placement_server import conf as server_conf
from placement_server.conf import accepted


def test_an_option_without_effect_is_named_where_a_file_sets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "placement.conf"
    file.write_text(
        "[DEFAULT]\ntempdir = /tmp\n"
        "[profiler]\nenabled = true\nhmac_keys = key\n"
        "[workarounds]\noptimize_for_wide_provider_trees = false\n"
    )
    accepted.warn_of_set(server_conf.new_config(config_files=[file]))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        record.getMessage()
        .split(": ")[1]
        .startswith(
            "[DEFAULT]tempdir, [profiler]enabled, [workarounds]optimize_for_wide_provider_trees."
        )
    )


def test_defaults_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    accepted.warn_of_set(server_conf.new_config(config_files=[]))
    assert caplog.records == []


def test_no_code_reads_an_option_that_has_no_effect() -> None:
    package = Path(server_conf.__file__).parents[1]
    modules = [m for m in package.rglob("*.py") if m.parent.name != "conf"]
    text = "\n".join(module.read_text() for module in modules)
    names = [f"{group or 'conf'}.{name}" for group, name in accepted.WITHOUT_EFFECT]
    assert [name for name in names if name in text] == []
