"""Tokens that tell about themselves, members of a project, and bots made by project access tokens."""

from __future__ import annotations

from typing import Any

import gitlab
import pytest

from tests.contract.house import House


def fetched(house: House, path: str) -> Any:
    """Answer a plain GET of the API."""
    return house.gl.http_get(path)


def test_token_tells_its_scopes_and_its_user_whatever_it_may_else(house: House) -> None:
    """A token without the `api` scope can still ask what it is."""
    user = house.control.add_user("reader", token="reader-token", role=20, scopes=["read_repository"])
    client = gitlab.Gitlab(house.url, private_token="reader-token", timeout=10)
    try:
        told: Any = client.http_get("/personal_access_tokens/self")
    finally:
        client.session.close()
    assert (told["scopes"], told["user_id"]) == (["read_repository"], user["id"])
    assert (told["active"], told["revoked"], told["expires_at"]) == (True, False, None)


def test_members_are_those_of_the_project_and_all_adds_the_inherited(house: House) -> None:
    """The bot has its role from above; a person is added, raised and removed."""
    person = house.control.add_user("ann")["id"]
    member = house.project.members.create({"user_id": person, "access_level": 30})
    assert (member.username, member.access_level) == ("ann", 30)
    assert [row.username for row in house.project.members.list(get_all=True)] == ["ann"]
    everybody = {row.username: row.access_level for row in house.project.members_all.list(get_all=True)}
    assert everybody == {"bot": 40, "ann": 30}
    with pytest.raises(gitlab.GitlabCreateError, match="Member already exists"):
        house.project.members.create({"user_id": person, "access_level": 30})
    house.project.members.update(person, {"access_level": 20})
    assert house.project.members_all.get(person).access_level == 20
    member.delete()
    with pytest.raises(gitlab.GitlabGetError, match="404 Not found"):
        house.project.members.get(person)


def test_project_access_token_is_a_bot_of_one_project(house: House) -> None:
    """It acts there with its role and is a stranger elsewhere."""
    other = house.control.add_project("platform/other", {"a.txt": "1"})
    made = house.project.access_tokens.create(
        {"name": "landing", "scopes": ["api"], "access_level": 30, "expires_at": "2030-01-01"}
    )
    client = gitlab.Gitlab(house.url, private_token=made.token, timeout=10)
    try:
        me = client.http_get("/user")
        assert isinstance(me, dict)
        assert (me["bot"], me["name"]) == (True, "landing")
        seen = client.projects.get(house.project.id).permissions["project_access"]
        assert seen["access_level"] == 30
        with pytest.raises(gitlab.GitlabGetError, match="404 Project Not Found"):
            client.projects.get(other["id"])
    finally:
        client.session.close()
    listed = house.project.access_tokens.list(get_all=True)[0]
    assert (listed.name, hasattr(listed, "token")) == ("landing", False)


def test_administrator_may_act_for_somebody_else_and_nobody_else_may(house: House) -> None:
    """`sudo` by name; for the bot it is 403."""
    house.control.add_token("root", "root-token")
    house.control.add_user("ann", role=30)
    client = gitlab.Gitlab(house.url, private_token="root-token", timeout=10)
    try:
        told = client.http_get("/user", query_data={"sudo": "ann"})
    finally:
        client.session.close()
    assert isinstance(told, dict)
    assert told["username"] == "ann"
    with pytest.raises(gitlab.GitlabHttpError, match="Must be admin to use sudo"):
        fetched(house, "/user?sudo=ann")
