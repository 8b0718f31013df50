"""Names of the trees that these tests build."""

from compute_agent.provider_tree import ProviderTree

ROOT = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "aaaaaaaa-0000-4000-8000-000000000002"


def names(tree: ProviderTree) -> list[str]:
    return [tree.data(uuid).name for uuid in tree.get_provider_uuids()]
