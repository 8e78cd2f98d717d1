"""Invoke tasks for a team that runs a fleet of autoscaling Ray clusters."""

__version__ = "0.1.0"
