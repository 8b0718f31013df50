"""Costs of the servers and the agent, side by side with the published openstack-placement package.

`python -m benchmarks --help` names the benchmarks; each prints its data, its runs, the ratios, and
whether its bounds hold. `--quick` tries one out on a tenth of the data. A folder holds those of one
subject.
"""
