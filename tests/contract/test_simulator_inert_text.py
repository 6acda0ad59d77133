"""Words that GitLab would act upon: the simulator finds them, and gitlab-sync sends none of a user's."""

from __future__ import annotations

import random
import time

import pytest

from gitlab_sync.describe import commit_message, merge_request_description, merge_request_title
from gitlab_sync.model import MemberRow
from gitlab_sync.sandbox.simulator.inert_text import TextEffect, TextPlace, findings
from tests.contract.house import PATH, House
from tests.support.members import make_batch, make_member

# Each does something in GitLab when it reaches it as it is, or when it comes to stand beside another one.
HOSTILE = (
    "/merge",
    "\n/close",
    "\r/assign @root",
    "\u2028/label ~urgent",
    "\x85> /approve",
    "\x0b/tag v1",
    "@all",
    "@group/sub",
    "&#64;all",
    "&commat;all",
    "Closes #1",
    "fixes: group/project#12",
    "resolves https://gitlab.example.com/a/b/-/issues/3",
    "!2 &3 $4 ^alert#5",
    '~bug ~"two words" %v1 %"next up"',
    "PROJ-7 GL-8",
    "\u754cPROJ-7",
    "\u754cwww.evil.example",
    "[vulnerability:9]",
    "[skip ci]",
    "[CI-SKIP]",
    "Draft: ",
    "[WIP] ",
    "fixup! ",
    "\nCo-authored-by: a <a@example.com>",
    "\n\nChangelog: added",
    "\nApproved-by: root",
    "\nGitLab-Sync-Batch: 00000000-0000-0000-0000-000000000000",
    "<img src=x onerror=alert(1)>",
    "</details><!--",
    "-->",
    "![pixel](https://tracker.example/p.png)",
    "[here](javascript:alert(1))",
    "\n[x]: https://evil.example",
    "https://evil.example www.evil.example",
    "\n```mermaid\n",
    "\n~~~\n",
    "$$\\sum$$",
    "`",
    "``",
    "|",
    "\\",
    "\u202e",
    "\u200b",
    "\u3164",
    "\x1b[2J",
    "\U000e0041",
    "a",
    " ",
    "-",
    "1",
)


@pytest.mark.parametrize(
    ("text", "place", "effect"),
    [
        ("Landed:\n/merge", TextPlace.DESCRIPTION, TextEffect.QUICK_ACTION),
        ("> /close", TextPlace.DESCRIPTION, TextEffect.QUICK_ACTION),
        ("```\n/label ~x\n", TextPlace.DESCRIPTION, TextEffect.QUICK_ACTION),
        ("a\u2028/assign me", TextPlace.DESCRIPTION, TextEffect.QUICK_ACTION),
        ("Subject\n\n/tag v1", TextPlace.COMMIT, TextEffect.QUICK_ACTION),
        ("hello @all", TextPlace.TITLE, TextEffect.MENTION),
        ("hello &#64;all", TextPlace.DESCRIPTION, TextEffect.MENTION),
        ("see #123", TextPlace.TITLE, TextEffect.REFERENCE),
        ("see a/b!12", TextPlace.TITLE, TextEffect.REFERENCE),
        ("see &12", TextPlace.TITLE, TextEffect.REFERENCE),
        ('~"two words"', TextPlace.DESCRIPTION, TextEffect.REFERENCE),
        ("%v1", TextPlace.DESCRIPTION, TextEffect.REFERENCE),
        ("ABC-1 is done", TextPlace.COMMIT, TextEffect.REFERENCE),
        ("Closes #1", TextPlace.COMMIT, TextEffect.CLOSES),
        ("implements: group/project#1", TextPlace.DESCRIPTION, TextEffect.CLOSES),
        ("fix https://x.example/a/-/issues/1", TextPlace.DESCRIPTION, TextEffect.CLOSES),
        ("x [skip ci]", TextPlace.COMMIT, TextEffect.SKIPS_CI),
        ("x [CI skip]", TextPlace.TITLE, TextEffect.SKIPS_CI),
        ("Draft: x", TextPlace.TITLE, TextEffect.DRAFT),
        ("[WIP] x", TextPlace.TITLE, TextEffect.DRAFT),
        ("fixup! x", TextPlace.COMMIT, TextEffect.DRAFT),
        ("x\n\nCo-authored-by: a", TextPlace.COMMIT, TextEffect.TRAILER),
        ("x\n\nChangelog: added", TextPlace.COMMIT, TextEffect.TRAILER),
        ("<details>", TextPlace.DESCRIPTION, TextEffect.HTML),
        ("<!-- hidden from the reader -->", TextPlace.DESCRIPTION, TextEffect.HTML),
        ("![a](b)", TextPlace.DESCRIPTION, TextEffect.IMAGE),
        ("[a](b)", TextPlace.DESCRIPTION, TextEffect.LINK),
        ("http://a.example", TextPlace.TITLE, TextEffect.LINK),
        ("~~~\nx", TextPlace.DESCRIPTION, TextEffect.FENCE),
        ("a\u202eb", TextPlace.TITLE, TextEffect.HIDDEN),
    ],
)
def test_words_with_an_effect_are_found(text: str, place: TextPlace, effect: TextEffect) -> None:
    """Wherever they stand, protected or not."""
    assert effect in {finding.effect for finding in findings(text, place)}


