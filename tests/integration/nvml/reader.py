"""Reads GPUs through NVML once for each line on standard input, and prints each reading as JSON.

A process of its own: the binding keeps the library it has loaded for as long as it lives.
"""

from __future__ import annotations

import json
import logging
import sys

from compute_agent.discovery.nvml.recorded import to_json
from compute_agent.discovery.nvml.source import NvmlSource


def main() -> None:
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.getLogger("compute_agent.discovery")
    logger.addHandler(Keep())
    logger.setLevel(logging.INFO)
    source = NvmlSource()
    for _ in sys.stdin:
        reading = source.read()
        line = {
            "gpus": to_json(reading.gpus),
            "warnings": reading.warnings,
            "lost": reading.lost,
            "said": said,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
