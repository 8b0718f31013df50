"""The hosts with devices that are free: a client of placement, as small as one can be.

python spare_devices.py VGPU        # the cloud of OS_CLOUD, or of clouds.yaml
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from keystoneauth1 import adapter

VERSION = "1.39"


class CannotAsk(Exception):
    """Placement did not answer, or not with what was asked for."""


def spare_devices(placement: adapter.Adapter, resource_class: str) -> Mapping[str, int]:
    """Return how many units are free, by the name of the host; hosts without any are left out.

    :raises CannotAsk: placement gives no answer, so that nothing is known.
    """
    free: Counter[str] = Counter()
    for provider in _get(placement, f"/resource_providers?resources={resource_class}:1")[
        "resource_providers"
    ]:
        path = f"/resource_providers/{provider['uuid']}"
        inventory = _get(placement, f"{path}/inventories")["inventories"][resource_class]
        used = _get(placement, f"{path}/usages")["usages"][resource_class]
        capacity = int((inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"])
        root = _get(placement, f"/resource_providers/{provider['root_provider_uuid']}")
        free[root["name"]] += capacity - used
    return dict(free)


def _get(placement: adapter.Adapter, path: str) -> Any:
    answer = placement.get(path, microversion=VERSION, raise_exc=False)
    if answer.status_code != 200:
        raise CannotAsk(f"GET {path} was answered {answer.status_code}: {answer.text}")
    return answer.json()


def main() -> None:
    """Print a line for every host."""
    parser = argparse.ArgumentParser(description="Print the hosts with devices that are free.")
    parser.add_argument("resource_class", metavar="CLASS", help="resource class, such as VGPU")
    resource_class = parser.parse_args().resource_class
    import openstack

    for host, units in spare_devices(openstack.connect().placement, resource_class).items():
        print(f"{host}\t{units}")


if __name__ == "__main__":
    main()
