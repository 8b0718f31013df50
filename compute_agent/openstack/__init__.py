"""Other services of the cloud, over HTTP."""
