"""What the fleet should be: pure values, no network, no Ray, no Docker."""
