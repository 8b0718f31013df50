"""A machine and its guests as libvirt describes them.

connection ──► one connection, every call under a deadline
domain, elements           ──► pure: XML in, facts out
source                     ──► asks the connection, returns a `HypervisorReading`, with parts of
                               guest_abilities, cpu_features and node_devices
guests                     ──► asks the connection, returns a `GuestReading`
described, join            ──► pure: a `HostTopology` of libvirt's facts and those of sysfs
"""
