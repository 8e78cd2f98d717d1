"""What each step does to a real cluster."""
