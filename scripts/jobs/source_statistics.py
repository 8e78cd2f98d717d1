"""Count the source code of an installed Python package, one Ray task per file.

    invoke jobs.submit --cluster us-east5 --working-dir scripts/jobs \\
        'python source_statistics.py --package ray --limit 100'

This is the shape of a batch job on these clusters: every file is one task, tasks are spread
over the nodes, a task writes its whole output at once, and a file whose output exists is
skipped. So the job can be killed at any moment and submitted again; it goes on where it was.

``--output`` is a folder that every node of the cluster sees. The default is
``$CLUSTER_BUCKET/source_statistics``. The output of ``a/b.py`` is
``<output>/<package>/a/b.py.json``.

The last line on stdout is JSON with counts over all files, those skipped included::

    {"files": 3, "done": 2, "skipped": 1, "failed": 0, "lines": ..., "words": ..., "bytes": ...,
     "functions": ..., "nodes": ["host-a", "host-b"]}

``nodes`` are the hosts that did the work of this run. Exit code 1 if any file failed, 2 for bad
arguments. Lines and words are counted as wc(1) does.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one file, or many, hold; ``functions`` are def and async def, methods included."""

    lines: int = 0
    words: int = 0
    bytes: int = 0
    functions: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            lines=self.lines + other.lines,
            words=self.words + other.words,
            bytes=self.bytes + other.bytes,
            functions=self.functions + other.functions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one file went; ``node`` is empty if no task came back."""

    file: str
    state: str
    counts: Counts = Counts()
    node: str = ""
    error: str = ""


def package_folder(package: str) -> Path:
    """Where ``package`` is installed here, without importing it; ValueError if it is not."""
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"no package {package} is installed here")
    return Path(next(iter(found.submodule_search_locations)))


def source_files(folder: Path, limit: int | None = None) -> list[str]:
    """The first ``limit`` Python files of ``folder``, relative to it, in order of their names."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
    return names[:limit]


def count(source: bytes) -> Counts:
    """Count one file; SyntaxError or ValueError if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return Counts(
        lines=source.count(b"\n"),
        words=len(source.split()),
        bytes=len(source),
        functions=sum(isinstance(node, functions) for node in ast.walk(tree)),
    )


def count_file(package: str, file: str, output: Path) -> Outcome:
    """The task: count ``file`` of ``package`` into ``output``, unless that has been done."""
    node = socket.gethostname()
    target = output / package / f"{file}.json"
    try:
        if (known := read_output(target)) is not None:
            return Outcome(file=file, state="skipped", counts=known)
        counts = count((package_folder(package) / file).read_bytes())
        write_output(target, counts)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return Outcome(file=file, state="failed", node=node, error=repr(error))
    return Outcome(file=file, state="done", counts=counts, node=node)


def read_output(path: Path) -> Counts | None:
    """The counts in ``path``; None if there are none that can be read."""
    try:
        return Counts(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return None


def write_output(path: Path, counts: Counts) -> None:
    """Write ``counts`` whole or not at all, even if two tasks write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(asdict(counts), stream)
            os.fchmod(stream.fileno(), 0o644)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)  # noqa: PTH105 (atomic rename is the point)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def spread(package: str, files: Iterable[str], output: Path, in_flight: int) -> Iterator[Outcome]:
    """Count ``files`` on the cluster, at most ``in_flight`` tasks at once, as they finish.

    A task that a lost node takes with it is run again by Ray, up to three times.
    """
    import ray

    task: Any = ray.remote(num_cpus=1, max_retries=3, scheduling_strategy="SPREAD")(count_file)
    waiting: dict[Any, str] = {}
    for file in files:
        if len(waiting) >= in_flight:
            yield from finished(waiting)
        waiting[task.remote(package, file, output)] = file
    while waiting:
        yield from finished(waiting)


def finished(waiting: dict[Any, str]) -> Iterator[Outcome]:
    """Wait for a task of ``waiting``, and take out all that have ended."""
    import ray

    ready, _ = ray.wait(list(waiting), num_returns=1)
    more, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
    for reference in dict.fromkeys([*ready, *more]):
        file = waiting.pop(reference)
        try:
            yield ray.get(reference)
        except ray.exceptions.RayError as error:
            yield Outcome(file=file, state="failed", error=str(error).strip().splitlines()[-1])


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The counts of the whole run, as the last line shows them."""
    states = [outcome.state for outcome in outcomes]
    total = sum((outcome.counts for outcome in outcomes), Counts())
    return {
        "files": len(outcomes),
        **{state: states.count(state) for state in ("done", "skipped", "failed")},
        **asdict(total),
        "nodes": sorted({outcome.node for outcome in outcomes if outcome.node}),
    }


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exit code 2 with one clear line if it makes no sense."""
    bucket = os.environ.get("CLUSTER_BUCKET", "")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--package", default="ray", help="an installed package (default: ray)")
    parser.add_argument("--limit", type=positive, help="only the first LIMIT files")
    parser.add_argument("--in-flight", type=positive, default=64, help="tasks at once")
    parser.add_argument(
        "--output",
        default=f"{bucket}/source_statistics" if bucket else "",
        help="a folder that every node sees (default: $CLUSTER_BUCKET/source_statistics)",
    )
    given = parser.parse_args(argv)
    if not given.output:
        parser.error("--output is needed: CLUSTER_BUCKET is not set")
    if "://" in given.output:
        parser.error(f"--output {given.output}: a folder is needed, so mount the bucket")
    return given


def positive(text: str) -> int:
    """An integer of at least 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    given = arguments(argv)
    output = Path(given.output).resolve()
    try:
        files = source_files(package_folder(given.package), given.limit)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    import ray

    ray.init()
    outcomes = []
    for outcome in spread(given.package, files, output, given.in_flight):
        outcomes.append(outcome)
        if outcome.state == "failed":
            print(f"failed: {outcome.file}: {outcome.error}", file=sys.stderr)
        if len(outcomes) % 100 == 0:
            print(f"{len(outcomes)} of {len(files)} files", file=sys.stderr)
    ray.shutdown()
    total = summary(outcomes)
    print(json.dumps(total), flush=True)
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
