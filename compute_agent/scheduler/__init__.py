"""From a request to a candidate claimed in placement."""
