"""Which right of which repository a registry wants, and the command that grants it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum

# Artifact Registry's host of Docker repositories; its region stands before it.
GOOGLE_HOST = re.compile(r"(?P<region>[a-z0-9-]+)-docker\.pkg\.dev")
SERVICE_ACCOUNT = ".gserviceaccount.com"


class Action(StrEnum):
    """What one may do with a repository, in the words of token scopes."""

    PULL = "pull"
    PUSH = "push"
    DELETE = "delete"


# https://cloud.google.com/artifact-registry/docs/access-control#permissions: the permission,
# and the least of the predefined roles that holds it.
GOOGLE_RIGHTS = {
    Action.PULL: ("downloadArtifacts", "roles/artifactregistry.reader"),
    Action.PUSH: ("uploadArtifacts", "roles/artifactregistry.writer"),
    Action.DELETE: ("deleteArtifacts", "roles/artifactregistry.repoAdmin"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRight:
    """A right of Google's that ``account`` (an e-mail address, "" if unknown) lacks."""

    project: str
    region: str
    repository: str
    action: Action
    account: str = ""

    @property
    def permission(self) -> str:
        """The permission's full name."""
        return f"artifactregistry.repositories.{GOOGLE_RIGHTS[self.action][0]}"

    @property
    def resource(self) -> str:
        """What it has to be granted on."""
        return f"projects/{self.project}/locations/{self.region}/repositories/{self.repository}"

    @property
    def command(self) -> str:
        """The command that grants it, for somebody who may."""
        return (
            f"gcloud artifacts repositories add-iam-policy-binding {self.repository}"
            f" --location={self.region} --project={self.project}"
            f" --member={_member(self.account)} --role={GOOGLE_RIGHTS[self.action][1]}"
        )


def missing_right(
    host: str, path: str, action: Action, *, account: str = ""
) -> MissingRight | None:
    """The right of ``path`` (``project/repository/image``) at a host of Artifact Registry.

    None for every other host, and where ``path`` names no repository.
    """
    google = GOOGLE_HOST.fullmatch(host)
    # A project may belong to a domain: example.com:project is example.com/project in a path.
    project, _, rest = path.partition("/")
    if "." in project:
        name, _, rest = rest.partition("/")
        project = f"{project}:{name}"
    repository = rest.partition("/")[0]
    if google is None or not repository:
        return None
    return MissingRight(
        project=project,
        region=google["region"],
        repository=repository,
        action=action,
        account=account if "@" in account else "",
    )


def _member(account: str) -> str:
    if not account:  # a person's default credentials do not tell whose they are
        return '"user:$(gcloud config get account)"'
    kind = "serviceAccount" if account.endswith(SERVICE_ACCOUNT) else "user"
    return shlex.quote(f"{kind}:{account}")
