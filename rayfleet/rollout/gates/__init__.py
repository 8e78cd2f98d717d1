"""What a started cluster must pass: one class for each gate."""
