"""A small cloud on the local Docker engine."""
