"""A process that reads through the real binding, on a library that answers from a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Reader:
    """The process; `read` is one reading of the machine that the answers describe."""

    def __init__(self, directory: Path, library: Path | None) -> None:
        self._answers = directory / "answers"
        environment = {
            **os.environ,
            "NVML_ANSWERS": str(self._answers),
            "PYTHONPATH": str(ROOT),
            "LD_LIBRARY_PATH": str(library or directory),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.nvml.reader"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, answers: Mapping[str, object]) -> dict[str, Any]:
        text = "".join(f"{key} = {value}\n" for key, value in answers.items())
        replacement = self._answers.with_suffix(".new")
        replacement.write_text(text)
        replacement.replace(self._answers)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("read\n")
        self.process.stdin.flush()
        reading: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reading

    def forget(self, address: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"forget {address}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.communicate(timeout=30)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a libnvidia-ml.so.1 of our own."""
    pytest.importorskip("pynvml", reason="pynvml is missing: pip install nvidia-ml-py")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is missing (Debian: apt-get install gcc libc6-dev)")
    directory = tmp_path_factory.mktemp("nvml")
    name = "libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    command = [compiler, *flags, "-o", str(directory / name), str(HERE / "answers.c")]
    subprocess.run(command, check=True)
    return directory


@pytest.fixture
def reader(tmp_path: Path, library: Path) -> Iterator[Reader]:
    process = Reader(tmp_path, library)
    yield process
    process.close()


@pytest.fixture
def reader_without_library(tmp_path: Path) -> Iterator[Reader]:
    pytest.importorskip("pynvml", reason="pynvml is missing: pip install nvidia-ml-py")
    process = Reader(tmp_path, None)
    yield process
    process.close()
