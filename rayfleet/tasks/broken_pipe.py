"""The end of a program whose output nobody reads any more: ``invoke --list | head -1``."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import TracebackType


def end_like_others() -> None:
    """Let this program end of SIGPIPE, without a word, when stdout or stderr has no reader.

    Python ignores that signal, so that a socket whose other end is gone is an error like any
    other, and Invoke prints without regard to it. So the signal comes once the error has got
    through everything that clears up on its way.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            _end()
        before(kind, error, trace)

    sys.excepthook = hook
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What is written at the very end only fails there, where nothing can be caught.
        sys.stdout.reconfigure(line_buffering=True)


def _nobody_reads() -> bool:
    from rayfleet.log.output.pipe import reader_is_gone

    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    return any(reader_is_gone(stream.buffer) for stream in streams)


def _end() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
