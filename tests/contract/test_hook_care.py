"""Installing and checking webhooks against the simulated GitLab, and against hosts that lose answers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gitlab_sync.admin_port import HookId, HookInfo, Presence
from gitlab_sync.errors import GitLabRefused, OutcomeUnknown
from gitlab_sync.gitlab_admin import GitLabAdminClient
from gitlab_sync.gitlab_calls import Access
from gitlab_sync.hook_care import Did, Installed, Trial, install, look
from gitlab_sync.hook_rules import HookNeeds, wish_of
from gitlab_sync.secret import Secret
from tests.contract.conftest import BOT_TOKEN
from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House
from tests.contract.scripted_host import answer, reset, scripted_host

TOKEN: Final = Secret("a-made-up-webhook-token")
KEY: Final = Secret("whsec_" + base64.b64encode(bytes(range(32))).decode())
HOOKS: Final = "/hooks$"


@pytest.fixture
async def admin(house: House) -> AsyncIterator[GitLabAdminClient]:
    """GitLab with the bot's token, which is a Maintainer's here."""
    client = GitLabAdminClient(Access(house.url, Secret(BOT_TOKEN)))
    yield client
    await client.aclose()


@pytest.fixture
def needs(receiver: HookReceiver) -> HookNeeds:
    """A service behind the receiver's address, with one plain token."""
    return HookNeeds(receiver.url, TOKEN, None)


async def installed(admin: GitLabAdminClient, needs: HookNeeds, trial: Trial = Trial.IF_NEEDED) -> Installed:
    """Install the webhook of the house's project."""
    assert needs.url is not None
    return await install(admin, PATH, needs, needs.url, trial)


def hooks_of(house: House) -> list[Any]:
    """Every webhook of the project, as GitLab shows it."""
    return list(house.project.hooks.list(get_all=True))


async def test_installing_twice_makes_one_webhook(
    admin: GitLabAdminClient, needs: HookNeeds, house: House
) -> None:
    """The second time confirms the first: the same number, nothing to complain of."""
    first = await installed(admin, needs)
    second = await installed(admin, needs)
    assert (first.did, second.did, second.changed) == (Did.CREATED, Did.CONFIRMED, ())
    assert first.status.findings == second.status.findings == ()
    (hook,) = hooks_of(house)
    assert (hook.id, hook.merge_requests_events, hook.pipeline_events) == (first.hook.id, True, True)
    assert not hook.push_events
    assert hook.enable_ssl_verification
    assert hook.token_present


async def test_branches_are_listed_by_a_part_of_their_name(admin: GitLabAdminClient, house: House) -> None:
    """What `doctor --strays` reads: the names that hold the part, no others."""
    house.commit("gitlab-sync/p/1-00000000", **{"a.txt": "a\n"})
    house.commit("feature", **{"b.txt": "b\n"})
    assert list(await admin.branches(PATH, "gitlab-sync/")) == ["gitlab-sync/p/1-00000000"]


async def test_a_crooked_webhook_is_mended_and_told_what_changed(
    admin: GitLabAdminClient, needs: HookNeeds, house: House
) -> None:
    """Found by its address in another spelling; one that leads elsewhere is left alone."""
    other = house.project.hooks.create({"url": "http://127.0.0.1:9/ci"})
    crooked = house.project.hooks.create(
        {"url": f"{needs.url}/", "note_events": True, "pipeline_events": True}
    )
    done = await installed(admin, needs)
    assert (done.did, done.hook.id) == (Did.MENDED, crooked.id)
    assert done.changed == (
        "note_events off",
        "push_events off",
        "merge_requests_events on",
        "secret token set",
    )
    assert done.status.findings == ()
    assert house.project.hooks.get(other.id).push_events


async def test_deliveries_carry_the_secret_that_was_set(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, receiver: HookReceiver
) -> None:
    """The test delivery proves the whole way; the log shows it."""
    house.offer()
    done = await installed(admin, needs, Trial.ALWAYS)
    assert done.tried is not None
    assert done.tried.is_taken
    assert done.status.seen[0].newest is not None
    assert done.status.seen[0].newest.status == "200"
    assert done.status.findings == ()
    assert {one.headers["x-gitlab-token"] for one in receiver._received} == {TOKEN.reveal()}


async def test_a_key_to_sign_with_is_set_where_gitlab_signs(
    admin: GitLabAdminClient, needs: HookNeeds
) -> None:
    """The simulated version does; the answer says so."""
    done = await installed(admin, HookNeeds(needs.url, None, KEY))
    assert done.status.seen[0].hook.signing_key is Presence.SET
    assert done.status.findings == ()


async def test_a_paused_webhook_is_tried_and_comes_back(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, receiver: HookReceiver
) -> None:
    """Four failures pause it; while the receiver fails the finding stays, a success ends it."""
    done = await installed(admin, needs)
    house.offer()
    receiver.answer = 500
    for _ in range(4):
        with pytest.raises(GitLabRefused):
            await admin.try_hook(PATH, done.hook.id)
    paused = await look(admin, PATH, needs)
    assert paused.seen[0].hook.alert_status == "temporarily_disabled"
    assert any("paused" in one.detail for one in paused.findings)
    receiver.answer = 200
    house.control.advance_clock(61)  # the limit on test deliveries is a minute's
    healed = await installed(admin, needs)
    assert (healed.did, healed.status.findings) == (Did.CONFIRMED, ())
    assert healed.tried is not None
    assert healed.tried.words == "taken"


