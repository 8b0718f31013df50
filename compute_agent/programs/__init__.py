"""Arguments, files, printed texts and traces of every program here, placement-server's included."""
