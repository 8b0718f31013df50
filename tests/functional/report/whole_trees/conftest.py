"""A host that was reported as a whole tree."""

import pytest

from tests.functional.report.layouts import small


@pytest.fixture
def reported(whole):
    whole.report(small(whole.name))
    return whole
