"""The published openstack-placement package as a black box: an environment and a process.

Nothing of the package is read or imported here. It lives in a virtual environment outside of the
repository, answers WSGI requests that come over a pipe, and keeps its data in an SQLite file.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from tests.fixtures.environments import cached_environment

from ..wsgi_client import Answer

PACKAGE = "openstack-placement==16.0.0"
VARIABLE = "PLACEMENT_REFERENCE_VENV"
"""An environment that has the package already; otherwise one is made in the cache directory."""

_CONFIGURATION = """
[placement_database]
connection = sqlite:///{directory}/reference.db
sync_on_startup = true
[api]
auth_strategy = noauth2
[oslo_policy]
enforce_new_defaults = false
[DEFAULT]
log_file = {directory}/reference.log
"""


def environment() -> Path:
    """The directory of the virtual environment with the package in it.

    :raises EnvironmentMissing: it cannot be made.
    """
    # The texts of schema errors are jsonschema's and change with its version.
    same = [f"{name}=={importlib.metadata.version(name)}" for name in ("jsonschema", "WebOb")]
    return cached_environment(PACKAGE.replace("==", "-"), PACKAGE, *same, variable=VARIABLE)


class Reference:
    """The package's web application in a process of its own."""

    def __init__(self, directory: Path) -> None:
        (directory / "placement.conf").write_text(_CONFIGURATION.format(directory=directory))
        self._log = (directory / "stderr").open("wb")
        self._process = subprocess.Popen(
            [
                str(environment() / "bin" / "python"),
                str(Path(__file__).with_name("wsgi_over_pipe.py")),
                "placement.wsgi.api:application",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(directory)},
            text=True,
        )
        self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended: {Path(self._log.name).read_text()[-2000:]}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        moment: datetime | None = None,
    ) -> Answer:
        """Send a request.

        :param moment: what its clock is to say from now on, in UTC.
        """
        path, _, query = url.partition("?")
        request: dict[str, Any] = {
            "method": method,
            "path": unquote_to_bytes(path).decode("latin-1"),
            "query": query,
            "headers": dict(headers),
        }
        if moment is not None:
            request["moment"] = moment.timestamp()
        if body is not None:
            request["body"] = base64.b64encode(body).decode()
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._read()
        return Answer(
            answer["status"],
            dict(answer["headers"]),
            base64.b64decode(answer["body"]),
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()
        self._log.close()


if __name__ == "__main__":
    sys.stdout.write(f"{environment()}\n")
