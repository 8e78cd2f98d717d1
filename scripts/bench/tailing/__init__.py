"""What the benchmark of the logs is made of."""
