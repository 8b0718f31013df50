"""The store against a model of dictionaries that is too simple to be wrong.

Whatever sequence of writes comes, each is granted or refused exactly as by the model, and after
each the whole state is equal: inventories, use, generations, consumers, trees.
"""

from __future__ import annotations

from hypothesis import settings

from tests.property.store.store_machine import (
    StoreMachine,
)

TestStoreAgainstModel = StoreMachine.TestCase
# each example is a long sequence: fewer of them than of others
TestStoreAgainstModel.settings = settings(
    max_examples=settings().max_examples // 4, stateful_step_count=30
)
