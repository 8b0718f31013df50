"""Reads GPUs through NVML for each line `read` on standard input, and prints the reading as JSON.

`forget ADDRESS` makes the source forget what a GPU reported.

A process of its own: the binding keeps the library it has loaded for as long as it lives.
"""

from __future__ import annotations

import json
import logging
import sys

from msgspec import to_builtins

from compute_agent.discovery.nvml.source import NvmlSource
from compute_agent.discovery.pci_address import pci_address


def main() -> None:
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.getLogger("compute_agent.discovery")
    logger.addHandler(Keep())
    logger.setLevel(logging.INFO)
    source = NvmlSource()
    for line_in in sys.stdin:
        command, _, address = line_in.strip().partition(" ")
        if command == "forget":
            source.forget(pci_address(address))
            continue
        reading = source.read()
        line = {
            "gpus": [to_builtins(gpu) for gpu in reading.gpus],
            "warnings": reading.warnings,
            "lost": reading.lost_gpus,
            "said": said,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
