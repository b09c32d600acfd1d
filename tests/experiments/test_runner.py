"""The runner that experiments share: finished measurements are kept and not repeated."""

from pathlib import Path

import pytest

from dissensus.errors import DissensusError
from experiments.runner import Measurements, line, page_parser, read_dataset, table, write_page


def test_finished_measurements_are_not_repeated(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure(value: int) -> dict[str, int]:
        calls.append(value)
        return {"value": value}

    for _ in range(2):
        measurements = Measurements(tmp_path / "finished.jsonl")
        assert measurements.get("first", measure, 1)["value"] == 1
        assert measurements.get("second", measure, 2)["value"] == 2
    assert calls == [1, 2]
    assert Measurements(None).get("first", measure, 3)["value"] == 3


def test_the_page_is_named_after_the_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page_parser("experiments.truth", "").parse_args([]).output == Path("docs/results/truth.md")
    text = table(("a", "b"), [line(1, "x")])
    assert text == "| a | b |\n| --- | --- |\n| 1 | x |"
    write_page(tmp_path / "page.md", text)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    assert text in capsys.readouterr().out


def test_a_dataset_without_labels_is_reported_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(DissensusError, match=r"jq9/annotations\.csv: no such file"):
        read_dataset(tmp_path / "jq9")
