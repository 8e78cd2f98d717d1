"""What goes wrong on purpose."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

ALWAYS = -1


@dataclass(slots=True, kw_only=True)
class Fault:
    """Something that happens to requests.

    It meets the calls of ``method`` (``compute.instances.*``, the ids of the discovery documents)
    on ``resource`` (a full name such as ``projects/p/zones/z/instances/n``; for what makes
    one, the name that it will have; both with ``*``). The first ``after`` of them pass, then
    it happens ``times`` times.

    What happens, one of:

    - ``status`` is answered, with ``reason`` and ``message``, and nothing is done;
    - ``cut``: the connection ends, ``"before"`` anything is done or ``"after"`` it was (the
      answer is lost);
    - ``hang``: no answer comes for so many seconds of real time, and nothing is done;
    - ``never``: it is accepted, and its operation never ends;
    - ``takes``: it is accepted, and its operation takes so many seconds of the cloud's clock;
    - ``fails``: it is accepted, and its operation ends with this error: a code
      of Compute Engine (``ZONE_RESOURCE_POOL_EXHAUSTED``) or a number for TPUs (8), and
      ``message``;
    - ``unreachable``: a list leaves out what is in this zone, answers 200 all the same, and says
      that it did not reach the zone.
    """

    method: str
    resource: str = "*"
    after: int = 0
    times: int = 1
    status: int = 0
    reason: str = ""
    message: str = ""
    cut: str = ""
    hang: float = 0.0
    never: bool = False
    takes: float | None = None
    fails: str = ""
    unreachable: str = ""
    met: int = 0

    def meets(self, method: str, resource: str) -> bool:
        """Whether this call is hit; counts it."""
        if not (fnmatchcase(method, self.method) and fnmatchcase(resource, self.resource)):
            return False
        self.met += 1
        seen = self.met - self.after
        return seen > 0 and (self.times == ALWAYS or seen <= self.times)


@dataclass(slots=True)
class Faults:
    """The faults of one cloud; the first that meets a call hits it."""

    active: list[Fault] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event, repr=False)

    def add(self, fault: Fault) -> Fault:
        """From now on."""
        self.active.append(fault)
        return fault

    def clear(self) -> None:
        """Nothing goes wrong any more; requests that hang are let go."""
        self.active.clear()
        self.released.set()
        self.released = threading.Event()

    def of(self, method: str, resource: str) -> Fault | None:
        """What happens to this call."""
        return next((fault for fault in self.active if fault.meets(method, resource)), None)
