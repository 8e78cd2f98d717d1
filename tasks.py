"""The fleet's tasks; `invoke --list` shows them."""

from rayfleet.tasks import ns
from rayfleet.tasks.mistyped import explain_mistakes

explain_mistakes(ns)
