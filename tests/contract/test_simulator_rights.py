"""Who may do what in the simulated instance, and how a refusal looks."""

from __future__ import annotations

from collections.abc import Iterator

import gitlab
import pytest

from tests.contract.house import PATH, House


@pytest.fixture
def enter(house: House) -> Iterator[object]:
    """A factory of clients for new users of a role and scope."""
    clients: list[gitlab.Gitlab] = []

    def make(name: str, role: int, scope: str = "api") -> gitlab.Gitlab:
        house.control.add_user(name, token=f"{name}-token", role=role, scopes=[scope])
        clients.append(gitlab.Gitlab(house.url, private_token=f"{name}-token", timeout=10))
        return clients[-1]

    yield make
    for client in clients:
        client.session.close()


def test_revoked_token_is_unauthorized_until_it_is_restored(house: House) -> None:
    """401 for every call, with GitLab's words."""
    house.control.revoke_token("bot-token")
    with pytest.raises(gitlab.GitlabAuthenticationError) as caught:
        house.gl.projects.get(PATH)
    assert caught.value.error_message == "401 Unauthorized"
    house.control.restore_token("bot-token")
    house.gl.auth()


def test_bearer_is_as_good_as_a_private_token(house: House) -> None:
    """The same secret in the other header."""
    client = gitlab.Gitlab(house.url, oauth_token="bot-token", timeout=10)
    client.auth()
    client.session.close()
    assert client.user is not None
    assert client.user.username == "bot"


def test_stranger_does_not_see_that_the_project_exists(house: House, enter: object) -> None:
    """404, not 403."""
    assert callable(enter)
    with pytest.raises(gitlab.GitlabGetError, match="404 Project Not Found"):
        enter("stranger", 0).projects.get(PATH)


def test_read_scope_reads_and_does_not_write(house: House, enter: object) -> None:
    """403 insufficient_scope for a write, whatever the role."""
    assert callable(enter)
    project = enter("poller", 40, "read_api").projects.get(PATH)
    assert project.branches.get("main")
    with pytest.raises(gitlab.GitlabCreateError) as caught:
        project.branches.create({"branch": "x", "ref": "main"})
    assert (caught.value.response_code, caught.value.error_message) == (403, "insufficient_scope")


def test_developer_may_merge_but_not_push_to_a_protected_branch(house: House, enter: object) -> None:
    """Push is refused before anything else is checked; with a merge level above, the merge is 401."""
    assert callable(enter)
    project = enter("dev", 30).projects.get(PATH)
    with pytest.raises(
        gitlab.GitlabCreateError, match="You are not allowed to push into this branch"
    ) as caught:
        project.commits.create({"branch": "main", "commit_message": "", "actions": []})
    assert caught.value.response_code == 403
    mr = house.offer()
    house.project.protectedbranches.delete("main")
    house.project.protectedbranches.create({"name": "main", "merge_access_level": 40})
    assert project.mergerequests.get(mr.iid).user == {"can_merge": False}
    with pytest.raises(gitlab.GitlabAuthenticationError):
        project.mergerequests.get(mr.iid).merge(sha=mr.sha)
    with pytest.raises(gitlab.GitlabListError) as hooks:
        project.hooks.list(get_all=True)
    assert hooks.value.response_code == 403


def test_moved_project_is_found_by_its_number_and_its_old_path_only_redirects(house: House) -> None:
    """Reading under the old path leads on; writing there is refused, so nobody should key on paths."""
    house.control.move_project(PATH, "elsewhere/access")
    assert house.gl.projects.get(house.project.id).path_with_namespace == "elsewhere/access"
    assert house.gl.projects.get(PATH).id == house.project.id
    old = house.gl.projects.get(PATH, lazy=True)
    with pytest.raises(gitlab.GitlabCreateError) as caught:
        old.branches.create({"branch": "x", "ref": "main"})
    assert caught.value.response_code == 405


def test_token_can_lose_a_scope(house: House) -> None:
    """What it wrote before it can only read now."""
    house.control.set_scopes("bot-token", "read_api")
    assert house.project.branches.get("main").name == "main"
    with pytest.raises(gitlab.GitlabCreateError, match="insufficient_scope"):
        house.project.branches.create({"branch": "x", "ref": "main"})
