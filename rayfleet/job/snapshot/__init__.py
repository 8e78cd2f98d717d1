"""Read every job of a cluster off its head, whole."""
