"""What a rollout has done, on disk before and after it does it."""
