"""The comparison of two answers, where the published server lists names in the order of a set."""

import pytest

from ..wsgi_client import Answer
from .comparison import content

JSON = '{"errors": [{"detail": "Malformed.\\n\\n No such trait %s  "}]}'
HTML = "<html><body>Malformed.<br /><br />\n No such trait %s\n</body></html>"


@pytest.mark.parametrize("form", [JSON, HTML], ids=["json", "html"])
def test_unknown_traits_of_a_write_are_the_same_in_any_order(form: str) -> None:
    one, other, fewer = (
        content(Answer(400, {}, (form % names).encode()))
        for names in ("CUSTOM_A, CUSTOM_B, CUSTOM_C", "CUSTOM_C, CUSTOM_A, CUSTOM_B", "CUSTOM_A")
    )
    assert one == other
    assert one != fewer
