"""The scorecard adds up what several runs have booked, and passes nothing that was not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scorecard import VARIABLE, Score, Scorecard, book, judge, main, read


def test_scores_of_several_runs_add_up_by_scenario_and_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are added, of two recovery ratios the lower one stands, servers stay apart."""
    path = tmp_path / "card"
    monkeypatch.setenv(VARIABLE, str(path))
    book(Score("storm", 10, 9, server="mysql", recovery=1.01, spread=0.01))
    book(Score("storm", 5, 5, server="mysql", recovery=0.99, spread=0.02))
    book(Score("storm", 7, 7, server="mariadb"))
    assert read(path).scores == [
        Score("storm", 7, 7, server="mariadb"),
        Score("storm", 15, 14, server="mysql", recovery=0.99, spread=0.02),
    ]


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (Score("s", 3, 3, lost=1), "lost is 1"),
        (Score("s", 3, 3, doubled=2), "doubled is 2"),
        (Score("s", 3, 3, violations=1), "violations is 1"),
        (Score("s", 3, 3, recovery=0.95, spread=0.01), "recovery is 95.0% ± 1.0%, which is below 98%"),
        (Score("s", 3, 3, recovery=0.97, spread=0.02), "the mean recovery is 97.0%, which is below 98%"),
    ],
)
def test_what_must_not_be_fails_the_card(score: Score, said: str, tmp_path: Path) -> None:
    """One line says which scenario and what, and the exit code is 1."""
    path = tmp_path / "card"
    path.write_text(score.line())
    assert said in judge(read(path).scores)[0]
    assert main([str(path)]) == 1


def test_a_clean_card_passes_and_an_empty_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing booked means that nothing was shown."""
    path = tmp_path / "card"
    path.write_text("")
    assert main([str(path)]) == 1
    path.write_text(Score("a scenario", 3, 3, server="mysql", recovery=0.981, spread=0.01).line())
    assert main([str(path)]) == 0
    assert "98.1% ± 1.0%" in capsys.readouterr().out


def test_of_many_that_are_whole_some_are_measured_below_and_that_is_no_loss() -> None:
    """Four in a dozen came out below 98 % on two evenings, never the same ones; their mean is what counts."""
    ratios = (0.997, 0.961, 1.03, 1.012)
    card = Scorecard()
    for number, ratio in enumerate(ratios):
        card.add(Score(f"fault {number}", 3, 3, server="mysql", recovery=ratio, spread=0.035))
    assert judge(card.scores) == []
    assert "mean recovery on mysql: 100.0%" in card.table()


def test_nothing_is_booked_unless_a_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plain run prints its table and leaves no file behind."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    card = Scorecard()
    card.add(Score("a scenario", 1, 1))
    card.publish(tmp_path / "table.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.txt"]
