"""Each option of nova's own sample has an effect here, or is named at the start.

The sample is written by nova's generator, of the groups that are read here.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from oslo_config import cfg

from compute_agent import conf as agent_conf
from tests.differential.nova.nova_process import nova_environment

Option = dict[str, Any]

OTHER_DEFAULTS: Final = {
    "[DEFAULT]compute_driver": "the driver is ours",
    "[DEFAULT]host": "of the machine that it is generated on",
    "[DEFAULT]my_ip": "likewise",
    "[DEFAULT]state_path": "the directory is ours",
    "[compute]provider_config_location": "the directory is ours",
    "[scheduler]workers": "a process of ours has threads; Nova's default is a process a CPU",
}
"""Options with another default than nova's, and why."""
OTHER_RANGES: Final = {
    "[DEFAULT]report_interval": "0 and less: the host would count as away",
    "[DEFAULT]service_down_time": "0 and less: every host would count as away",
    "[compute]consecutive_build_service_disable_threshold": "less than 0 means nothing",
}
"""Options of which some values that nova takes are refused by name, and why."""


def numbers(option: Option) -> Iterator[Any]:
    """Yield the least and the greatest number that nova allows, if it is a number."""
    if option["type"] in ("integer value", "floating point value", "port value"):
        yield from (bound for bound in (option["min"], option["max"]) if bound is not None)
        if option["min"] is None:
            yield -1
        yield 0 if option["min"] in (None, -1, 0) else option["min"]


def values(option: Option) -> Iterator[Any]:
    """Yield values that nova allows."""
    yield from (choice[0] for choice in option["choices"] if choice[0] is not None)
    yield from numbers(option)
    default = option["default"]
    if not option["choices"] and isinstance(default, str | int | float) and "$" not in str(default):
        yield default
    if option["type"] == "boolean value":
        yield not default


@pytest.fixture(scope="module")
def sample() -> dict[str, list[Option]]:
    """The options of the groups that are read here."""
    written = subprocess.run(
        [
            nova_environment() / "bin" / "oslo-config-generator",
            *("--namespace", "nova.conf", "--format", "json"),
        ],
        capture_output=True,
        check=True,
    )
    groups = json.loads(written.stdout)["options"]
    known = agent_conf.unparsed_config()
    return {
        group: body["opts"]
        for group, body in groups.items()
        if group == "DEFAULT" or (group in known and "auth_type" not in known[group])
    }


def read_here(group: str) -> Any:
    """Return the options of a group that are registered here."""
    known = agent_conf.unparsed_config()
    own = dict(known._groups[group]._opts) if group in known._groups else {}
    return own | (dict(known._opts) if group == "DEFAULT" else {})


def write(path: Path, group: str, name: str, value: Any) -> list[str]:
    """Write a file with one option, and return the arguments that read it."""
    path.write_text(f"[{group}]\n{name} = {value}\n")
    return [f"--config-file={path}"]


def test_each_has_an_effect_or_is_named(
    sample: dict[str, list[Option]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    names: Counter[str] = Counter()
    lines = []
    for group, options in sample.items():
        lines.append(f"[{group}]")
        for option in options:
            is_other = f"[{group}]{option['dest']}" in OTHER_RANGES
            value = option["default"] if is_other else next(values(option), "a:1")
            lines.append(f"{option['dest']} = {value}")
    text = "\n".join(lines)
    file = tmp_path / "nova.conf"
    file.write_text(text)
    conf = agent_conf.unparsed_config()
    conf([], default_config_files=[str(file)], default_config_dirs=[])
    agent_conf.warn_of_useless(conf)
    named = " ".join(record.getMessage() for record in caplog.records)
    without_effect = {*agent_conf.accepted.names()}
    for group, options in sample.items():
        read = read_here(group)
        for option in options:
            dest = option["dest"]
            has_effect = dest in read and (group, dest) not in without_effect
            assert has_effect or f"[{group}]{dest}" in named, dest
            names["effect" if has_effect else "named at the start"] += 1
    sys.__stdout__.write(f"\noptions of nova: {dict(names)}\n")


def test_each_that_has_an_effect_takes_what_it_takes_in_nova(
    sample: dict[str, list[Option]], tmp_path: Path
) -> None:
    wrong: list[str] = []
    for group, options in sample.items():
        read = read_here(group)
        for option in options:
            if option["dest"] not in read:
                continue
            name, own = f"[{group}]{option['dest']}", read[option["dest"]]["opt"]
            if own.default != option["default"] and name not in OTHER_DEFAULTS:
                wrong.append(f"{name}: {own.default!r} in the place of {option['default']!r}")
            old = {
                (o["group"] or group, o["name"].replace("-", "_"))
                for o in option["deprecated_opts"]
            }
            ours = {(o.group or group, str(o.name).replace("-", "_")) for o in own.deprecated_opts}
            wrong += [f"{name}: the old name {former}" for former in old - ours]
            for value in values(option) if name not in OTHER_RANGES else ():
                conf = cfg.ConfigOpts()
                conf.register_opt(own, group=None if group == "DEFAULT" else group)
                arguments = write(tmp_path / "nova.conf", group, option["dest"], value)
                conf(arguments, default_config_files=[], default_config_dirs=[])
                try:
                    _ = (conf if group == "DEFAULT" else conf[group])[own.dest]
                except ValueError as error:
                    wrong.append(f"{name} = {value}: {error}")
    assert not wrong, "\n".join(wrong)
