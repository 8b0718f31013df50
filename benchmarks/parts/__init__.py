"""Parts of several benchmarks: servers, a client, the data that is loaded."""
