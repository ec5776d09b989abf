"""Presets are files: they read back, stay within bounds, and wrong ones are refused."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from workbench.cost.presets import (
    COEFFICIENTS,
    Coefficients,
    dump_preset,
    parse_preset,
    preset,
    preset_names,
    save_preset,
)
from workbench.errors import FormatError, UnknownNameError


def test_presets_that_ship() -> None:
    assert preset_names() == ("analytic", "calibrated")
    for name in preset_names():
        assert preset(name).name == name
        assert preset(name).note
    assert [item.name for item in fields(Coefficients)] == list(COEFFICIENTS)
    assert "us" in preset().describe()


def test_presets_read_back(tmp_path: Path) -> None:
    chosen = preset("calibrated")
    save_preset(chosen, tmp_path / "mine.json")
    assert parse_preset((tmp_path / "mine.json").read_text()) == chosen


def test_unknown_and_broken_presets() -> None:
    with pytest.raises(UnknownNameError, match=r"no cost preset 'course'.*analytic, calibrated"):
        preset("course")
    good = json.loads(dump_preset(preset()))
    with pytest.raises(FormatError, match="JSON"):
        parse_preset("{")
    with pytest.raises(FormatError, match="schema"):
        parse_preset(json.dumps({**good, "version": 0}))
    missing = {name: value for name, value in good["coefficients"].items() if name != "start_us"}
    with pytest.raises(FormatError, match="start_us"):
        parse_preset(json.dumps({**good, "coefficients": missing}))
    with pytest.raises(FormatError, match="start_us = 99"):
        parse_preset(json.dumps({**good, "coefficients": {**good["coefficients"], "start_us": 99}}))
