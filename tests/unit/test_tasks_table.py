"""The tasks as operators meet them: names, help, the README's table and its commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser import Argument, Parser, ParserContext
from invoke.program import Program
from invoke.tasks import Task

from rayfleet.tasks import ns
from rayfleet.tasks.mistyped import explained

ROOT = Path(__file__).parents[2]
MAX_SUMMARY = 60  # characters, so that `invoke --list` fits a terminal of 80
INVOKE = Path(sys.executable).with_name("invoke")


def named_tasks() -> dict[str, Task[object]]:
    """Every task by the name that one types."""
    return {name: ns[name] for name in ns.task_names}


TASKS = named_tasks()


def arguments(name: str) -> list[Argument]:
    """The arguments of a task."""
    found: list[Argument] = TASKS[name].get_arguments()
    return found


@pytest.mark.parametrize("name", TASKS)
def test_a_task_explains_itself(name: str) -> None:
    task = TASKS[name]
    summary = (task.__doc__ or "").strip().splitlines()[0]
    assert 0 < len(summary) <= MAX_SUMMARY
    assert re.match(r"[A-Z][a-z]*[a-rt-z]\b.*\.$", summary), "imperative, and a full stop"
    for _ in range(2):  # Invoke's own tasks tell their help texts to the first who asks
        silent = [argument.name for argument in arguments(name) if not argument.help]
        assert silent == []


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_no_short_flags(name: str) -> None:
    # Invoke invents them in order of parameters: -c would mean something else in each task.
    short = [flag for argument in arguments(name) for flag in argument.names[1:]]
    # Chosen by hand, as tail(1) has it.
    expected = ["f"] if name == "jobs.logs" else []
    assert [flag for flag in short if len(flag) == 1] == expected


def parsed(*words: str) -> tuple[ParserContext, list[ParserContext]]:
    """What Invoke makes of a command line: its own part, and the tasks."""
    contexts = [ParserContext(name, args=arguments(name)) for name in TASKS]
    own, *tasks = Parser(initial=Program().initial_context, contexts=contexts).parse_argv([*words])
    return own, tasks


@pytest.mark.parametrize("name", TASKS)
def test_a_task_shows_its_help_without_its_arguments(name: str) -> None:
    own, _ = parsed(name, "--help")
    assert own.args["help"].value == name


def test_positional_arguments_are_words_and_no_options() -> None:
    _, (upload,) = parsed("upload", "here", "--json", "there", "--cluster", "us-*")
    assert (upload.args["source"].value, upload.args["dest"].value) == ("here", "there")
    with pytest.raises(ParseError, match="did not receive required positional arguments: 'dest'"):
        parsed("upload", "here")
    with pytest.raises(ParseError, match="No idea what '--nope' is"):
        parsed("ssh", "--nope")


@pytest.mark.parametrize(
    ("line", "what", "next_step"),
    [
        ("configs", "there is no task 'configs'", "invoke update-configs"),
        ("xyz", "there is no task 'xyz'", "invoke --list"),
        (
            "tail-logs foo",
            "tail-logs takes no 'foo', and there is no task 'foo'",
            "invoke tail-logs --help",
        ),
        (
            "restart --clustr us-*",
            "restart has no option '--clustr'",
            "invoke restart --help (did you mean --cluster?)",
        ),
        ("--zzz", "invoke has no option '--zzz'", "invoke --help"),
        ("tail-logs --tail", "tail-logs: --tail needs a value", "invoke tail-logs --help"),
        ("jobs.submit", "jobs.submit needs entrypoint", "invoke jobs.submit --help"),
        (
            "tail-logs --merge restart",
            "'restart' is ambiguous when given after an optional-value flag",
            "invoke --list",
        ),
    ],
)
def test_a_mistyped_line_is_told_with_the_next_command(
    line: str, what: str, next_step: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parsed(*line.split())
    assert explained(caught.value, TASKS) == f"error: {what}\n  next: {next_step}"


def test_the_program_says_it_so() -> None:
    finished = subprocess.run(
        [INVOKE, "tail-log"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert finished.stderr == "error: there is no task 'tail-log'\n  next: invoke tail-logs\n"


def test_the_table_in_the_readme_is_fresh() -> None:
    finished = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme_tasks.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr


def commands(document: str) -> Iterator[list[str]]:
    """The commands in the indented blocks of a Markdown file and in its inline code."""
    text = (ROOT / document).read_text().replace("\\\n", " ")
    blocks = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    for line in blocks + re.findall(r"`((?:invoke|make) [^`]+)`", text):
        for command in line.partition(" #")[0].split("&&"):
            yield re.findall(r'"[^"]*"|\S+', command)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_commands_in_the_documents_exist(document: str) -> None:
    unknown, seen = [], 0
    targets = set(re.findall(r"^([a-z_-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(document):
        if words[:1] == ["make"]:
            seen += 1
            unknown += [f"make {word}" for word in words[1:] if word not in targets]
        elif words[:1] == ["invoke"] and not words[1].startswith(("-", "fleet.")):
            seen += 1
            unknown += wrong_words(words[1:])
    assert seen > 0
    assert unknown == []


def wrong_words(words: list[str]) -> list[str]:
    """What in ``invoke WORDS`` is no task of ours, or no option of that task."""
    if "--" in words:  # what follows is a command of the reader's
        words = words[: words.index("--")]
    # "start | stop" and "sandbox.up | down" name several.
    prefix = words[0].rpartition(".")[0]
    names = [words[0]]
    names += [word if word in TASKS else f"{prefix}.{word}" for word in after_bars(words)]
    wrong = [name for name in names if name not in TASKS]
    options = [word for word in words if word.startswith("--")]
    known = {
        f"--{part}{argument.name.replace('_', '-')}"
        for name in names
        if name in TASKS
        for argument in arguments(name)
        for part in ("", "no-")
    }
    return wrong + [f"{words[0]} {option}" for option in options if option not in known]


def after_bars(words: list[str]) -> list[str]:
    """The words that follow a bar."""
    return [after for bar, after in pairwise(words) if bar == "|"]


def test_the_demo_runs_tasks_that_exist() -> None:
    script = (ROOT / "scripts" / "demo.sh").read_text()
    lines = re.findall(r'^ +phase "\w+" run (.+)$', script, re.MULTILINE)
    assert len(lines) >= 5
    wrong = [wrong_words(shlex.split(line.replace('"${dirty[@]}"', ""))) for line in lines]
    assert [words for words in wrong if words] == []


def test_another_repository_adds_the_tasks_to_its_own(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from invoke import Collection, task\n"
        "from rayfleet.tasks import ns as fleet\n"
        "@task\n"
        "def hello(context):\n"
        "    '''Say hello.'''\n"
        "ns = Collection(hello)\n"
        "ns.add_collection(fleet, name='fleet')\n"
    )
    listed = run_invoke(tmp_path, "--list")
    assert listed.returncode == 0
    assert {"hello", "fleet.status", "fleet.sandbox.up"} <= set(listed.stdout.split())

    # Its fleet file is found through its own invoke.yaml, from a folder further down.
    (tmp_path / "invoke.yaml").write_text("fleet: deploy/mine.yaml\n")
    (tmp_path / "deploy").mkdir()
    missing = run_invoke(tmp_path / "deploy", "fleet.status")
    assert missing.returncode == 1
    assert f"error: no fleet file {tmp_path / 'deploy/mine.yaml'}" in missing.stderr
    (tmp_path / "deploy" / "mine.yaml").write_text("project: mine\nclusers: {}\n")
    wrong = run_invoke(tmp_path, "fleet.status")
    assert wrong.returncode == 1
    assert "deploy/mine.yaml" in wrong.stderr
    assert "Traceback" not in missing.stderr + wrong.stderr


def test_the_environment_chooses_the_fleet(tmp_path: Path) -> None:
    finished = run_invoke(ROOT, "status", INVOKE_FLEET=str(tmp_path / "other.yaml"))
    assert finished.returncode == 1
    assert f"no fleet file {tmp_path / 'other.yaml'}" in finished.stderr


def run_invoke(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run invoke as an operator does who stands in ``folder``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INVOKE_")}
    return subprocess.run(
        [INVOKE, *words],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_collection_is_the_one_of_tasks_py() -> None:
    sources = (ROOT / "tasks.py").read_text()
    assert "from rayfleet.tasks import ns" in sources
    assert isinstance(ns, Collection)
