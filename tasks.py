"""The fleet's tasks; `invoke --list` shows them."""

from rayfleet.tasks import ns
