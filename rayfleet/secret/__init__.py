"""What must not be known to others: where it is kept, and what clients of a cluster show."""
