"""Requests of all kinds, right and wrong ones, each sent to the application and told to the model.

A refused one must leave everything as it was.
"""

from tests.property.api_model.allocation_rules import AllocationRules
from tests.property.api_model.provider_rules import ProviderRules


class Machine(ProviderRules, AllocationRules):
    """All of them, in any order."""
