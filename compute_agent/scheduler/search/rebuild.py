"""Rebuilds of instances where they are: nothing is claimed, the new image is checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compute_agent.request import extra_specs
from compute_agent.request.spec import RequestSpec

HINT = "_nova_check_type"


def is_rebuild(spec: RequestSpec) -> bool:
    """Return whether the request is a rebuild, which leaves the instance where it is."""
    return "rebuild" in spec.hint(HINT)


def missing_traits(
    spec: RequestSpec, used_providers: Collection[str], traits: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Return the traits that the image requires and that no provider in use has.

    :param used_providers: the providers that the instance holds something on, and its host's root.
    :param traits: of every provider of the tree.
    """
    there = frozenset().union(*(traits.get(uuid, frozenset()) for uuid in used_providers))
    return extra_specs.image_traits(spec.image.properties) - there
