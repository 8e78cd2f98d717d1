"""The parts of scripts/bench/rollout.py: restarts against Ray's own launcher, and against none."""
