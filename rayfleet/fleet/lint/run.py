"""Every rule on every config: the fleet's own, and files that are not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from rayfleet.fleet.document import Document, Problem
from rayfleet.fleet.lint import authentication as auth
from rayfleet.fleet.lint import (
    commands,
    docker,
    files,
    kuberay,
    kuberay_head,
    providers,
    scaling,
    secrets,
    shape,
)
from rayfleet.fleet.lint.config import Config
from rayfleet.fleet.lint.finding import Finding, printable
from rayfleet.fleet.lint.kinds import Kind, kind_of
from rayfleet.fleet.lint.ray_files import ray_defaults
from rayfleet.fleet.lint.secret_forms import secret_in
from rayfleet.fleet.lint.several import check_together
from rayfleet.fleet.lint.source import Source, parse_source, read_source
from rayfleet.harmless import on_one_line

LONGEST_PATH = 4096

Rule = Callable[[Config], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    shape.check_shape,
    shape.check_nothing_dropped,
    scaling.check_name,
    scaling.check_limits,
    scaling.check_node_types,
    providers.check_provider,
    docker.check_docker,
    docker.check_images,
    docker.check_restart,
    docker.check_memory,
    commands.check_lost_changes,
    commands.check_dashboard,
    commands.check_start_commands,
    commands.check_autoscaler,
    commands.check_gone,
    commands.check_ray_version,
    auth.check_auth_mode,
    auth.check_token,
    auth.check_one_token,
    auth.check_ray_knows_tokens,
    files.check_mounts,
    files.check_user,
    secrets.check_secrets,
)
"""What a cluster config of Ray's launcher is held against."""
OF_THE_OPERATOR: tuple[Rule, ...] = (files.check_keys,)
"""What is only right or wrong on the machine that runs `ray up`."""
OF_KUBERAY: tuple[Rule, ...] = (
    kuberay.check_resource,
    kuberay_head.check_head,
    secrets.check_secrets,
)
"""What a resource of KubeRay is held against."""


def lint_text(text: str, *, shown: str) -> list[Finding]:
    """What is wrong with the text of one cluster config, in the order of its lines.

    Raises:
        PrerequisiteMissing: Ray, which brings the schema, is not installed.
    """
    source = parse_source(text, shown=shown)
    if source.fault is not None:
        return [_of_problem(source.shown, source.fault)]
    return _lint_document(source.documents[0], RULES)


def lint_files(paths: Sequence[Path]) -> tuple[Finding, ...]:
    """What is wrong with each of ``paths``, and with all of them together.

    Raises:
        PrerequisiteMissing: Ray, which brings the schema, is not installed.
    """
    found: list[Finding] = []
    configs: list[Config] = []
    for path in dict.fromkeys(paths):
        source = read_source(path, shown=printable(path, longest=LONGEST_PATH))
        if source.fault is not None:
            found.append(_of_problem(source.shown, source.fault))
            continue
        for document, kind in _known(source):
            if kind is Kind.RAY:
                found += _lint_document(document, RULES + OF_THE_OPERATOR)
                configs.append(_config(document))
                if len(source.documents) > 1:
                    found.append(_of_problem(source.shown, _second(source)))
            elif kind is Kind.KUBERAY:
                found += _lint_document(document, OF_KUBERAY)
            else:
                found.append(_stranger(document, kind))
    return (*found, *check_together(configs))


def _known(source: Source) -> Iterable[tuple[Document, Kind]]:
    """The documents to look at: what stands beside a resource of KubeRay is none of ours."""
    kinds = [(document, kind_of(document.value)) for document in source.documents]
    known = [one for one in kinds if one[1] is Kind.KUBERAY]
    return known or kinds[:1]


def _lint_document(document: Document, rules: Iterable[Rule]) -> list[Finding]:
    config = _config(document)
    found = [_of_problem(document.shown, problem) for problem in document.problems]
    found += [finding for rule in rules for finding in rule(config)]
    return sorted(dict.fromkeys(found), key=lambda one: one.number)


def _config(document: Document) -> Config:
    provider = document.value.get("provider")
    kind = provider.get("type") if isinstance(provider, dict) else None
    return Config(document=document, defaults=ray_defaults(kind) if isinstance(kind, str) else {})


def _of_problem(shown: str, problem: Problem) -> Finding:
    key, text = printable(problem.trail), problem.text
    if secret_in(text):
        text = "cannot be read as what it seems; put it in quotes"
    text = on_one_line(text)
    return Finding(
        level="error",
        rule="yaml",
        where=f"{shown}:{problem.line}",
        file=shown,
        number=problem.line,
        key=key,
        text=f"{key}: {text}" if key else text,
    )


def _second(source: Source) -> Problem:
    line = source.documents[1].lines[()]
    return Problem(line, "", "a second document, and Ray reads files of one; remove it")


def _stranger(document: Document, kind: Kind) -> Finding:
    if kind is Kind.FLEET:
        command = f"INVOKE_FLEET={quote(document.shown)} invoke fleet.lint"
        text = f"a fleet file and no cluster config; run: {command}"
    else:
        text = "no cluster config of Ray: it has neither cluster_name and provider, nor"
        text += " apiVersion: ray.io/v1"
    return _of_problem(document.shown, Problem(document.lines.get((), 1), "", text))
