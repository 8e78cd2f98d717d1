"""What Ray itself lets through in cluster configs: a module of rules per concern.

A rule is a function from a :class:`~rayfleet.fleet.lint.config.Config` to findings, each with the
name of the rule. A new one goes into the module of its concern, into a list of run.py, into
docs/lint.md, and with a config that falls into the trap into the tests.
"""
