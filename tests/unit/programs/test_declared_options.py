from __future__ import annotations

import pytest
from oslo_config import cfg, types

from compute_agent.programs.declared_options import options


def test_lines_declare_what_oslo_config_is_told() -> None:
    declared = options(
        """
number: int -1..10 (3) mutable
    A number that is long enough
    for two lines.

    And a paragraph.

share: float 0.5..
    Unset.

mode: text {fast,safe} (safe)
    One of two.

way: text (a)
    Explained.

    - a: the one, over
      two lines
    - b: the other

names: list (x,y)
    Names.

specs: texts () secret
    Several.

cells: value
    Other.
""",
        cells={"type": types.Dict(types.Integer()), "default": {}},
    )
    expected = [
        cfg.IntOpt("number", default=3, min=-1, max=10, mutable=True),
        cfg.FloatOpt("share", min=0.5),
        cfg.StrOpt("mode", default="safe", choices=["fast", "safe"]),
        cfg.StrOpt(
            "way", default="a", choices=[("a", "the one, over two lines"), ("b", "the other")]
        ),
        cfg.ListOpt("names", default=["x", "y"]),
        cfg.MultiStrOpt("specs", default=[], secret=True),
        cfg.Opt("cells", type=types.Dict(types.Integer()), default={}),
    ]
    helps = [
        "A number that is long enough for two lines.\n\nAnd a paragraph.",
        *("Unset.", "One of two.", "Explained.", "Names.", "Several.", "Other."),
    ]
    for option, other, text in zip(declared, expected, helps, strict=True):
        other.help = text
        assert vars(option) == vars(other)
        assert type(option) is type(other)


def test_a_default_has_the_type_of_its_option() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        options("number: int (few)\n    A number.")


def test_a_line_that_declares_nothing_is_named() -> None:
    with pytest.raises(AssertionError, match="'number: int 0' declares no option"):
        options("number: int 0\n    A number.")
