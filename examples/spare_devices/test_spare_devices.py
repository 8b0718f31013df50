"""Functional tests of spare_devices, on a cloud of this process or on the one of OS_CLOUD."""

import os
import uuid

import fixtures
from keystoneauth1 import adapter, session
from spare_devices import CannotAsk, spare_devices

from compute_agent.scheduler.python_api import read_spec
from compute_agent.testing import AgentFixture, SchedulerFixture
from placement_server.testing import PlacementFixture

MACHINE = {"fake": {"cells": 2, "gpus": 2, "vgpus_per_gpu": 4, "nics": 0}}
ONE_VGPU = read_spec(
    {
        "project_id": "a-project",
        "user_id": "a-user",
        "flavor": {
            "vcpus": 1,
            "memory_mb": 512,
            "root_gb": 0,
            "extra_specs": {"resources:VGPU": "1"},
        },
    }
)


class AnyCloud(fixtures.TestWithFixtures):
    """Tests that hold on every cloud, so that devstack may be the one."""

    def setUp(self):
        super().setUp()
        if "OS_CLOUD" in os.environ:
            import openstack

            self.placement = openstack.connect().placement
            return
        placement = self.useFixture(PlacementFixture())
        self.useFixture(AgentFixture(placement.endpoint, "gpu-1", options=MACHINE)).report()
        self.placement = adapter.Adapter(session.Session(), service_type="placement")

    def test_every_host_that_is_named_has_something_free(self):
        self.assertTrue(all(units > 0 for units in spare_devices(self.placement, "VCPU").values()))

    def test_a_class_that_no_host_has_is_free_nowhere(self):
        self.assertEqual({}, spare_devices(self.placement, "FPGA"))


class CloudOfThisProcess(fixtures.TestWithFixtures):
    """Tests that need hosts as they want them, and failures."""

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(PlacementFixture())
        self.placement = adapter.Adapter(session.Session(), service_type="placement")

    def agent(self, host):
        agent = self.useFixture(AgentFixture(self.cloud.endpoint, host, options=MACHINE))
        self.assertTrue(agent.report().completed)
        return agent

    def test_a_claim_takes_from_what_is_spare(self):
        self.agent("gpu-1")
        self.agent("gpu-2")
        self.assertEqual({"gpu-1": 8, "gpu-2": 8}, spare_devices(self.placement, "VGPU"))
        scheduler = self.useFixture(SchedulerFixture(self.cloud.endpoint))
        claim = scheduler.life_cycle.claim(ONE_VGPU, str(uuid.uuid4()))
        spare = spare_devices(self.placement, "VGPU")
        self.assertEqual(7, spare[claim.host])
        self.assertEqual(15, sum(spare.values()))

    def test_a_placement_that_is_away_is_an_error_and_not_an_empty_answer(self):
        self.agent("gpu-1")
        self.cloud.faults.refuse("GET", "/usages", 503)
        with self.assertRaisesRegex(CannotAsk, "503"):
            spare_devices(self.placement, "VGPU")
        self.assertEqual({"gpu-1": 8}, spare_devices(self.placement, "VGPU"))
