"""The command `bundle`: all that helps to find a fault of this machine, in one archive."""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple

from compute_agent import errors
from compute_agent.cmd.output import show
from compute_agent.programs.exit_status import Exit

_DIRECTORIES: Final = tuple(
    Path("/etc", name) for name in ("compute-agent", "compute-scheduler", "placement")
)
_MOST_SECONDS: Final = 120
"""Seconds after which a command is ended, as of one that waits for a hypervisor that hangs."""
_LAST_LOG_BYTES: Final = 8 * 2**20
_LARGEST_FILE: Final = 2**20
_LAST_LINES: Final = "40000"
"""Of the journal: a server that logs its requests has gigabytes of two days."""
_UNITS: Final = ("compute-agent", "compute-scheduler", "placement-server")
_READABLE: Final = (".conf", ".yaml", ".yml", ".json")

_SECRET_NAME: Final = re.compile(
    r"(?:pass|secret|token|key|credential)[\w.-]*(?=[\"']?\s*[=:])", re.IGNORECASE
)
"""The end of the name of an option, of a key of YAML and JSON, or of a parameter of a URL."""
_USER: Final = re.compile(r"(?<=://)\S{0,255}@|[^\s/:@]{1,64}:(?!//)\S{1,128}@")
"""User and password: of the first URL of a line, or of a further one, which has no scheme."""
_URLS: Final = re.compile(r"(?<=://).*@")
"""Users and passwords of the URLs of an option, also with a space, by which it does not work."""


def bundle(namespace: argparse.Namespace) -> int:
    """Write the archive."""
    name = f"compute-agent-{socket.gethostname()}-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    path = Path(namespace.file or name)
    options = [f"--config-file={file}" for file in namespace.config_file]
    options += [f"--config-dir={directory}" for directory in namespace.config_dir]
    directories = (*_DIRECTORIES, *map(Path, namespace.config_dir))
    if namespace.dry_run:
        print(f"Would write {path}.")
        return Exit.WOULD_CHANGE
    try:
        # of this user alone: logs name instances, projects and addresses
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with (
                os.fdopen(descriptor, "wb") as file,
                tarfile.open(fileobj=file, mode="w:gz") as archive,
            ):
                fill(archive, directories, options, map(Path, namespace.config_file))
        except BaseException:
            path.unlink()
            raise
    except OSError as error:
        raise errors.InvalidConfiguration(
            f"The archive {path} cannot be written: {error.strerror}. Name a file that does not "
            "exist, on a disk with space."
        ) from error
    show(
        namespace,
        {"file": str(path)},
        f"{path} has what is known of this machine. Passwords, tokens and keys are left out;",
        "names, addresses and serial numbers are in it: look through it before you send it.",
    )
    return Exit.FINE


class Command(NamedTuple):
    """A command whose output is an entry.

    :ivar needs: a file without which the program is not used on this machine.
    """

    name: str
    words: Sequence[str]
    needs: Path | None = None


def without_secrets(text: str) -> str:
    """Return a configuration without its comments, passwords, tokens, keys and users of URLs."""
    lines: list[str] = []
    secret_indent: int | None = None
    for line in text.split("\n"):
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        indent = len(line) - len(line.lstrip(" \t-"))
        if secret_indent is not None and indent > secret_indent:
            # further lines of a value
            continue
        match = _SECRET_NAME.search(line)
        secret_indent = indent if match else None
        shown = f"{line[: match.end()]} = ***" if match else line
        lines.append(_USER.sub("***@", _URLS.sub("***@", shown)))
    return "\n".join([*lines, ""])


def fill(
    archive: tarfile.TarFile,
    directories: Iterable[Path],
    config_options: Sequence[str],
    config_files: Iterable[Path],
) -> None:
    """Add what is known of this machine; a part that cannot be had says why in its place.

    :param directories: configuration of the programs, as `/etc/compute-agent`.
    :param config_options: options of the agent's commands that name its configuration.
    :param config_files: further files of configuration.
    """
    _add(archive, "versions.txt", _versions())
    found_files = (file for directory in directories for file in sorted(directory.rglob("*")))
    for file in dict.fromkeys((*found_files, *config_files)):
        if file.suffix in _READABLE and file.is_file():
            _add(archive, f"configuration{file.absolute()}", _configuration(file))
    for command in _commands(config_options):
        if command.needs is None or command.needs.exists():
            _add(archive, f"commands/{command.name}.txt", _output(command.words))
    with tempfile.TemporaryDirectory(prefix="compute-manage-") as directory:
        target = Path(directory) / "capture"
        words = [_program("compute-agent"), "capture", *config_options, str(target)]
        _add(archive, "commands/compute-agent-capture.txt", _output(words))
        if target.exists():
            archive.add(target, "capture")


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(content), int(time.time())
    archive.addfile(entry, io.BytesIO(content))


def _commands(config_options: Sequence[str]) -> Iterator[Command]:
    agent = [_program("compute-agent")]
    for words in (["status", "--json"], ["doctor"], ["history"], ["plan"]):
        yield Command(f"compute-agent-{words[0]}", [*agent, *words, *config_options])
    scheduler = Path("/etc/compute-scheduler/compute-scheduler.conf")
    words = ["--config-file", str(scheduler), "status", "upgrade"]
    yield Command("compute-scheduler-status", [_program("compute-scheduler"), *words], scheduler)
    server = Path("/etc/placement/placement.conf")
    words = ["--config-file", str(server), "upgrade", "check"]
    yield Command("placement-status", [_program("placement-status"), *words], server)
    for unit in _UNITS:
        yield Command(f"systemctl-{unit}", ["systemctl", "--no-pager", "--full", "status", unit])
        last = ["--since", "-2days", "--lines", _LAST_LINES, "--no-pager", "--output", "short-iso"]
        yield Command(f"journal-{unit}", ["journalctl", "--unit", unit, *last])
    yield Command("disks", ["df", "--human-readable"])
    yield Command("inodes", ["df", "--inodes"])
    yield Command("time", ["timedatectl"])


def _program(name: str) -> str:
    """Return the program beside the one that runs, or that of the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _versions() -> str:
    packages = sorted(f"{package.name}=={package.version}" for package in distributions())
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return "\n".join([platform.platform(), release, f"Python {sys.version}", "", *packages, ""])


def _configuration(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST_FILE:
            return "The file is larger than 1 MiB.\n"
        return without_secrets(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return f"It cannot be read: {error.strerror}.\n"


def _output(words: Sequence[str]) -> str:
    """Return what a command prints, the end of it if it is long, and its status."""
    head = f"$ {' '.join(words)}\n"
    if shutil.which(words[0]) is None:
        return head + "There is no such program.\n"
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_MOST_SECONDS,
            check=False,
        )
        printed, end = done.stdout, f"exit status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        printed, end = error.stdout or b"", f"It did not end in {_MOST_SECONDS} s."
    text = printed[-_LAST_LOG_BYTES:].decode(errors="replace")
    return f"{head}{_USER.sub('***@', text)}\n{end}\n"
