"""The fleet file and what comes of it."""