async def test_a_wrong_secret_shows_in_the_newest_delivery(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, receiver: HookReceiver
) -> None:
    """GitLab cannot tell: only the receiver's 401 does."""
    house.hook(receiver)
    receiver.answer = 401
    house.offer()
    receiver.wait_for("merge_request open")
    assert house.control.await_deliveries()
    seen = await look(admin, PATH, needs)
    assert any("401" in one.detail and "hooks install" in one.remedy for one in seen.findings)


async def test_two_of_one_address_are_found_and_none_is_deleted(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, receiver: HookReceiver
) -> None:
    """Whose the other one is, only a person knows."""
    house.hook(receiver)
    house.hook(receiver)
    done = await installed(admin, needs)
    assert done.did is Did.CONFIRMED
    assert any("lead to the same address" in one.detail for one in done.status.findings)
    assert len(hooks_of(house)) == 2


@pytest.mark.parametrize(
    ("fault", "did"),
    [
        ({"kind": "reset", "place": "after"}, Did.ADOPTED),
        ({"kind": "status", "status": 502, "place": "after"}, Did.ADOPTED),
        ({"kind": "reset", "place": "before"}, Did.CREATED),
    ],
)
async def test_a_creation_whose_answer_is_lost_makes_one_webhook(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, fault: dict[str, Any], did: Did
) -> None:
    """Lost after the effect: adopted. Lost before it: not there, so made once more."""
    house.control.add_fault(fault.pop("kind"), method="POST", path=HOOKS, count=1, **fault)
    done = await installed(admin, needs)
    assert (done.did, done.status.findings, len(hooks_of(house))) == (did, (), 1)


async def test_a_change_whose_answer_is_lost_is_made_again(
    admin: GitLabAdminClient, needs: HookNeeds, house: House, receiver: HookReceiver
) -> None:
    """It sets values, so twice is once."""
    house.hook(receiver, note_events=True)
    house.control.add_fault("reset", method="PUT", path="/hooks/[0-9]+$", place="after", count=1)
    done = await installed(admin, needs)
    assert (done.did, done.changed, done.status.findings) == (Did.MENDED, ("note_events off",), ())


async def test_a_developer_may_not_see_webhooks(house: House, needs: HookNeeds) -> None:
    """GitLab's 403 is passed on; the command explains it."""
    house.control.add_user("dev", token="dev-token", role=30)
    client = GitLabAdminClient(Access(house.url, Secret("dev-token")))
    try:
        with pytest.raises(GitLabRefused) as refused:
            await look(client, PATH, needs)
    finally:
        await client.aclose()
    assert (refused.value.operation, refused.value.status) == ("hooks", 403)


async def test_a_refusal_that_repeats_the_body_shows_no_secret() -> None:
    """A proxy's error page may hold everything that was sent."""
    needs = HookNeeds("https://sync.example/hooks/gitlab", TOKEN, KEY)
    wish = wish_of(needs, "https://sync.example/hooks/gitlab", None)
    echo = {"message": f"you sent token={TOKEN.reveal()} signing_token={KEY.reveal()}"}
    async with scripted_host(answer(422, echo), answer(500, echo), reset) as host:
        client = GitLabAdminClient(Access(host.url, Secret("made-up-write")))
        try:
            for error in (GitLabRefused, OutcomeUnknown, OutcomeUnknown):
                with pytest.raises(error) as raised:
                    await client.create_hook(1, wish)
                assert TOKEN.reveal() not in str(raised.value)
                assert KEY.reveal() not in str(raised.value)
        finally:
            await client.aclose()
    assert all(TOKEN.reveal().encode() in request for request in host.seen), "it has to be sent, after all"


async def test_a_default_that_gitlab_switches_on_by_itself_is_switched_off() -> None:
    """A kind of event that a later version adds and turns on: seen in the answer, mended in a second call."""
    shown = {"id": 5, "url": "https://sync.example/hooks/gitlab", "token_present": True}
    shown |= {"merge_requests_events": True, "pipeline_events": True}
    first = answer(201, {**shown, "comet_events": True})
    right = answer(200, {**shown, "comet_events": False})
    async with scripted_host(
        answer(200, []), first, right, answer(200, [{**shown, "comet_events": False}]), answer(404)
    ) as host:
        client = GitLabAdminClient(Access(host.url, Secret("made-up-write")))
        try:
            needs = HookNeeds(str(shown["url"]), TOKEN, None)
            done = await install(client, 1, needs, str(shown["url"]), Trial.IF_NEEDED)
        finally:
            await client.aclose()
    assert host.methods() == ["GET", "POST", "PUT", "GET", "GET"]
    assert b'"comet_events": false' in host.seen[2]
    assert (done.did, done.status.findings, done.status.seen[0].deliveries) == (Did.CREATED, (), None)
    assert isinstance(done.hook, HookInfo)
    assert done.hook.id == HookId(5)


async def test_a_login_for_the_proxy_in_the_address_survives_an_installation(
    admin: GitLabAdminClient, needs: HookNeeds, house: House
) -> None:
    """A person wrote it into the webhook at GitLab: kept each time, told as kept, not printed."""
    assert needs.url is not None
    with_login = needs.url.replace("://", "://proxy:p%40ss@")
    house.project.hooks.create({"url": with_login, "push_events": True})
    for did in (Did.MENDED, Did.CONFIRMED):
        done = await installed(admin, needs)
        assert done.did is did
        assert "p%40ss" not in repr(done)
        assert "user and password of the address (as they were)" in done.secrets
        assert [hook.url for hook in hooks_of(house)] == [with_login]
