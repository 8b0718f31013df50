"""A machine and its guests as libvirt describes them.

connection ──► one connection, every call under a deadline
capabilities, domain_capabilities, cpu_features, node_devices, guests ──► pure: XML in, facts out
source     ──► asks the connection, returns a `HypervisorReading`
join       ──► a `HostTopology` of libvirt's facts and those of sysfs
"""
