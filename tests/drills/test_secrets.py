"""RECOVERY.md where secrets are exchanged: of GitLab, webhooks, the API, notifications, the database."""

from __future__ import annotations

import base64
import shlex
import subprocess
from pathlib import Path
from typing import Final

import httpx2
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.drills.scenes import offered, pipelines_succeed
from tests.support.certificates import private_authority
from tests.support.commands import BOT, COMMAND, LIMIT_S
from tests.support.guide import Drill, drilled, lines_of, sections
from tests.support.installation import TOKEN, Installation, api_tokens, request
from tests.support.sink import SECRET, Notification

GUIDE: Final = "RECOVERY.md"
SECRET_SECTION: Final = "Exchange the webhook secret"
HERE_IS: Final = "https://gitlab-sync.example.org"
OLD: Final = "an-old-token-for-webhooks"
NEW: Final = "a-new-token-for-webhooks"
NEXT_TOKEN: Final = "the-portals-next-token"
NEW_SECRET: Final = "whsec_" + base64.b64encode(b"another secret, for tests only..").decode()


@pytest.fixture
def house(one_house: Installation) -> Installation:
    """The database has no part here: one server for each drill."""
    return one_house


def test_a_gitlab_token_is_exchanged_or_dead(house: Installation) -> None:
    """Revoked in the middle of a batch: blocked, submits taken, replicas ready; the new token heals it."""
    with drilled(GUIDE, "A GitLab token is exchanged or dead", house) as drill:
        iid = offered(house, 1)
        house.gitlab.control.revoke_token(BOT)
        drill.run("gitlab-sync reconcile")
        assert "access_refused" in drill.run("gitlab-sync batches list --status BLOCKED").out
        house.submit(2)
        assert house.replicas[0].ready() == 200
        drill.sees(
            drill.run("gitlab-sync doctor --gitlab", exit_code=1).out, "problem: reach, GitLab: … 401…"
        )
        house.gitlab.control.add_token("bot", "the-next-token")
        house.set(GITLAB_TOKEN="the-next-token")
        house.restart_all()
        pipelines_succeed(house)
        drill.run("gitlab-sync reconcile")
        house.until_landed()
        assert house.rows("SELECT mr_iid FROM merge_batch ORDER BY id")[0] == (iid,)


def taken(house: Installation, secret: str) -> set[int]:
    """What every replica answers to a delivery with this token."""
    headers = {"X-Gitlab-Token": secret, "X-Gitlab-Event": "Push Hook"}
    return {
        httpx2.post(f"{one.url}/hooks/gitlab", json={"object_kind": "push"}, headers=headers).status_code
        for one in house.replicas
    }


def test_exchange_the_webhook_secret(house: Installation) -> None:
    """At every step each replica takes what GitLab sends at that step; GitLab is answered 401 never."""
    with drilled(GUIDE, "Exchange the webhook secret", house) as drill:
        house.start("two")
        address = {HERE_IS: house.replicas[0].url}
        house.set(WEBHOOK_TOKENS=OLD)
        house.restart_all()
        house.set(PUBLIC_URL=house.replicas[0].url)
        assert house.cli("hooks", "install", "--all").exit_code == 0
        house.set(WEBHOOK_TOKENS=f"{NEW},{OLD}")
        house.restart("one")
        assert 401 not in taken(house, OLD)  # between two restarts GitLab still sends the old one
        house.restart("two")
        assert 401 not in taken(house, OLD) | taken(house, NEW)
        offered(house, 1)  # a delivery can be tried once there is a merge request
        done = drill.run(f"gitlab-sync hooks install --all --url {HERE_IS} --test", instead=address)
        drill.sees(done.out, "… test delivery: taken…")
        house.set(WEBHOOK_TOKENS=NEW)
        house.restart("two")
        assert 401 not in taken(house, NEW)
        house.restart("one")
        assert (taken(house, OLD), 401 in taken(house, NEW)) == ({401}, False)
        drill.run("gitlab-sync hooks status --all")
        pipelines_succeed(house)
        house.until_landed()
        assert house.gitlab.control.await_deliveries()
        assert 401 not in {one["status"] for one in house.gitlab.control.deliveries()}


