"""How Google says no: one kind of error, with the bodies that its APIs send."""

from __future__ import annotations

from typing import Any

# https://cloud.google.com/apis/design/errors#handling_errors
STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# https://cloud.google.com/compute/docs/reference/rest/v1/errors (see the `reason` column)
REASON = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "backendError",
    503: "backendError",
}


class Refused(Exception):
    """A request that is answered with an HTTP error.

    ``status`` is Google's canonical name of it, ``reason`` the word that Compute Engine puts
    beside it; both follow from ``code`` unless they are given.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: str = "",
        reason: str = "",
        details: list[dict[str, Any]] | None = None,
    ) -> None:
        self.code = code
        self.message = message
        self.status = status or STATUS.get(code, "UNKNOWN")
        self.reason = reason or REASON.get(code, "backendError")
        self.details = details or []
        super().__init__(f"{code} {self.status}: {message}")

    def body(self) -> dict[str, Any]:
        """What is sent: the union of what the old APIs and the new ones say."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "status": self.status,
            "errors": [{"message": self.message, "domain": "global", "reason": self.reason}],
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}


def not_found(name: str) -> Refused:
    """There is no resource of this name."""
    return Refused(404, f"The resource '{name}' was not found")


def exists(name: str) -> Refused:
    """There is one of this name already."""
    return Refused(409, f"The resource '{name}' already exists")


def invalid(field: str, why: str) -> Refused:
    """A value that the API does not take."""
    return Refused(400, f"Invalid value for field '{field}': {why}")


def unmet(message: str) -> Refused:
    """The resource is in no state for this."""
    return Refused(400, message, status="FAILED_PRECONDITION", reason="failedPrecondition")
