"""Add, list, re-roll and remove workers of a cluster that Ray cannot make."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.waiting import wait_until
from rayfleet.worker.model import OVER, Added, Capacity, Slice, full_name, short_name, slice_of
from rayfleet.worker.queue import Queue, in_google
from rayfleet.worker.startup import image_of, startup_script

LOOK = 10.0  # seconds between two looks at a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The plan of one addition. ``there`` is what has the name ``name`` now, if anything; with
    ``over`` it makes place, otherwise it is waited for."""

    name: str
    wanted: Slice
    capacity: Capacity
    there: Added | None
    over: bool

    @property
    def line(self) -> str:
        """The plan for operators."""
        what = f"{self.wanted.accelerator_type}, {self.capacity.value}, as {self.name}"
        if self.there and not self.over:
            return f"would ask for nothing: {self.name} is there and {self.there.state}"
        instead = f", instead of the one that is {self.there.state}" if self.there else ""
        return f"would ask Google for {what}{instead}"


@dataclass(frozen=True, kw_only=True)
class Care:
    """Looks after the added workers of ``cluster``, whose generated config is ``config``;
    ``narrate`` hears what happens. ``connect`` makes the API's side of a config."""

    cluster: str
    config: LaunchConfig
    narrate: Callable[[str], None]
    connect: Callable[[LaunchConfig], Queue] = Queue

    @classmethod
    def of(cls, fleet: Fleet, cluster: Cluster, narrate: Callable[[str], None]) -> Care:
        """Of a cluster of ``fleet``.

        Raises:
            UsageError: it has no generated config, or is not in Google Cloud.
        """
        config = read_launch_config(fleet, cluster)
        if not in_google(config):
            raise UsageError(
                f"{cluster.name} is not in Google Cloud",
                why="only there are workers that Ray cannot make",
                next_step="INVOKE_FLEET=infra/fleet.yaml invoke workers.list",
            )
        return cls(cluster=cluster.name, config=config, narrate=narrate)

    @cached_property
    def queue(self) -> Queue:
        """The API's side."""
        return self.connect(self.config)

    @cached_property
    def script(self) -> str:
        """What the machines of a worker run now."""
        return startup_script(self._content)

    @property
    def image(self) -> str:
        """The image that workers should run."""
        return image_of(self._content)

    def short(self, worker: Added) -> str:
        """What an operator calls ``worker``."""
        return short_name(self.config.identity, worker.name)

    def plan(self, word: str, capacity: Capacity, *, name: str) -> Addition:
        """What adding a slice such as ``v6e-8`` takes; nothing is asked for yet.

        With a name that is taken already it is to go on waiting for that one; one that is over
        makes place first.

        Raises:
            UsageError: no such slice, or another one has the name.
        """
        wanted = slice_of(word)
        full = full_name(self.config.identity, name or f"added-{secrets.token_hex(4)}")
        there = self.queue.get(full) if name else None
        over = there is not None and there.state in OVER
        if (
            there
            and not over
            and (there.accelerator_type, there.capacity)
            != (
                wanted.accelerator_type,
                capacity.value,
            )
        ):
            raise UsageError(
                f"{name} is there already",
                why=f"as {there.accelerator_type}, {there.capacity}",
                next_step=f"invoke workers.remove {name} --cluster {self.cluster}",
            )
        return Addition(name=full, wanted=wanted, capacity=capacity, there=there, over=over)

    def add(self, addition: Addition, *, owner: str, wait: float) -> Added:
        """Carry out a plan and wait ``wait`` seconds for the slice; 0 does not wait.

        Raises:
            ToolFailed: Google gives none; the message says why.
            DeadlineExceeded: it is still in the queue.
        """
        there = addition.there
        if there and addition.over:
            self.narrate(f"{self.short(there)} is {there.state} ({there.cause}): it makes place")
            self.queue.delete(there)
        if not there or addition.over:
            self.queue.ask_for(
                addition.name,
                addition.wanted,
                addition.capacity,
                owner=owner,
                image=self.image,
                script=self.script,
            )
        return self._wait(addition.name, wait)

    def all(self, *, ask_machines: bool = True) -> tuple[Added, ...]:
        """Every added worker, and every request for one."""
        return self.queue.all(ask_machines=ask_machines)

    def outdated(self, names: Sequence[str] = (), *, again: bool = False) -> tuple[Added, ...]:
        """The workers that :meth:`roll` tells. Without names of all.

        Raises:
            UsageError: there is no such worker.
        """
        workers = [one for one in self.named(names) if one.runs]
        return tuple(one for one in workers if again or not one.script.startswith(self.script))

    def roll(self, names: Sequence[str] = (), *, again: bool = False) -> tuple[Added, ...]:
        """Let workers run the image and the commands of the generated config; those that do are
        left alone, unless ``again``. Without names all. Returns those that were told.

        A request that waits cannot be changed: its slice is told once it is there.

        Raises:
            UsageError: there is no such worker.
        """
        told = self.outdated(names, again=again)
        for one in told:
            self.narrate(f"{self.short(one)}: {self.image}")
            script = self.script
            if again:  # another text is what makes the machines begin anew
                script = f"{script}# {secrets.token_hex(4)}\n"
            self.queue.update(one, image=self.image, script=script)
        return told

    def remove(self, names: Sequence[str]) -> tuple[Added, ...]:
        """Delete workers and requests.

        Raises:
            UsageError: there is no such worker.
            ToolFailed: Google did not delete one.
        """
        found = self.named(names)
        for one in found:
            self.narrate(f"{self.short(one)}: deleting")
            self.queue.delete(one)
        return found

    @cached_property
    def _content(self) -> dict[str, Any]:
        import yaml

        found: dict[str, Any] = yaml.load(self.config.path.read_bytes(), Loader=yaml.CSafeLoader)
        return found

    def named(self, names: Sequence[str]) -> tuple[Added, ...]:
        """The workers and requests that operators call so; without names all.

        Raises:
            UsageError: there is no such worker.
        """
        every = self.all(ask_machines=False)
        if not names:
            return every
        wanted = [full_name(self.config.identity, name) for name in names]
        by_name = {one.name: one for one in every}
        missing = [name for name, full in zip(names, wanted, strict=True) if full not in by_name]
        if missing:
            raise UsageError(
                f"{self.cluster} has no added worker {', '.join(missing)}",
                why=f"it has {', '.join(map(self.short, every)) or 'none'}",
                next_step=f"invoke workers.list --cluster {self.cluster}",
            )
        return tuple(by_name[full] for full in wanted)

    def _wait(self, full: str, wait: float) -> Added:
        last: list[Added] = []
        name = short_name(self.config.identity, full)

        def look() -> Added | None:
            seen = self.queue.get(full)
            if seen is None:
                raise self._failed(name, "somebody removed it")
            if not last or last[0].state != seen.state:
                self.narrate(f"{name}: {seen.state}")
            last[:] = [seen]
            if re.match("FAILED|SUSPEND|DELETING", seen.state):
                raise self._failed(name, f"{seen.state}: {seen.cause}".removesuffix(": "))
            return seen if seen.state == "ACTIVE" or not wait else None

        return wait_until(
            look,
            what=name,
            timeout=wait,
            interval=LOOK,
            reason=lambda: f"it is {last[0].state}, stays in Google's queue and joins later",
            next_step=f"invoke workers.list --cluster {self.cluster}",
            clock=self.queue.clock,
        )

    def _failed(self, name: str, why: str) -> ToolFailed:
        return ToolFailed(
            f"{name} is no worker of {self.cluster}",
            why=why,
            next_step=f"invoke workers.remove {name} --cluster {self.cluster}",
        )


def take_along(cluster: str, config: LaunchConfig, narrate: Callable[[str], None]) -> None:
    """Let the added workers of a cluster that was started follow to its image.

    Raises:
        Unreachable: Google does not answer.
        ToolFailed: it did not tell a worker.
    """
    if in_google(config):
        Care(cluster=cluster, config=config, narrate=narrate).roll()


def tell_who_stays(cluster: str, config: LaunchConfig, narrate: Callable[[str], None]) -> None:
    """Name the added workers of a cluster that was stopped, for they go on costing money."""
    if not in_google(config):
        return
    care = Care(cluster=cluster, config=config, narrate=narrate)
    try:
        left = care.all(ask_machines=False)
    except Unreachable as error:
        narrate(f"whether workers were added is not known: {error.why or error.what}")
        return
    if left:
        names = ", ".join(map(care.short, left))
        narrate(f"workers that were added stay, and join the next head: {names}")