def test_a_maintainers_token_takes_the_place_of_the_services_own_that_is_a_file(house: Installation) -> None:
    """On the chart the service's own token is a file: the line for a cluster, with a `kubectl` right here."""
    (line,) = (
        one for one in lines_of(sections(f"guides/{GUIDE}")[SECRET_SECTION], "sh") if "kubectl exec" in one
    )
    house.submit(1)
    house.until_landed()  # a delivery can be tried
    (house.folder / "own-token").write_text("a-token-that-may-not")
    (house.folder / "maintainer-token").write_text(f"{BOT}\n")
    house.set(GITLAB_TOKEN="", GITLAB_TOKEN_FILE=f"{house.folder / 'own-token'}")
    house.set(PUBLIC_URL=house.replicas[0].url)
    for name, run in (
        ("kubectl", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'),
        ("gitlab-sync", f'exec {shlex.join(COMMAND)} "$@"'),
    ):
        (house.folder / name).write_text(f"#!/bin/sh\n{run}\n")
        (house.folder / name).chmod(0o755)
    assert house.cli("hooks", "install", "--all").exit_code == 1  # its own is refused
    done = subprocess.run(
        ["/bin/bash", "-ec", line],
        cwd=house.folder, env={**house.environ, "PATH": f"{house.folder}:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test delivery: taken" in done.stdout


def is_signed_by(secret: str, one: Notification) -> bool:
    """Whether an independent library finds the signature good."""
    try:
        Webhook(secret).verify(one.body, one.headers)
    except WebhookVerificationError:
        return False
    return True


def test_exchange_an_api_token_the_notification_secret_and_the_authority(house: Installation) -> None:
    """Three sections, two restarts: old and new are taken, then only the new; nothing is given up."""
    with (
        drilled(GUIDE, "Exchange an API token", house),
        drilled(GUIDE, "Exchange the notification secret", house) as notifications,
        drilled(GUIDE, "Exchange the authority of GitLab's certificate", house) as authorities,
    ):
        house.submit(1)
        house.until_landed()
        before = house.sink.received
        assert all(is_signed_by(SECRET, one) for one in before)
        believe_two_authorities(house, authorities)
        house.set(API_TOKENS=api_tokens(TOKEN, NEXT_TOKEN), NOTIFY_SECRET=NEW_SECRET)
        house.restart_all()
        assert house.post(request(2)).status_code == 201
        assert house.post(request(3), token=NEXT_TOKEN).status_code == 201
        house.until_landed()
        after = house.sink.received[len(before) :]
        assert after
        assert all(is_signed_by(NEW_SECRET, one) and not is_signed_by(SECRET, one) for one in after)
        notifications.run("gitlab-sync outbox list --dead")
        notifications.run("gitlab-sync outbox replay --all-dead")
        house.set(API_TOKENS=api_tokens(NEXT_TOKEN))
        house.restart_all()
        assert house.post(request(4)).status_code == 401
        assert house.post(request(4), token=NEXT_TOKEN).status_code == 201


def believe_two_authorities(house: Installation, drill: Drill) -> None:
    """The file with both certificates is read; how each is believed: tests/contract/test_gateway_tls.py."""
    for name in ("old", "new"):
        authority = private_authority(house.folder / name)
        (house.folder / f"{name}-ca.pem").write_bytes(authority.ca_file.read_bytes())
    drill.shell("cat old-ca.pem new-ca.pem > ca.pem", path=Path("/bin"))
    house.set(GITLAB_CA_FILE=f"{house.folder / 'ca.pem'}")
    assert "ca.pem" in drill.run("gitlab-sync config check").out
