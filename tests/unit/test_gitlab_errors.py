"""The one table from a failed call to our errors, row by row, and the texts that go with it."""

from __future__ import annotations

import pytest

from gitlab_sync.errors import GitLabError, GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.gitlab_errors import (
    LONGEST_TEXT,
    SOURCE_BRANCH_RETRY_S,
    UNTOLD_PAUSE_S,
    Failure,
    GitLabCall,
    NotFound,
    Repeat,
    Stage,
    answered_text,
    judge,
    meaning_of_404,
    plain_text,
)

READ = GitLabCall.MERGE_REQUEST
WRITE = GitLabCall.CREATE_COMMIT
OPEN = GitLabCall.OPEN_MERGE_REQUEST

Row = tuple[Failure, type[GitLabError], Repeat]


def answered(call: GitLabCall, status: int, text: str = "no", retry_after_s: float | None = None) -> Failure:
    """Make a failure that GitLab answered with a status."""
    return Failure(call, Stage.ANSWERED, text, status, retry_after_s)


ROWS: dict[str, Row] = {
    "read_refused_connection": (Failure(READ, Stage.NOT_SENT, "x"), GitLabUnavailable, Repeat.SAFE),
    "write_refused_connection": (Failure(WRITE, Stage.NOT_SENT, "x"), GitLabUnavailable, Repeat.NEVER),
    "read_cut_off": (Failure(READ, Stage.LOST, "x"), GitLabUnavailable, Repeat.SAFE),
    "write_cut_off": (Failure(WRITE, Stage.LOST, "x"), OutcomeUnknown, Repeat.NEVER),
    "read_unreadable": (Failure(READ, Stage.UNREADABLE, "x"), GitLabUnavailable, Repeat.SAFE),
    "write_unreadable": (Failure(WRITE, Stage.UNREADABLE, "x"), OutcomeUnknown, Repeat.NEVER),
    "foreign_host": (Failure(READ, Stage.WITHHELD, "x"), GitLabRefused, Repeat.NEVER),
    "read_throttled": (answered(READ, 429), GitLabUnavailable, Repeat.SAFE),
    "write_throttled": (answered(WRITE, 429), GitLabUnavailable, Repeat.SAFE),
    "throttled_for_a_minute": (answered(READ, 429, retry_after_s=60), GitLabUnavailable, Repeat.NEVER),
    "maintenance_for_a_minute": (answered(READ, 503, retry_after_s=60), GitLabUnavailable, Repeat.NEVER),
    "write_meets_a_lock": (
        answered(WRITE, 409, "409 Conflict: Resource lock"),
        GitLabUnavailable,
        Repeat.SAFE,
    ),
    "write_conflicts": (answered(WRITE, 409, "SHA does not match"), GitLabRefused, Repeat.NEVER),
    "mr_exists_already": (answered(OPEN, 409, "Another open merge request"), GitLabRefused, Repeat.NEVER),
    "read_too_slow_for_gitlab": (answered(READ, 408), GitLabUnavailable, Repeat.SAFE),
    "write_too_slow_for_gitlab": (answered(WRITE, 408), OutcomeUnknown, Repeat.NEVER),
    "unauthorised": (answered(READ, 401), GitLabRefused, Repeat.NEVER),
    "forbidden": (answered(WRITE, 403), GitLabRefused, Repeat.NEVER),
    "unsaid_404": (answered(READ, 404), GitLabRefused, Repeat.NEVER),
    "invalid": (answered(WRITE, 400), GitLabRefused, Repeat.NEVER),
    "redirected": (answered(WRITE, 302), GitLabRefused, Repeat.NEVER),
    "branch_not_visible_yet": (
        answered(OPEN, 400, 'source_branch: "x" does not exist'),
        GitLabUnavailable,
        Repeat.NEVER,
    ),
    "the_same_text_on_another_call": (
        answered(WRITE, 400, "source branch not found"),
        GitLabRefused,
        Repeat.NEVER,
    ),
    **{
        f"read_{status}": (answered(READ, status), GitLabUnavailable, Repeat.SAFE)
        for status in (500, 502, 503, 504, 522)
    },
    **{
        f"write_{status}": (answered(WRITE, status, retry_after_s=1), OutcomeUnknown, Repeat.NEVER)
        for status in (500, 502, 503, 504, 522)
    },
}


@pytest.mark.parametrize("row", ROWS)
def test_what_a_failure_means(row: str) -> None:
    """Each way to fail has one class, and says whether the client may try again by itself."""
    failure, kind, repeat = ROWS[row]
    judgement = judge(failure)
    assert (type(judgement.error), judgement.repeat) == (kind, repeat)
    assert failure.text in str(judgement.error)


