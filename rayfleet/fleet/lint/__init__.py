"""What Ray itself lets through in its cluster configs: one module of rules per concern."""
