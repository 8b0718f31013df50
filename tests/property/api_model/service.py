"""A service and the model of it, which are compared after each request."""

from __future__ import annotations

import uuid
from copy import deepcopy
from typing import Any, ClassVar

import os_resource_classes
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from placement_server.store import audit
from placement_server.store.changes import snapshot
from tests.functional.api.wsgi_client import Answer, Client
from tests.property.api_model import views
from tests.property.api_model.model import OK, Entry, Errors, Model, Record, as_json
from tests.property.api_model.strategies import (
    AMOUNTS,
    CLASSES,
    CONSUMERS,
    HOW_MANY,
    NOBODY,
    PLAIN_RECORDS,
    PROJECTS,
    TRAITS,
)


class Service(RuleBasedStateMachine):
    """One service for all runs, which each run leaves empty."""

    api: ClassVar[Client]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model([TRAITS[0]], os_resource_classes.STANDARDS)
        self.created = 0
        self.compared: tuple[int, dict[str, Any]] | None = None

    def teardown(self) -> None:
        for consumer in list(self.model.consumers):
            self.compare(
                self.api.delete(f"/allocations/{consumer}"), self.model.delete_allocations(consumer)
            )
        while self.model.providers:
            for provider in list(self.model.providers):
                self.compare(
                    self.api.delete(f"/resource_providers/{provider}"),
                    self.model.delete_provider(provider),
                )
        for name in [name for name in self.model.traits if name.startswith("CUSTOM_")]:
            self.compare(self.api.delete(f"/traits/{name}"), self.model.delete_trait(name))
        for name in [name for name in self.model.classes if name.startswith("CUSTOM_")]:
            self.compare(
                self.api.delete(f"/resource_classes/{name}"), self.model.delete_class(name)
            )
        self.every_get_equals_the_model()

    @staticmethod
    def compare(answer: Answer, errors: Errors) -> None:
        if errors == OK:
            assert answer.status < 300, answer.body
        else:
            assert answer.status >= 400, f"must be one of {set(errors)}, is {answer.status}"
            assert (answer.status, answer.code) in errors, answer.body

    @invariant()
    def every_get_equals_the_model(self) -> None:
        """Compare, unless neither the model changed since nor was anything committed."""
        expected = views.expected(self.model, CONSUMERS, PROJECTS)
        state = self.commits(), expected
        if state == self.compared:
            return
        for path, must in expected.items():
            assert views.shown(self.api, path) == must, path
        assert self.api.store.read(audit.audit) == []
        # the model goes on changing what it shows
        self.compared = deepcopy(state)

    def commits(self) -> int:
        """A number that each write changes, as the database has it."""
        return max(self.api.store.read(snapshot.newest_change_ids, 1), default=0)

    @initialize(
        stocks=st.lists(
            st.dictionaries(st.sampled_from(CLASSES[:2]), PLAIN_RECORDS, min_size=1),
            min_size=2,
            max_size=3,
        )
    )
    def begin(self, stocks: list[dict[str, Record]]) -> None:
        """With a few providers, each under the one before it, and a consumer on all of them, or
        nearly all requests would be about nothing."""
        parent = None
        for stock in stocks:
            parent = self.new_provider(f"first-{self.created}", parent)
            self.set_inventories(parent, 0, stock)
        placed = {
            uuid: dict.fromkeys(known.inventories, 1)
            for uuid, known in self.model.providers.items()
        }
        self.write({CONSUMERS[0]: Entry(placed, None, "p1", "u1", "INSTANCE")})

    # Requests that more than one rule sends.

    def new_provider(self, name: str, parent: str | None) -> str:
        self.created += 1
        new = str(uuid.UUID(int=1000 + self.created))
        body = {"uuid": new, "name": name, "parent_provider_uuid": parent}
        self.compare(
            self.api.post("/resource_providers", body),
            self.model.create_provider(new, name, parent),
        )
        return new

    def set_inventories(self, one: str, generation: int, records: dict[str, Record]) -> None:
        body = {
            "resource_provider_generation": generation,
            "inventories": {name: vars(record) for name, record in records.items()},
        }
        self.compare(
            self.api.put(f"/resource_providers/{one}/inventories", body),
            self.model.replace_inventories(one, generation, records),
        )

    def write(self, entries: dict[str, Entry]) -> None:
        self.compare(
            self.api.post(
                "/allocations", {consumer: as_json(entry) for consumer, entry in entries.items()}
            ),
            self.model.write_allocations(entries),
        )

    # What requests are made of.

    def provider(self, data: st.DataObject) -> str:
        """Any provider, hardly ever one that does not exist."""
        known = sorted(self.model.providers)
        if not known or data.draw(st.integers(0, 19), label="nobody") == 7:
            return NOBODY
        return data.draw(st.sampled_from(known), label="provider")

    def resources(self, data: st.DataObject, provider: str) -> dict[str, int]:
        """Amounts of what the provider has, hardly ever of something else."""
        known = self.model.providers.get(provider)
        names = sorted(known.inventories) if known else []
        if not names or data.draw(st.integers(0, 19), label="other class") == 7:
            names = CLASSES[:3]
        return data.draw(
            st.dictionaries(st.sampled_from(names), AMOUNTS, min_size=1, max_size=2),
            label="resources",
        )

    def generation(self, provider: str, off: int) -> int:
        known = self.model.providers.get(provider)
        return (known.generation if known else 0) + off

    def entry(self, data: st.DataObject, consumer: str, off: int) -> Entry:
        present = self.model.consumers.get(consumer)
        generation = present.generation if present else None
        if off:
            generation = data.draw(st.sampled_from([None, 0, 7]), label="wrong generation")
        if present and data.draw(st.booleans(), label="resize"):
            # the same places: the likeliest to be accepted
            placed = {
                place: {name: data.draw(AMOUNTS, label="new amount") for name in resources}
                for place, resources in present.allocations.items()
            }
        else:
            places = {self.provider(data) for _ in range(data.draw(HOW_MANY, label="places"))}
            placed = {place: self.resources(data, place) for place in sorted(places)}
        return Entry(
            placed,
            generation,
            data.draw(st.sampled_from(PROJECTS)),
            data.draw(st.sampled_from(["u1", "u2"])),
            data.draw(st.sampled_from(["INSTANCE", "MIGRATION"])),
        )
