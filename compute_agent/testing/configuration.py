"""Configurations of agents and schedulers of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from compute_agent.conf import new_config

Options = Mapping[str, Mapping[str, Any]]
"""Values of options, by group and name."""


def configuration(directory: Path, *sections: Options) -> cfg.ConfigOpts:
    """Return the configuration of a file with these sections; the last one to name an option wins.

    :raises InvalidConfiguration: an option has a value of the wrong type.
    """
    merged_options: dict[str, dict[str, Any]] = {}
    for section in sections:
        for group, values in section.items():
            merged_options.setdefault(group, {}).update(values)
    lines = []
    for group, values in merged_options.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in values.items())]
    path = directory / "compute-agent.conf"
    path.write_text("\n".join([*lines, ""]))
    return new_config([f"--config-file={path}"], default_config_dirs=[])
