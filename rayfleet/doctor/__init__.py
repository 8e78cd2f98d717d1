"""What the tasks need of this machine, and what of it is missing."""
