"""The nodes of an agent in this process, by a driver that a test scripts."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from compute_agent.agent.node_list import NODE_LIST, NodeList
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import PassSchedule
from tests.functional.agent.in_process import LyingTransport, assembled


class NodesScene:
    """The nodes of one agent, which runs what is due when it is told to."""

    def __init__(
        self, app: Any, directory: Path, driver: str = "ScriptedNodesDriver", more: str = ""
    ) -> None:
        self.script_path = directory / "script.json"
        self.transport = LyingTransport(InProcessTransport(app))
        _, self.parts = assembled(
            directory,
            self.transport,
            "update_resources_interval = -1\n"
            f"compute_driver = tests.functional.agent.scripted_driver.{driver}\n{more}",
        )
        self.tracker = self.parts.tracker(wait=lambda _seconds: False)
        self.schedule = PassSchedule(time.monotonic)
        self.schedule.set_nodes([NODE_LIST], first_due=0.0)
        self.departures = self.parts.departures()
        self.search = NodeList(
            self.parts, self.tracker, self.schedule, self.departures, random.Random(1)
        )

    def script(self, nodes: dict[str, str], **more: Any) -> None:
        self.script_path.write_text(json.dumps({"nodes": nodes, **more}))

    def run_due(self) -> dict[str, PassResult]:
        """Run what is due now, one after the other."""
        results = {}
        for name, _reasons in self.schedule.take_due():
            run = self.search.find if name == NODE_LIST else lambda n=name: self.tracker.run_pass(n)
            results[name] = run()
            self.schedule.finish(name, time.monotonic() + results[name].next_in)
        return results

    def report(self, name: str) -> dict[str, PassResult]:
        self.schedule.trigger("report", name)
        return self.run_due()

    def exists(self, root: str) -> bool:
        return self.parts.report.get_provider_tree(root, fresh=True).exists(root)
