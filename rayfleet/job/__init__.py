"""Jobs on a cluster."""
