"""Build the cluster image and put it into every regional registry."""
