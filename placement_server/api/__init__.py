"""The HTTP API: routes, requests and responses, and the handlers behind them."""
