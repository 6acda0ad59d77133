"""A GitLab with a certificate that no system knows: believed with its authority's file, and never without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.errors import ConfigError, GitLabUnavailable
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.gitlab_pause import HostPause
from gitlab_sync.model import ProjectId
from gitlab_sync.secret import Secret
from gitlab_sync.settings import Need, describe, load_settings
from tests.contract.scripted_host import answer, scripted_host
from tests.support.certificates import private_authority

OK: Final = answer(200, {"id": 1, "path_with_namespace": "g/p"})
VARIABLE: Final = "GITLAB_SYNC_GITLAB_CA_FILE"


async def _ask(url: str, ca_file: Path | None) -> int:
    async with _client(url, ca_file) as client:
        return (await client.project(1)).id


@asynccontextmanager
async def _client(url: str, ca_file: Path | None) -> AsyncIterator[GitLabClient]:
    client = GitLabClient(
        url, Secret("made-up"), ca_file=ca_file, pause=HostPause(sleep=_at_once, dice=lambda: 0.0)
    )
    try:
        yield client
    finally:
        await client.aclose()


async def _at_once(_seconds: float) -> None: ...


async def test_a_private_certificate_is_believed_with_the_file_of_its_authority(tmp_path: Path) -> None:
    """The way is encrypted, and the answer is read."""
    authority = private_authority(tmp_path)
    async with scripted_host(OK, tls=authority.server) as host:
        assert await _ask(host.url, authority.ca_file) == 1


@pytest.mark.parametrize("trusts", ["the public ones", "another one"])
async def test_no_token_goes_to_a_host_that_nobody_vouches_for(tmp_path: Path, trusts: str) -> None:
    """The connection ends before anything of ours was said."""
    authority = private_authority(tmp_path)
    other = private_authority(tmp_path, "other").ca_file if trusts == "another one" else None
    async with scripted_host(OK, tls=authority.server) as host:
        with pytest.raises(GitLabUnavailable, match=VARIABLE):
            await _ask(host.url, other)
        async with _client(host.url, other) as client:
            with pytest.raises(GitLabUnavailable, match=VARIABLE):  # nothing was sent: no doubt about a write
                await client.delete_branch(ProjectId(1), "b")
        assert host.seen == []


def _load(path: Path) -> None:
    environ = {
        VARIABLE: str(path),
        "GITLAB_SYNC_DATABASE_URL": "mysql://u:p@h/n",  # nobody connects
    }
    settings = load_settings(environ, need=Need.DATABASE_ONLY)
    assert settings.gitlab_ca_file == path
    shown = {row.variable: row.value for row in describe(settings)}
    assert shown[VARIABLE] == str(path)


def test_the_file_is_a_setting(tmp_path: Path) -> None:
    """Its path is shown as it is: nothing in it is secret."""
    _load(private_authority(tmp_path).ca_file)


@pytest.mark.parametrize("content", [b"", b"no certificate", None], ids=["empty", "text", "missing"])
def test_a_file_without_a_certificate_is_refused_when_the_settings_are_read(
    tmp_path: Path, content: bytes | None
) -> None:
    """With the variable and the remedy, and not as a failing call an hour later."""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=VARIABLE) as caught:
        _load(path)
    assert "PEM" in str(caught.value)


def test_the_certificate_of_a_server_is_no_authority(tmp_path: Path) -> None:
    """A common mix-up: GitLab's own certificate instead of the one that signed it."""
    private_authority(tmp_path)
    with pytest.raises(ConfigError, match="authority"):
        _load(tmp_path / "private-server.pem")