@pytest.mark.parametrize(
    "text",
    [
        "Update README for access-prod (batch 42)",
        "and/or, 50 % of 3 - 4 * 5, a#b, x = 1 && y, £5",
        "- /merge in a list is text",
        "<!-- Some-Key: 6f1d8c52-0a3b-4c1e-9a77-5b2f3c4d5e6f -->",
        "| a | b |\n|--:|---|\n| 1 | `x` → `y` |",
        "Drafting: the closing of 3 fixed points",
        "",
    ],
)
def test_harmless_words_are_left_alone(text: str) -> None:
    """Otherwise nobody would believe the findings."""
    assert findings(text, TextPlace.DESCRIPTION) == []
    assert findings(text, TextPlace.COMMIT) == []


@pytest.mark.parametrize(
    "sign", ["a", "[", "a.b/", "close ", "A-", " ", ">", "<!-- ", "@", "~", "http:", "www."]
)
def test_hundred_thousand_signs_are_read_in_a_moment(sign: str) -> None:
    """The witness reads what users wrote, so no text may hold it up."""
    started = time.process_time()
    findings(sign * (100_000 // len(sign)), TextPlace.COMMIT)
    assert time.process_time() - started < 5


def test_witness_shows_the_findings_of_what_somebody_opened(house: House) -> None:
    """Title, description and commit, with the author beside them."""
    body = {"branch": "batch/1", "start_sha": house.base, "commit_message": "x\n\nCo-authored-by: @ann"}
    house.project.commits.create(
        {**body, "actions": [{"action": "create", "file_path": "b", "content": "b"}]}
    )
    house.open("batch/1", title="Draft: closes #1", description="/close")
    row = house.control.audit(PATH)["projects"][PATH]["merge_requests"][0]
    seen = {(finding["place"], finding["effect"]) for finding in row["text_findings"]}
    assert row["author"] == "bot"
    assert {("title", "draft"), ("title", "closes"), ("description", "quick_action")} <= seen
    assert {("commit", "trailer"), ("commit", "mention")} <= seen


def test_hostile_texts_of_users_arrive_without_any_effect(
    house: House, request: pytest.FixtureRequest
) -> None:
    """Two thousand words of users in twelve merge requests: nothing that GitLab would act upon."""
    seed = request.config.getoption("randomly_seed", default=1)
    print(f"seed of the texts: {seed}")
    dice = random.Random(seed)
    batch = make_batch()
    for number in range(12):
        members = [_hostile_member(dice, place) for place in range(1 if number < 6 else 80)]
        branch = f"batch/{number}"
        body = {"branch": branch, "start_sha": house.base, "commit_message": commit_message(batch, members)}
        action = {"action": "create", "file_path": f"{number}.txt", "content": "x"}
        house.project.commits.create({**body, "actions": [action]})
        description = merge_request_description(batch, members)
        house.open(branch, title=merge_request_title(batch, members), description=description)
    rows = house.control.audit(PATH)["projects"][PATH]["merge_requests"]
    assert [row["text_findings"] for row in rows] == [[]] * 12
    assert [row["quick_actions"] for row in rows] == [[]] * 12


def _hostile_member(dice: random.Random, number: int) -> MemberRow:
    def words() -> str:
        return "".join(dice.choices(HOSTILE, k=dice.randint(1, 10)))

    return make_member(number, title=words(), requested_by=words(), subject=words(), target=words())
