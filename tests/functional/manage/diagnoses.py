"""The diagnoses of `compute-agent doctor`."""

import json

from compute_agent.cmd.agent import main as agent
from tests.functional.manage.conftest import Operator, Result


def examine(operator: Operator, *arguments: str) -> Result:
    operator.arguments("doctor")
    operator.capture.readouterr()
    config = f"--config-file={operator.directory / 'agent.conf'}"
    status = agent.main(["doctor", config, *arguments])
    return Result(status, *operator.capture.readouterr())


def told(result: Result, level: str) -> dict[str, str]:
    """The diagnoses of a level: subject to text."""
    return {
        diagnosis["subject"]: diagnosis["text"]
        for diagnosis in json.loads(result.out)["diagnoses"]
        if diagnosis["level"] == level
    }
