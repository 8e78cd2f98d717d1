"""Who hears of a rollout, and how: terminal, events, report, webhook."""
