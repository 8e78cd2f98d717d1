"""Give a cluster its jobs back."""
