"""How long work ends early: it looks at an event now and then, and raises this."""


class Interrupted(Exception):
    """The operator has stopped the run, or nobody wants its result any more."""
