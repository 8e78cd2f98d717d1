"""Change many clusters in order."""
