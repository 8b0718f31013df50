"""Configurations and hosts for tests of drivers: whole, in memory, and different per test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from oslo_config import cfg

from compute_agent.conf import new_config

MakeConf = Callable[[str], cfg.ConfigOpts]


@pytest.fixture
def make_conf(tmp_path: Path) -> MakeConf:
    """A configuration from the text of a file; state and instances are below `tmp_path`."""

    def make(text: str = "") -> cfg.ConfigOpts:
        path = tmp_path / "compute-agent.conf"
        instances = tmp_path / "instances"
        instances.mkdir(exist_ok=True)
        defaults = f"[DEFAULT]\nhost = host1\nstate_path = {tmp_path}\n"
        path.write_text(f"{defaults}instances_path = {instances}\n{dedent(text)}\n")
        return new_config(["--config-file", str(path)], default_config_dirs=[])

    return make
