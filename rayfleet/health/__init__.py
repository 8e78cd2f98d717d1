"""What is wrong with a cluster, by the states that operators meet, and what it left behind."""
