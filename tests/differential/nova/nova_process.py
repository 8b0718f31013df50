"""Nova in a process of an environment of its own, which does what a test asks for."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, settings

from tests.fixtures.environments import cached_environment, skip_without_environment

PACKAGE: Final = "nova==34.0.0"
EXAMPLES: Final = int(os.environ.get("NOVA_EXAMPLES", "400"))
SETTINGS: Final = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES <= 400,
)
VARIABLE: Final = "NOVA_REFERENCE_VENV"
"""Names an environment that has the package already; otherwise one is made in the cache."""


def nova_environment() -> Path:
    """Return the environment of nova; skip the test where there is none."""
    with skip_without_environment():
        return cached_environment(PACKAGE.replace("==", "-"), PACKAGE, variable=VARIABLE)


class Nova:
    """`nova_side.py` under Nova's interpreter.

    :param options: lines of its configuration.
    :param libraries: a directory of modules that its environment lacks.
    """

    def __init__(self, directory: Path, options: str = "", libraries: Path | None = None) -> None:
        config = directory / "nova.conf"
        config.write_text(f"[DEFAULT]\nstate_path = {directory}\n{options}")
        self._log = directory / "nova.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    nova_environment() / "bin" / "python",
                    *("-W", "ignore", Path(__file__).with_name("nova_side.py"), config),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | ({"PYTHONPATH": str(libraries)} if libraries else {}),
            )
        self._answer()

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Let it do something, and return the result."""
        assert self._process.stdin is not None
        print(json.dumps({"command": command, **arguments}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"nova ended: {self._log.read_text()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
