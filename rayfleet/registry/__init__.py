"""The regional repositories and what they keep."""
