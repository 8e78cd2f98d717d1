"""Write log lines of many nodes to one stream."""
