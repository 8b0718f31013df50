"""A nemesis: faults of every part, drawn from a seed, while clients deal with the bank.

    python -m tests.integration.nemesis --database postgresql --minutes 60 --seed 1

A fault is a small function in the module of its kind: kills, machine, answers, promotion,
galera. The same of agents, schedulers and the bus: `python -m
tests.integration.nemesis.fleet`.
"""
