"""Messages to a channel of people: Slack, Discord, or anything that takes JSON."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rayfleet import __version__
from rayfleet.fleet.model import Notify, NotifyKind
from rayfleet.image.oci.patience import TRANSIENT_STATUS, Retries, Transient, persist
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Plan
from rayfleet.rollout.state import State
from rayfleet.rollout.tell import messages
from rayfleet.rollout.tell.events import began, summary_document
from rayfleet.rollout.tell.words import spell
from rayfleet.rollout.tell.writer import HURRY_SECONDS

SLACK_ROOM = 4000
DISCORD_ROOM = 2000
"""The longest texts, in UTF-16 code units: docs.slack.dev/reference/methods/chat.postMessage
and docs.discord.com/developers/resources/webhook."""

WAITING = 8
"""Messages that wait to be sent at most; of more the oldest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a server is waited for, in seconds. ``at_end`` is what the end of a run may be
    held up by a message that is not through yet."""

    connect: float = 5.0
    answer: float = 10.0
    at_end: float = 5.0
    attempts: int = 3
    first_wait: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    event: str
    text: str
    document: Mapping[str, object] = field(default_factory=dict)


class Webhook:
    """Posts before and after a run, from a thread of its own; no failure of it is one of the run.

    The URL is in the environment variable that ``notify`` names: a secret, neither shown nor
    logged. The machine's proxy and CA bundle are used; redirects are not followed. ``say``
    narrates a line.
    """

    def __init__(
        self,
        notify: Notify,
        plan: Plan,
        *,
        say: Callable[[str], None],
        environ: Mapping[str, str] = os.environ,
        report: str = "",
        patience: Patience | None = None,
    ) -> None:
        self._plan = plan
        self._kind = notify.kind
        self._url = environ.get(notify.url_env, "").strip()
        self._say = say
        self._report = report
        self._patience = patience or Patience()
        self._queue: queue.Queue[_Message | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._wrong = _wrong(self._url, notify.url_env)
        self._told_wrong = False
        self._last: tuple[Record, State] | None = None

    def hear(self, record: Record, state: State) -> None:
        """Post a message if the run begins or ends with the record."""
        self._last = record, state
        if record.kind is Kind.BEGUN:
            self._begin(record, state)
        elif record.kind in {Kind.PAUSED, Kind.FINISHED}:
            self._end()

    def detail(self, cluster: str, text: str) -> None:
        """Details are not for a channel."""

    def close(self, *, hurry: bool = False) -> None:
        """Wait a few seconds for what is not through yet."""
        self._end()
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        self._put(None)
        thread.join(HURRY_SECONDS if hurry else self._patience.at_end)
        if thread.is_alive() and not hurry:
            self._tell(f"no answer within {spell(self._patience.at_end)} to the last message")

    def _begin(self, record: Record, state: State) -> None:
        if record.number == 1:
            text = messages.before(self._plan)
            self._post(_Message(event="begun", text=text, document=plan_document(self._plan)))
            return
        text = messages.taken_up(self._plan, state, str(record.data.get("by", "")))
        self._post(_Message(event="resumed", text=text, document={"rollout": self._plan.id}))

    def _end(self) -> None:
        if self._last is None:
            return
        record, state = self._last
        self._last = None
        document = summary_document(self._plan, state, at=record.at, report=self._report)
        begun = began(state)
        seconds = (record.at - begun).total_seconds() if begun else 0.0
        text = messages.after(self._plan, state, seconds=seconds, report=self._report)
        event = "finished" if state.result is not None else str(document["result"])
        self._post(_Message(event=event, text=text, document=document))

    def _post(self, message: _Message) -> None:
        if self._wrong:
            if not self._told_wrong:
                self._told_wrong = True
                self._tell(self._wrong)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()
        self._put(message)

    def _put(self, message: _Message | None) -> None:
        while True:
            try:
                self._queue.put_nowait(message)
                return
            except queue.Full:
                with suppress(queue.Empty):
                    self._queue.get_nowait()

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            problem = self._send(_body(self._kind, message))
            if problem:
                self._tell(f"a message was not delivered: {problem}")

    def _send(self, body: bytes) -> str:
        """Post ``body``; gives why it did not arrive, without a part of the URL."""
        patience = self._patience
        retries = Retries(
            attempts=patience.attempts,
            first_wait=patience.first_wait,
            longest_wait=patience.at_end,
            longest_retry_after=patience.at_end,
        )
        try:
            return persist(lambda _: _attempt(self._url, body, patience), retries=retries)
        except Transient as failed:
            return _without(self._url, failed.why)
        except Exception as error:
            # Whatever it is, a traceback of the thread would show the URL.
            return type(error).__name__

    def _tell(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads the narration any more
            self._say(f"webhook: {text}")


def plan_document(plan: Plan) -> dict[str, object]:
    """What a JSON webhook gets before a rollout. The keys are stable."""
    return {
        "rollout": plan.id,
        "fleet": plan.fleet,
        "operator": plan.operator,
        "estimate": plan.estimate,
        "preserve_jobs": plan.settings.preserve_jobs,
        "waves": [{"name": wave.name, "clusters": list(wave.clusters)} for wave in plan.waves],
        "jobs": [
            {"cluster": target.cluster, "job": job.id, "owner": job.owner, "status": job.status}
            for target in plan.targets.values()
            for job in target.jobs
        ],
        "unpreservable": {
            target.cluster: list(target.unpreservable)
            for target in plan.targets.values()
            if target.unpreservable
        },
    }


def _body(kind: NotifyKind, message: _Message) -> bytes:
    document: dict[str, object]
    if kind is NotifyKind.SLACK:
        # Escaped, as Slack asks for, so that no name of a job calls a whole channel.
        text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        document = {"text": messages.fitting(text, SLACK_ROOM)}
    elif kind is NotifyKind.DISCORD:
        text = messages.fitting(message.text, DISCORD_ROOM)
        document = {"content": text, "allowed_mentions": {"parse": []}}
    else:
        document = {"event": message.event, "text": message.text, **message.document}
    return json.dumps(document).encode()


def _wrong(url: str, name: str) -> str:
    if not url:
        return f"nobody is told: the environment variable {name} is not set"
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    return "" if good else f"nobody is told: {name} holds no http or https URL"


def _attempt(url: str, body: bytes, patience: Patience) -> str:
    from urllib3.exceptions import HTTPError

    from rayfleet.image.machine import ca_bundle
    from rayfleet.image.oci.connections import pool_manager
    from rayfleet.image.oci.http import proxy_of, reason_of

    pool = pool_manager(
        proxy_of(url),
        bundle=ca_bundle(os.environ),
        connections=1,
        connect_timeout=patience.connect,
        read_timeout=patience.answer,
    )
    headers = {"Content-Type": "application/json", "User-Agent": f"rayfleet/{__version__}"}
    try:
        with _unlogged():
            reply = pool.request(
                "POST", url, body=body, headers=headers, redirect=False, preload_content=False
            )
            status = reply.status
            reply.close()
    except HTTPError as error:
        raise Transient(reason_of(error)) from None
    finally:
        pool.clear()
    if status in TRANSIENT_STATUS:
        raise Transient(f"HTTP {status}")
    if 300 <= status < 400:
        return f"HTTP {status}: it redirects, which is not followed; use the final URL"
    return "" if 200 <= status < 300 else f"HTTP {status}"


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep urllib3 from logging, for debugging, the paths that this thread asks for."""
    logger, here = logging.getLogger("urllib3.connectionpool"), threading.get_ident()

    def other(entry: logging.LogRecord) -> bool:
        return entry.thread != here

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _without(url: str, why: str) -> str:
    """``why``, or less of it where it quotes the URL."""
    parts = urlsplit(url)
    secrets = {url, parts.netloc, parts.hostname, parts.path.strip("/"), parts.query}
    return "no answer" if any(part and part in why for part in secrets) else why
