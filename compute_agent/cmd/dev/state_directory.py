"""The state directory of a development run, kept for the next one.

placement.db           placement-server's database
placement.conf         placement-server's configuration, written at every start
compute-agent.conf     agent's and scheduler's configuration, written at every start
agent/                 the agent's state: identity, ledger, cache
*-2.conf, agent-2/     those of a second host, and so on
machine/               the capture that is reported
env, bin/              the programs with the options of this run, for a shell
*.log                  output of the processes
lock                   held while a run uses the directory
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from compute_agent.cmd.dev.child import DevFailed
from compute_agent.cmd.dev.machine import Options

_UNUSABLE = "?$%\n"
WEB_PATH = "/-/web"
"""Where placement-server serves its pages."""
LONGEST_SOCKET_PATH = 107
"""Bytes a path of a UNIX socket may have (sun_path in unix(7), less the closing null)."""


def default_path(
    environment: Mapping[str, str], machine: str | None = None, hosts: int = 1
) -> Path:
    """Return the directory used by default for a fleet.

    `$XDG_STATE_HOME/compute-agent`, or `~/.local/state/compute-agent`; the XDG base directory
    specification demands that a relative XDG_STATE_HOME is ignored.
    """
    base = environment.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        path = Path(base) / "compute-agent"
    else:
        home = environment.get("HOME") or os.path.expanduser("~")
        path = Path(home) / ".local" / "state" / "compute-agent"
    if machine is None and hosts == 1:
        return path
    return path / "-".join([machine or "hosts", *([str(hosts)] if hosts > 1 else [])])


class AgentPlace(Struct, frozen=True):
    """The files of one agent."""

    config: Path
    state: Path
    log: Path

    @property
    def node_uuid_file(self) -> Path:
        """The file with the uuid of its node's root provider."""
        return self.state / "compute_id"

    @property
    def status_socket(self) -> str:
        """The path of its status socket; empty where a long path leaves no room for one."""
        path = str(self.state / "status.sock")
        return path if len(path.encode()) <= LONGEST_SOCKET_PATH else ""


class StateDirectory(Struct, frozen=True):
    """Paths below one state directory."""

    path: Path

    @property
    def placement_config(self) -> Path:
        """Configuration of placement-server."""
        return self.path / "placement.conf"

    @property
    def environment(self) -> Path:
        """Commands of a shell that make the programs use this run without options."""
        return self.path / "env"

    @property
    def machine(self) -> Path:
        """The captures that are reported."""
        return self.path / "machine"

    def agent(self, number: int = 1) -> AgentPlace:
        """Return where an agent, from 1 on, has its files."""
        suffix = "" if number == 1 else f"-{number}"
        return AgentPlace(
            self.path / f"compute-agent{suffix}.conf",
            self.path / f"agent{suffix}",
            self.log(f"compute-agent{suffix}"),
        )

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.path / f"{name}.log"

    def prepare(self, hosts: int = 1) -> None:
        """Create the directory and those below it, for as many hosts.

        :raises DevFailed: it cannot be created or written to.
        """
        if any(character in str(self.path) for character in _UNUSABLE):
            raise DevFailed(
                f"The state directory {str(self.path)!r} has a character that a database URL or a "
                "configuration file cannot hold (?, $, %, line break): choose another with "
                "--state-dir DIR."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for number in range(1, hosts + 1):
                (self.agent(number).state / "instances").mkdir(parents=True, exist_ok=True)
            probe = self.path / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise DevFailed(
                f"The state directory {self.path} cannot be used: {error.strerror}. Make it "
                "writable for you, or choose another with --state-dir DIR."
            ) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other run away from the directory.

        :raises DevFailed: another run uses it.
        """
        with (self.path / "lock").open("a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                pid = file.read().strip() or "unknown"
                raise DevFailed(
                    f"Another compute-agent dev (process {pid}) uses {self.path}: stop it, or "
                    "choose another directory with --state-dir DIR."
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def write_placement_config(self) -> None:
        """Write placement-server's configuration: SQLite, no authentication."""
        database = f"sqlite:///{self.path / 'placement.db'}"
        groups = {
            "placement_database": {"connection": database, "sync_on_startup": "true"},
            "placement_server": {"web_path": WEB_PATH},
            "api": {"auth_strategy": "noauth2"},
            "oslo_policy": {"enforce_new_defaults": "false"},
        }
        _write_config(self.placement_config, groups)

    def write_agent_config(
        self,
        number: int,
        url: str,
        interval: int,
        *,
        is_nested: bool,
        options: Options,
        host: str | None,
    ) -> None:
        """Write the configuration of an agent; the first one's is the scheduler's too.

        :param options: of the machine that it reports.
        :param host: its name; None: that of this machine.
        """
        place = self.agent(number)
        groups: dict[str, dict[str, str]] = {
            "DEFAULT": {
                **({"host": host} if host else {}),
                "state_path": str(place.state),
                "update_resources_interval": str(interval),
                "periodic_fuzzy_delay": "0",
            },
            "compute": {"enable_numa_reporting_to_placement": str(is_nested).lower()},
            "compute_agent": {"status_socket": place.status_socket},
            "compute_scheduler": {"journal_path": str(self.path / "scheduler-journal")},
            "placement": {"auth_type": "noauth", "endpoint_override": url},
        }
        for group, values in options.items():
            groups.setdefault(group, {}).update(values)
        _write_config(place.config, groups)

    def write_environment(self, url: str, programs: Path) -> None:
        """Write the file that a shell reads, and the programs with the options of this run.

        :param programs: the directory that the programs of this installation are in.
        """
        directory = self.path / "bin"
        directory.mkdir(exist_ok=True)
        config = f"--config-file={shlex.quote(str(self.agent().config))}"
        # another run, which the caller names
        own = "--config-file|--config-file=*|--config-dir|--config-dir=*"
        for name, options, other in (
            ("compute-agent", config, f"dev|{own}"),
            ("compute-manage", config, own),
            ("compute-scheduler", config, own),
            ("placement", f"--url={shlex.quote(url)}", f"--url|--url=*|--os-cloud|{own}"),
        ):
            program = shlex.quote(str(programs / name))
            script = directory / name
            script.write_text(
                "#!/bin/sh\n"
                "# Written by compute-agent dev at every start.\n"
                "for word; do\n"
                f'    case "$word" in {other}) exec {program} "$@" ;; esac\n'
                "done\n"
                f'exec {program} {options} "$@"\n',
                encoding="utf-8",
            )
            script.chmod(0o755)
        path = ":".join(shlex.quote(str(place)) for place in (directory, programs))
        self.environment.write_text(
            "# Written by compute-agent dev at every start, to be read by a shell.\n"
            f'export PATH={path}:"$PATH"\n',
            encoding="utf-8",
        )


def _write_config(path: Path, groups: Options) -> None:
    lines = ["# Written by compute-agent dev at every start."]
    for group, values in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in values.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
