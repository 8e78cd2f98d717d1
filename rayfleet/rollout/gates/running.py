"""The gates of the head: it answers, is well, and is the one that was wanted."""

from __future__ import annotations

from rayfleet.cluster.started import read_start
from rayfleet.rollout.gates.gate import Question, Reading, Verdict
from rayfleet.rollout.gates.subject import Subject

# Only the agent of a node reads its logs: an answer about none of them shows that it works.
_AGENT = "/api/v0/logs?node_id={node}&glob=rayfleet-no-such-log"


def ssh(subject: Subject) -> Reading:
    """The head lets us in and runs a command."""
    subject.inside()
    return Reading(Verdict.PASS, "answers")


def health(subject: Subject) -> Reading:
    """GCS, head node and its agent are well."""
    answer = subject.dashboard().get("/api/gcs_healthz")
    if not answer.ok:
        return Reading(Verdict.NOT_YET, f"the GCS is not well: {answer.reason}")
    head = next((node for node in subject.nodes() if node.head), None)
    if head is None:
        return Reading(Verdict.NOT_YET, "the head is not listed as a live node yet")
    answer = subject.dashboard().get(_AGENT.format(node=head.id))
    if not answer.ok:
        return Reading(Verdict.NOT_YET, "the agent of the head does not answer yet")
    return Reading(Verdict.PASS, "GCS, head node and agent are well")


def version(subject: Subject) -> Reading:
    """The running Ray is the one that its image says it has, where the image says anything."""
    subject.session()
    running, wanted = subject.ray, subject.inside().ray
    if not running:
        return Reading(Verdict.UNKNOWN, "the dashboard does not tell its version")
    if wanted and running != wanted:
        return Reading(Verdict.FAIL, f"Ray {running} runs, and its image has {wanted}")
    return Reading(Verdict.PASS, f"Ray {running}")


def image(subject: Subject) -> Reading:
    """The head runs the pinned digest."""
    wanted = subject.wanted.config.digest
    running = subject.image_digest() or subject.inside().image.partition("@")[2]
    if not wanted:
        return Reading(Verdict.PASS, f"no digest is pinned, {running or 'an unknown one'} runs")
    if not running:
        return Reading(Verdict.UNKNOWN, f"the running image is unknown, {wanted} is wanted")
    if running != wanted:
        return Reading(Verdict.FAIL, f"{running} runs, {wanted} is wanted")
    return Reading(Verdict.PASS, running)


def config(subject: Subject) -> Reading:
    """The head was started with this very config."""
    wanted, recorded = subject.wanted.config.hash, read_start(subject.head()).config
    if not recorded:
        return Reading(Verdict.UNKNOWN, "the head does not say which config it was started with")
    if recorded != wanted:
        return Reading(Verdict.FAIL, f"started with {recorded[:12]}, {wanted[:12]} is wanted")
    return Reading(Verdict.PASS, recorded[:12])


def age(subject: Subject) -> Reading:
    """The GCS was started after everything old was gone.

    The head's clock is not asked: the age of its process is compared with the time that has
    passed here. That the age is rounded down, and read before the time is taken, errs to the
    safe side.
    """
    found = subject.inside().age(subject.session())
    if found is None:
        return Reading(Verdict.UNKNOWN, "which gcs_server process is the head's is not clear")
    if subject.wanted.emptied is None:
        return Reading(Verdict.PASS, f"the GCS has run for {found} s")
    passed = subject.now() - subject.wanted.emptied
    if found > passed:
        text = f"the GCS has run for {found} s, and all was gone only {passed:.0f} s ago"
        return Reading(Verdict.FAIL, text)
    return Reading(Verdict.PASS, f"the GCS has run for {found} s, of {passed:.0f} s since the stop")


SSH = Question(name="ssh", ask=ssh)
HEALTH = Question(name="health", needs=("ssh",), ask=health)
VERSION = Question(name="version", needs=("ssh",), ask=version)
IMAGE = Question(name="image", needs=("ssh",), ask=image)
CONFIG = Question(name="config", needs=("ssh",), ask=config)
AGE = Question(name="age", needs=("version",), ask=age)
