"""The real GitLab as `admin_port.GitLabAdmin`: what an operator asks and sets, on the same way as the rest.

Built on `gitlab_calls`, so limits, retries, pauses and the judgement of errors are the service's own. A
webhook's secrets go out from here, and a proxy or GitLab itself may repeat a body in its refusal: no secret
that was sent is in a text that comes back.

Never decides what is wrong: that is `hook_rules` and `doctor`. Never writes anything but webhooks.

Races considered:
A  a list of webhooks is read page by page while others change it: at worst one is missed, and `hook_care`
   looks again after what it did.
B  a lost answer to a creation: OutcomeUnknown, never repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from gitlab_sync import admin_shapes as shapes
from gitlab_sync.admin_port import (
    ApprovalRule,
    HookDelivery,
    HookId,
    HookInfo,
    HookWish,
    InstanceInfo,
    ProjectSettings,
    Protection,
    PushRules,
    TargetBranch,
    TokenInfo,
    UserInfo,
)
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.gitlab_calls import ONE_TRY, Access, GitLabCalls
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.gitlab_shapes import Shape, UnexpectedShape
from gitlab_sync.secret import MASK, Secret

DELIVERIES_SHOWN: Final = 20
TRIED_EVENT: Final = "merge_requests_events"
# Not there, not in this edition, or not for this role.
_NOT_SHOWN: Final = frozenset({403, 404})
# Kinds of token that are not a personal, project or group access token cannot be asked.
_NO_SUCH_TOKEN: Final = frozenset({400, 403, 404})


class GitLabAdminClient:
    """One GitLab instance, seen with `access.token`; a read token would hide half of what is asked here."""

    def __init__(self, access: Access) -> None:
        self._calls = GitLabCalls(access)

    async def instance(self) -> InstanceInfo:
        return await self._calls.of_instance(
            GitLabCall.VERSION, lambda gl: _instance(gl.http_request("get", "/version", **ONE_TRY))
        )

    async def token(self) -> TokenInfo | None:
        try:
            found = await self._get(GitLabCall.TOKEN, "/personal_access_tokens/self")
        except GitLabRefused as refused:
            if refused.status not in _NO_SUCH_TOKEN:
                raise
            return None
        return shapes.token(found)

    async def user(self) -> UserInfo:
        return shapes.user(await self._get(GitLabCall.USER, "/user"))

    async def settings(self, project: int | str) -> ProjectSettings:
        return shapes.settings(await self._get(GitLabCall.PROJECT, _of(project)))

    async def branch(self, project: int | str, branch: str) -> TargetBranch | None:
        found = await self._find(GitLabCall.BRANCH, f"{_of(project)}/repository/branches/{_segment(branch)}")
        return None if found is None else shapes.branch(found)

    async def branches(self, project: int | str, part: str) -> Sequence[str]:
        where = f"{_of(project)}/repository/branches"
        found = await self._list(GitLabCall.BRANCH, where, search=part, page=1, per_page=100)
        return [str(row["name"]) for row in found]

    async def has_file(self, project: int | str, path: str, ref: str) -> bool:
        where = f"{_of(project)}/repository/files/{_segment(path)}"
        return await self._find(GitLabCall.READ_FILE, where, ref=ref) is not None

    async def has_pipelines(self, project: int | str) -> bool | None:
        try:
            found = await self._list(
                GitLabCall.LIST_PIPELINES, f"{_of(project)}/pipelines", page=1, per_page=1
            )
        except GitLabRefused as refused:
            if refused.status not in _NOT_SHOWN:
                raise
            return None
        return bool(found)

    async def protections(self, project: int | str) -> Sequence[Protection] | None:
        found = await self._rows(GitLabCall.PROTECTED_BRANCHES, f"{_of(project)}/protected_branches")
        return None if found is None else [shapes.protection(row) for row in found]

    async def approval_rules(self, project: int | str) -> Sequence[ApprovalRule] | None:
        found = await self._rows(GitLabCall.APPROVAL_RULES, f"{_of(project)}/approval_rules")
        if found is not None:
            return [shapes.approval_rule(row) for row in found]
        whole = await self._shown(GitLabCall.APPROVAL_RULES, f"{_of(project)}/approvals")
        return None if whole is None else [shapes.approvals(whole)]

    async def push_rules(self, project: int | str) -> PushRules | None:
        found = await self._shown(GitLabCall.PUSH_RULES, f"{_of(project)}/push_rule")
        return shapes.push_rules(found) if found else None

    async def hooks(self, project: int | str) -> Sequence[HookInfo]:
        found = await self._list(GitLabCall.HOOKS, _hooks_of(project), per_page=100, get_all=True)
        return [shapes.hook(row) for row in found]

    async def create_hook(self, project: int | str, wish: HookWish) -> HookInfo:
        data = shapes.hook_data(wish)
        with _told_without(wish.token, wish.signing_key):
            return await self._calls.of_instance(
                GitLabCall.CREATE_HOOK,
                lambda gl: shapes.hook(_object(gl.http_post(_hooks_of(project), post_data=data, **ONE_TRY))),
            )

    async def change_hook(self, project: int | str, hook_id: HookId, wish: HookWish) -> HookInfo:
        data, path = shapes.hook_data(wish), f"{_hooks_of(project)}/{hook_id}"
        with _told_without(wish.token, wish.signing_key):
            return await self._calls.of_instance(
                GitLabCall.CHANGE_HOOK,
                lambda gl: shapes.hook(_object(gl.http_put(path, post_data=data, **ONE_TRY))),
            )

    async def try_hook(self, project: int | str, hook_id: HookId) -> None:
        path = f"{_hooks_of(project)}/{hook_id}/test/{TRIED_EVENT}"
        await self._calls.of_instance(GitLabCall.TRY_HOOK, lambda gl: _nothing(gl.http_post(path, **ONE_TRY)))

    async def deliveries(self, project: int | str, hook_id: HookId) -> Sequence[HookDelivery] | None:
        path = f"{_hooks_of(project)}/{hook_id}/events"
        try:
            found = await self._list(GitLabCall.HOOK_EVENTS, path, page=1, per_page=DELIVERIES_SHOWN)
        except GitLabRefused as refused:
            if refused.status not in _NOT_SHOWN:
                raise
            return None
        return sorted((shapes.delivery(row) for row in found), key=lambda one: one.id, reverse=True)

    async def aclose(self) -> None:
        await self._calls.aclose()

    async def _get(self, call: GitLabCall, path: str, **query: str) -> Shape:
        return await self._calls.of_instance(
            call, lambda gl: _object(gl.http_get(path, query_data=dict(query), **ONE_TRY))
        )

    async def _find(self, call: GitLabCall, path: str, **query: str) -> Shape | None:
        """Get something that may not exist, of a project that was seen just before."""
        try:
            return await self._get(call, path, **query)
        except GitLabRefused as refused:
            if refused.status != 404:
                raise
            return None

    async def _shown(self, call: GitLabCall, path: str) -> Shape | None:
        """Get something that this edition may lack, or this role may not see."""
        try:
            return await self._get(call, path)
        except GitLabRefused as refused:
            if refused.status not in _NOT_SHOWN:
                raise
            return None

    async def _rows(self, call: GitLabCall, path: str) -> list[Shape] | None:
        try:
            return await self._list(call, path, per_page=100, get_all=True)
        except GitLabRefused as refused:
            if refused.status not in _NOT_SHOWN:
                raise
            return None

    async def _list(self, call: GitLabCall, path: str, **paging: Any) -> list[Shape]:
        return await self._calls.of_instance(
            call, lambda gl: [_object(row) for row in gl.http_list(path, **paging, **ONE_TRY)]
        )


@contextmanager
def _told_without(*secrets: Secret | None) -> Iterator[None]:
    """Let no error out that repeats what was sent."""
    texts = [secret.reveal() for secret in secrets if secret]

    def clean(text: str) -> str:
        for secret in texts:
            text = text.replace(secret, MASK)
        return text

    try:
        yield
    except GitLabRefused as error:
        raise GitLabRefused(error.operation, error.status, clean(error.message)) from None
    except OutcomeUnknown as error:
        raise OutcomeUnknown(clean(str(error))) from None
    except GitLabUnavailable as error:
        raise GitLabUnavailable(clean(str(error)), retry_after_s=error.retry_after_s) from None


def _instance(answer: Any) -> InstanceInfo:
    version = _object(answer.json()).get("version")
    if not isinstance(version, str):
        raise UnexpectedShape("there is no version in it; is this GitLab?")
    return InstanceInfo(version, shapes.http_date(answer.headers.get("Date", "")))


def _object(value: object) -> Shape:
    if not isinstance(value, Mapping):
        raise UnexpectedShape("it is not the JSON object that was asked for; is this GitLab's API?")
    return value


def _nothing(_answer: object) -> None:
    """An answer that carries no news."""


def _of(project: int | str) -> str:
    return f"/projects/{_segment(str(project))}"


def _hooks_of(project: int | str) -> str:
    return f"{_of(project)}/hooks"


def _segment(text: str) -> str:
    return quote(text, safe="")
