"""Ends a run by what is read: ``--until-match`` well, ``--fail-on`` with an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rayfleet.errors import NotSeen, UnwantedLine
from rayfleet.log.output.sink import Batch, Enough, Sink
from rayfleet.log.remote.records import Pattern, printed, records

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Target


class Match:
    """Hands on batches until a record matches ``fail_on`` or ``until``; that record is the last.

    Both are regular expressions, looked for in whole records. Raises re.error.
    """

    def __init__(self, inner: Sink, *, fail_on: str | None, until: str | None) -> None:
        self.seen = False
        self._inner = inner
        self._unwanted = fail_on
        self._fail_on = None if fail_on is None else Pattern(fail_on)
        self._until_text = until
        self._until = None if until is None else Pattern(until)
        self._patterns = [pattern for pattern in (self._fail_on, self._until) if pattern]

    def write(self, batch: Batch) -> None:
        """Hand on ``batch`` up to the first record that matches.

        Raises:
            UnwantedLine: it matches ``fail_on``.
            Enough: it matches ``until``.
        """
        if all(pattern.absent(batch.lines) for pattern in self._patterns):
            self._inner.write(batch)
            return
        size = 0
        for record in records(batch.lines, printed(batch.file)):
            size += len(record)
            unwanted = self._fail_on is not None and self._fail_on.found(record)
            self.seen = self._until is not None and self._until.found(record)
            if unwanted or self.seen:
                self._inner.write(_up_to(batch, size))
                if unwanted:
                    raise self._failure(batch)
                raise Enough
        self._inner.write(batch)

    def idle(self) -> None:
        """Nothing to do here."""
        self._inner.idle()

    def joined(self, target: Target) -> None:
        """Nothing to do here."""
        self._inner.joined(target)

    def caught_up(self, target: Target) -> None:
        """Nothing to do here."""
        self._inner.caught_up(target)

    def ended(self, target: Target) -> None:
        """Nothing to do here."""
        self._inner.ended(target)

    def close(self) -> None:
        """Nothing to do here."""
        self._inner.close()

    def check(self) -> None:
        """Called at the end of a run.

        Raises:
            NotSeen: ``until`` was asked for and never came.
        """
        if self._until is not None and not self.seen:
            raise NotSeen(
                f"no line matched --until-match {self._until_text!r}",
                next_step="invoke tail-logs --no-follow --tail 100",
            )

    def _failure(self, batch: Batch) -> UnwantedLine:
        node = "" if batch.node == "head" else f" (node {batch.node})"
        return UnwantedLine(
            f"a line of {batch.cluster}{node} matches --fail-on {self._unwanted!r}",
            why=f"it is in {batch.file}, above",
            next_step=f"invoke tail-logs --cluster {batch.cluster} --tail 100",
        )


def _up_to(batch: Batch, size: int) -> Batch:
    if size == len(batch.lines):
        return batch
    end = batch.start + size if batch.unbroken else batch.end
    return replace(batch, lines=batch.lines[:size], end=end, cut=False)
