"""Functional tests of the conductor: placement, agents and scheduler in this process."""

import uuid
from types import SimpleNamespace

import fixtures
from conductor import Conductor
from hosts import HostFailed, domain

from compute_agent.errors import ComputeAgentError
from compute_agent.scheduler.python_api import NoValidHost
from compute_agent.testing import AgentFixture, SchedulerFixture
from placement_server.testing import PlacementFixture

SPEC = {
    "project_id": "a-project",
    "user_id": "a-user",
    "flavor": {
        "vcpus": 2,
        "memory_mb": 512,
        "root_gb": 0,
        "extra_specs": {"hw:cpu_policy": "dedicated", "resources:SRIOV_NET_VF": "1"},
    },
}
HOST = {
    "fake": {"cells": 2, "cpus_per_cell": 4, "gpus": 0, "nics": 1, "vfs_per_pf": 4},
    "compute": {
        "enable_numa_reporting_to_placement": True,
        "cpu_dedicated_set": "0-7",
        "consecutive_build_service_disable_threshold": 2,
    },
    "nic": {"report_vfs": "always"},
}


class Guests:
    """Hypervisors that run guests in memory, where the agents see them."""

    def __init__(self, cloud):
        self.cloud, self.broken, self.given = cloud, set(), {}

    def start(self, host, instance, spec, given):
        if host in self.broken:
            raise HostFailed("no more room for guests")
        domain(instance, spec, given, "kvm")
        self.cloud.agents[host].driver.spawn(instance)
        self.given[instance] = given

    def end(self, host, instance):
        self.cloud.agents[host].driver.destroy(instance)


class Life(fixtures.TestWithFixtures):
    """The life of one guest."""

    def setUp(self):
        super().setUp()
        placement = self.useFixture(PlacementFixture())
        self.agents = {
            name: self.useFixture(AgentFixture(placement.endpoint, name, options=HOST))
            for name in ("one", "two", "three")
        }
        for agent in self.agents.values():
            self.assertTrue(agent.report().completed)
        scheduler = self.useFixture(SchedulerFixture(placement.endpoint)).life_cycle
        self.guests = Guests(self)
        self.conductor = Conductor(scheduler, self.call, self.guests)
        self.instance = str(uuid.uuid4())

    def call(self, host, method, **arguments):
        try:
            return getattr(self.agents[host].commands, method)(**arguments)
        except ComputeAgentError as error:
            raise HostFailed(str(error)) from error

    def seen(self):
        """Where the guest runs, where it has units, and what it holds in placement."""
        return SimpleNamespace(
            runs=[
                name
                for name, agent in self.agents.items()
                if self.instance in agent.driver.list_instance_uuids()
            ],
            has_units=[name for name, agent in self.agents.items() if agent.commands.claims()],
            holds=sorted(name for name, agent in self.agents.items() if self.held_on(agent)),
        )

    def held_on(self, agent):
        return agent.parts.report.get_allocations_for_provider_tree(agent.node_uuid)

    def assert_only_on(self, *hosts):
        seen = self.seen()
        self.assertEqual([list(hosts)] * 3, [seen.runs, seen.has_units, seen.holds])

    def test_a_guest_has_just_the_units_that_it_was_given(self):
        host = self.conductor.build(SPEC, self.instance).host
        self.assert_only_on(host)
        given = self.guests.given[self.instance]
        xml = domain(self.instance, SPEC, given, "kvm")
        cpus = [unit["name"] for unit in given["units"] if unit["resource_class"] == "PCPU"]
        self.assertEqual(2, len(cpus))
        for number, cpu in enumerate(cpus):
            self.assertIn(f"<vcpupin vcpu='{number}' cpuset='{cpu}'/>", xml)
        self.assertEqual(1, xml.count("<hostdev"))
        self.conductor.delete(self.instance, host)
        self.assert_only_on()

    def test_a_host_that_cannot_start_it_is_told_and_the_next_one_is_claimed(self):
        first = self.conductor.build(SPEC, self.instance).host
        self.conductor.delete(self.instance, first)
        self.guests.broken.add(first)
        second = self.conductor.build(SPEC, self.instance).host
        self.assertNotEqual(first, second)
        self.assert_only_on(second)
        [node] = self.agents[first].commands.announcement(1)["nodes"]
        self.assertEqual(1, node["build_failures"])

    def test_where_no_host_can_nothing_is_held(self):
        self.guests.broken.update(self.agents)
        with self.assertRaises(NoValidHost):
            self.conductor.build(SPEC, self.instance)
        self.assert_only_on()

    def test_a_guest_is_moved(self):
        source = self.conductor.build(SPEC, self.instance)
        place = self.conductor.move(SPEC, self.instance, source)
        self.assertNotEqual(source, place)
        self.assert_only_on(place.host)

    def test_a_guest_that_cannot_be_moved_has_what_it_had(self):
        source = self.conductor.build(SPEC, self.instance)
        before = self.guests.given[self.instance]["units"]
        self.guests.broken.update(self.agents.keys() - {source.host})
        with self.assertRaises(HostFailed):
            self.conductor.move(SPEC, self.instance, source)
        self.assert_only_on(source.host)
        self.assertEqual(before, self.guests.given[self.instance]["units"])

    def test_a_guest_of_a_dead_host_is_evacuated_and_its_old_host_cleaned_later(self):
        source = self.conductor.build(SPEC, self.instance)
        place = self.conductor.evacuate(SPEC, self.instance, source)
        self.assertEqual(sorted([source.host, place.host]), self.seen().holds)
        self.conductor.source_returned(self.instance, source)
        self.assert_only_on(place.host)

    def test_an_evacuation_that_fails_can_be_tried_again(self):
        source = self.conductor.build(SPEC, self.instance)
        self.guests.broken.update(self.agents.keys() - {source.host})
        with self.assertRaises(HostFailed):
            self.conductor.evacuate(SPEC, self.instance, source)
        self.guests.broken.clear()
        place = self.conductor.evacuate(SPEC, self.instance, source)
        self.conductor.source_returned(self.instance, source)
        self.assert_only_on(place.host)

    def test_a_guest_on_a_host_that_is_away_is_deleted_and_cleaned_later(self):
        host = self.conductor.build(SPEC, self.instance).host
        self.conductor.local_delete(self.instance)
        self.assertEqual([], self.seen().holds)
        self.assertEqual([host], self.seen().runs)
        self.conductor.clean(self.instance, host)
        self.assert_only_on()
