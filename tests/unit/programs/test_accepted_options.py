"""Options that parse and have no effect: named once where they are set."""

import logging
from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from compute_agent.conf import accepted
from placement_server import conf as server_conf
from placement_server.conf import published


def test_options_without_effect_are_named_where_a_file_sets_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "nova.conf"
    file.write_text(
        "[libvirt]\ncpu_power_governor_low = ondemand\nfile_backed_memory = 1024\n"
        "num_memory_encrypted_guests = 15\n"
        "[compute]\nshutdown_retry_interval = 10\n[metrics]\nweight_setting = cpu.percent=-1.0\n"
    )
    agent_conf.warn_of_useless(agent_conf.new_config(default_config_files=[str(file)]))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        "[compute]shutdown_retry_interval, [libvirt]cpu_power_governor_low, "
        "[libvirt]num_memory_encrypted_guests, [metrics]weight_setting." in record.getMessage()
    )


def test_no_code_reads_an_option_that_has_no_effect() -> None:
    package = Path(agent_conf.__file__).parents[1]
    modules = [m for m in package.rglob("*.py") if m.parent.name != "conf"]
    text = "\n".join(module.read_text() for module in modules)
    read = [
        f"[{group}]{opt.dest}"
        for group, opts in accepted.OPTIONS.items()
        for opt in opts
        if f"{group}.{opt.dest}" in text
    ]
    assert read == []


def test_an_option_of_the_server_without_effect_is_named_where_a_file_sets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "placement.conf"
    file.write_text(
        "[DEFAULT]\ntempdir = /tmp\n"
        "[profiler]\nenabled = true\nhmac_keys = key\n"
        "[workarounds]\noptimize_for_wide_provider_trees = false\n"
    )
    server_conf.warn_of_useless(server_conf.new_config(config_files=[file]))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        record.getMessage()
        .split(": ")[1]
        .startswith(
            "[DEFAULT]tempdir, [profiler]enabled, [workarounds]optimize_for_wide_provider_trees."
        )
    )


def test_no_code_of_the_server_reads_an_option_that_has_no_effect() -> None:
    package = Path(server_conf.__file__).parents[1]
    modules = [m for m in package.rglob("*.py") if m.parent.name != "conf"]
    text = "\n".join(module.read_text() for module in modules)
    names = [f"{group or 'conf'}.{name}" for group, name in published.WITHOUT_EFFECT]
    assert [name for name in names if name in text] == []
