"""Side by side with the published openstack-placement package: `python -m benchmarks`."""
