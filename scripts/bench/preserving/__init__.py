"""The parts of scripts/bench/jobs.py: rayfleet's job vault against a loop over Ray's own CLI."""
