"""Arguments, configuration files and traces of every program here, placement-server's included."""
