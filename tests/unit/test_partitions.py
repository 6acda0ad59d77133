"""The partitions file: everything wrong is told with file, partition, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitlab_sync.errors import ConfigError
from gitlab_sync.model import Approval, MergeMode, OnFailure, PipelineAnswer, Squash
from gitlab_sync.partitions import load_partitions, parse_partitions

WHOLE = """
partitions:
  access-prod:
    project: 42                 # id or path
    target_branch: main
    max_batch: 50
    min_batch: 2
    max_wait_s: 10
    merge: train
    pipeline: {required: false, skipped: accept, canceled: retry, missing: fail}
    deadline_s: 600
    on_failure: block
    max_rounds: 5
    approval: required
    allowed_paths: ["access/**"]
    protected_paths: ["access/root.yaml"]
    labels: [gitlab-sync, "two words"]
    reviewers: [rita, o.lga]
    assignees: [anna]
    author_name: Access Bot
    author_email: access-bot@example.com
    squash: project
  dns:
    project: infra/dns-zones
    target_branch: release/1.x
"""


def refusal_of(text: str) -> list[str]:
    """The lines of a refusal."""
    with pytest.raises(ConfigError) as refusal:
        parse_partitions(text, name="partitions.yaml")
    return refusal.value.problems


def with_field(name: str, value: str) -> str:
    """A file whose one partition has one field changed."""
    fields = {"project": "42", "target_branch": "main", name: value}
    lines = "\n".join(f"    {key}: {text}" for key, text in fields.items())
    return f"partitions:\n  p:\n{lines}\n"


def test_every_field_of_the_documentation_is_read() -> None:
    """The example of the documentation, with every value off its default."""
    partitions = parse_partitions(WHOLE, name="partitions.yaml")
    access = partitions["access-prod"]
    assert (access.key, access.project, access.target_branch) == ("access-prod", 42, "main")
    assert (access.max_batch, access.min_batch, access.max_wait_s, access.deadline_s) == (50, 2, 10, 600)
    assert (access.merge, access.on_failure, access.approval) == (
        MergeMode.TRAIN,
        OnFailure.BLOCK,
        Approval.REQUIRED,
    )
    assert access.pipeline.required is False
    assert access.pipeline.missing is PipelineAnswer.FAIL
    assert access.protected_paths == ("access/root.yaml",)
    assert access.labels == ("gitlab-sync", "two words")
    assert (access.reviewers, access.assignees) == (("rita", "o.lga"), ("anna",))
    assert (access.author_name, access.author_email) == ("Access Bot", "access-bot@example.com")
    assert access.squash is Squash.PROJECT
    assert partitions["dns"].project == "infra/dns-zones"
    assert partitions["dns"].max_batch == 100


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("project", "0", "write its number"),
        ("project", "'42'", "write its number"),
        ("project", "true", "write its number"),
        ("project", "no-slash", "write its number"),
        ("project", "https://gitlab.example/a/b", "write its number"),
        ("reviewers", "['@rita']", "without @"),
        ("reviewers", "rita", "square brackets"),
        ("assignees", "['a b']", "without @"),
        ("author_name", "'<Bot>'", "write up to 100 characters"),
        ("author_name", "' Bot'", "write up to 100 characters"),
        ("author_name", '"B\\not"', "write up to 100 characters"),
        ("author_name", "7", "write up to 100 characters"),
        ("author_email", "bot", "such as bot@example.com"),
        ("author_email", "'Bot <bot@example.com>'", "such as bot@example.com"),
        ("squash", "always", "choose one of never, project"),
        ("target_branch", "[main]", "branch name that Git accepts"),
        ("target_branch", "a..b", "branch name that Git accepts"),
        ("target_branch", "-d", "branch name that Git accepts"),
        ("target_branch", "x.lock", "branch name that Git accepts"),
        ("target_branch", "gitlab-sync/x", "batches' branches"),
        ("max_batch", "0", "from 1 to 1000"),
        ("max_batch", "1001", "from 1 to 1000"),
        ("max_batch", "'ten'", "from 1 to 1000"),
        ("max_batch", "true", "from 1 to 1000"),
        ("max_batch", "1.5", "from 1 to 1000"),
        ("min_batch", "200", "lower it"),
        ("max_wait_s", "-1", "from 0 to"),
        ("deadline_s", "null", "from 1 to"),
        ("max_rounds", "0", "from 1 to 100"),
        ("merge", "yes", "auto, manual, train"),
        ("merge", "[auto]", "auto, manual, train"),
        ("on_failure", "retry", "requeue, fail, block"),
        ("approval", "true", "none, required"),
        ("pipeline", "required", "write {required: true"),
        ("pipeline", "{required: 'yes'}", "true nor false"),
        ("pipeline", "{skiped: block}", "did you mean skipped?"),
        ("pipeline", "{missing: wait}", "block, retry, accept, fail"),
        ("allowed_paths", "access/**", "square brackets"),
        ("allowed_paths", "[]", "at least 1"),
        ("allowed_paths", "[/etc]", "without a leading /"),
        ("allowed_paths", "[../x]", "without .."),
        ("protected_paths", "[42]", "put it in quotes"),
        ("labels", "['a,b']", "without commas"),
        ("max_batches", "3", "did you mean max_batch?"),
        ("nonsense", "3", "remove it"),
    ],
)
def test_a_bad_field_is_named_with_its_remedy(name: str, value: str, remedy: str) -> None:
    """File, partition, field, remedy: all in one line."""
    [line] = refusal_of(with_field(name, value))
    assert line.startswith(f"partitions.yaml: partition 'p': {name}")
    assert remedy in line


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "put all partitions below that key"),
        ("[]", "put all partitions below that key"),
        ("partitions: {}\nother: 1", "put all partitions below that key"),
        ("partitions:", "holds no partition"),
        ("partitions: {}", "holds no partition"),
        ("partitions: {p: }", "write at least project"),
        ("partitions: {p: [1]}", "write at least project"),
        ("partitions: {P: {project: 1, target_branch: m}}", "rename it"),
        ("partitions: {a/b: {project: 1, target_branch: m}}", "rename it"),
        ("partitions: {p-: {project: 1, target_branch: m}}", "rename it"),
        (f"partitions: {{{'p' * 65}: {{project: 1, target_branch: m}}}}", "rename it"),
        ("partitions: {1: {project: 1, target_branch: m}}", "rename it"),
        ("partitions: {p: {project: 1}}", "target_branch: it is missing"),
        ("partitions: {p: [", "line 1"),
        ("partitions:\n  p: 1\n  p: 2", 'duplicate key "p"'),
        ("a: 1\n---\nb: 1", "another document"),
        ("partitions: !!python/object:os.system {}", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("[" * 2_000, "nested deeper"),
    ],
)
def test_a_bad_file_is_refused_with_its_remedy(text: str, remedy: str) -> None:
    """Shapes, keys and YAML itself; the bracket bomb is refused before it is parsed."""
    [line] = refusal_of(text)
    assert line.startswith("partitions.yaml: ")
    assert remedy in line


def test_all_problems_of_all_partitions_are_told_at_once() -> None:
    """One start, one list."""
    lines = refusal_of("partitions: {a: {project: x, target_branch: m}, b: {project: 1}, C: {}}")
    assert len(lines) == 3


def test_a_missing_file_and_a_file_that_is_no_text_are_named(tmp_path: Path) -> None:
    """The path is in the line."""
    (tmp_path / "latin.yaml").write_bytes("partitions: {p: é}".encode("latin-1"))
    for name, remedy in (
        ("missing.yaml", "cannot be read"),
        ("latin.yaml", "save it as UTF-8"),
        ("", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=remedy) as refusal:
            load_partitions(tmp_path / name)
        assert str(tmp_path) in refusal.value.problems[0]


def test_the_partitions_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    """Every room shares them."""
    (tmp_path / "p.yaml").write_text(WHOLE)
    partitions = load_partitions(tmp_path / "p.yaml")
    with pytest.raises(TypeError):
        partitions["x"] = partitions["dns"]  # type: ignore[index]
