"""What to do when GitLab did not do what an operator's command asked. Pure.

One table for commands and findings: which setting, which right, which waiting.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.errors import GitLabError, GitLabRefused, GitLabUnavailable, OutcomeUnknown

_HOOK_CALLS: Final = frozenset({"hooks", "hook_events", "create_hook", "change_hook", "try_hook"})

_HIDDEN: Final = (
    "mend the project's number or path, or make the token's user a member: from others it is hidden"
)
_LOCAL: Final = (
    "GitLab sends no webhooks into its local network: give a public address, or let an administrator allow "
    "it in Admin > Settings > Network > Outbound requests"
)
_NAMED: Final = "mend what GitLab names, then run the command again"


def remedy_of(error: GitLabError, setting: str) -> str:
    """Say how to go on; `setting` names the token that was used."""
    match error:
        case GitLabRefused():
            return _refused(error, setting)
        case OutcomeUnknown():
            return "run the command again: it looks first, so nothing is made twice"
        case GitLabUnavailable(retry_after_s=wait_s) if wait_s is not None:
            return f"try again in {wait_s:.0f} s"
        case _:
            return (
                "check GITLAB_SYNC_GITLAB_URL and the way there (name, firewall, certificate), then try again"
            )


def _refused(refused: GitLabRefused, setting: str) -> str:
    match refused.status:
        case 401:
            return f"the token is wrong, expired or revoked: make a new one and set {setting}"
        case 403 if "scope" in refused.message:
            return f"the token lacks a scope: make one with `api` and set {setting}"
        case status if 300 <= status < 400:
            return "set GITLAB_SYNC_GITLAB_URL to the final address"
        case _ if refused.operation in _HOOK_CALLS:
            return _refused_hook(refused, setting)
        case 403:
            return "give the token's user the role Developer in the project, or Maintainer if it is a setting"
        case 404 if refused.operation == "project":
            return _HIDDEN
        case 404:
            return "check GITLAB_SYNC_GITLAB_URL: this address does not answer as GitLab's API does"
        case _:
            return _NAMED


def _refused_hook(refused: GitLabRefused, setting: str) -> str:
    if refused.status == 403:
        return f"webhooks take the role Maintainer in the project: run this with such a token in {setting}"
    if refused.status == 404:
        return _HIDDEN
    return _LOCAL if "blocked" in refused.message.casefold() else _NAMED
