"""From clusters as they are to the plan of a rollout."""