@pytest.mark.parametrize("call", list(GitLabCall))
def test_no_call_repeats_a_lost_write(call: GitLabCall) -> None:
    """Whatever is added to the calls: one that can change something is never repeated after a lost answer."""
    judgement = judge(Failure(call, Stage.LOST, "x"))
    assert judgement.may_repeat is isinstance(judgement.error, GitLabUnavailable)


def test_only_answers_that_ask_for_it_pause_the_host() -> None:
    """429 and 503 name a time for everybody; a lone 500 with that header does not."""
    assert judge(answered(WRITE, 429, retry_after_s=3)).pause_s == 3
    assert judge(answered(READ, 503, retry_after_s=4)).pause_s == 4
    assert judge(answered(READ, 500, retry_after_s=5)).pause_s is None
    assert judge(answered(READ, 429)).pause_s == UNTOLD_PAUSE_S


def test_a_refusal_carries_status_and_gitlabs_words() -> None:
    """Callers branch on the status and show the text."""
    error = judge(answered(WRITE, 403, "You are not allowed to push into this branch")).error
    assert isinstance(error, GitLabRefused)
    assert (error.operation, error.status) == ("create_commit", 403)
    assert error.message == "You are not allowed to push into this branch"


def test_a_branch_that_is_not_visible_yet_says_when_to_come_back() -> None:
    """The caller waits for it instead of failing the batch."""
    error = judge(answered(OPEN, 422, "Source branch is missing")).error
    assert isinstance(error, GitLabUnavailable)
    assert error.retry_after_s == SOURCE_BRANCH_RETRY_S


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "plain"),
        (b"bytes \xff", "bytes \ufffd"),
        (["a", "b"], "a; b"),
        ({"title": ["is missing", "is short"]}, "title: is missing; is short"),
        ({"error": "limit"}, "error: limit"),
        ("<html><b>502</b></html>", "an HTML page, which GitLab itself does not send here"),
        ("two\nlines\x1b[31m\u202e", "two lines [31m"),
        (b"", ""),
    ],
)
def test_every_form_of_a_reason_becomes_one_line(message: object, text: str) -> None:
    """Lists, fields, bytes and pages are told alike, without control characters."""
    assert plain_text(message) == text


def test_a_long_reason_is_cut() -> None:
    """A page of text does not travel into columns and logs."""
    assert len(plain_text("x" * 10_000)) == LONGEST_TEXT


def test_an_empty_body_is_told_by_the_status_line_and_a_redirect_by_its_target() -> None:
    """Nobody is left with an empty reason."""
    assert answered_text(b"", "Bad Gateway", None) == "Bad Gateway"
    assert "https://new.example/" in answered_text(b"", "Found", "https://new.example/")


@pytest.mark.parametrize(
    ("call", "status", "text", "meaning"),
    [
        (GitLabCall.BRANCH, 404, "404 Branch Not Found", NotFound.THING),
        (GitLabCall.BRANCH, 404, "404 Project Not Found", NotFound.UNCLEAR),
        (GitLabCall.READ_FILE, 404, "404 File Not Found", NotFound.THING),
        (GitLabCall.READ_FILE, 404, "404 Commit Not Found", NotFound.OTHER),
        (GitLabCall.MERGE_REQUEST, 404, "404 Not found", NotFound.UNCLEAR),
        (GitLabCall.MERGE_REQUEST, 403, "403 Forbidden", NotFound.OTHER),
        (GitLabCall.TREE, 404, "404 Tree Not Found", NotFound.THING),
        (GitLabCall.FILE_EXISTS, 404, "Not Found", NotFound.THING),
        (GitLabCall.DELETE_BRANCH, 404, "404 Branch Not Found", NotFound.THING),
    ],
)
def test_what_a_404_is_about(call: GitLabCall, status: int, text: str, meaning: NotFound) -> None:
    """Only a 404 that names the thing proves that its project was found."""
    assert meaning_of_404(call, GitLabRefused(call, status, text)) is meaning


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (401, "401 Unauthorized", "merge_request: 401 Unauthorized"),
        (503, "down for maintenance", "merge_request: 503 down for maintenance"),
        (400, "4001 is not a user", "merge_request: 400 4001 is not a user"),
    ],
)
def test_a_status_that_gitlab_repeats_in_its_words_was_said_twice(status: int, text: str, said: str) -> None:
    """Many of its bodies begin with the status; "401 401 Unauthorized" looked like a fault of ours."""
    assert str(judge(answered(READ, status, text)).error) == said
