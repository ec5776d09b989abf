"""Fits find what was hidden, are deterministic, and say how good they are; ranks are those of a definition."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import asdict, replace

import numpy as np
import pytest

from workbench import programs
from workbench.cost.calibration import Row, calibrate, median_error, predict, spearman
from workbench.cost.estimate import Features, estimate, features
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice
from workbench.cost.presets import Coefficients, Preset, preset
from workbench.errors import UsageError

H200 = hardware("h200")


def hidden(**changes: float) -> Preset:
    return Preset("hidden", replace(preset().coefficients, **changes))


def some_features() -> list[Features]:
    found = []
    for name in ("rms_norm_linear", "gated_mlp", "gqa", "lora", "softmax"):
        graph = programs.known_good(name)[0]
        for threads, stages in itertools.product((128, 256), (2, 4)):
            choices = [LaunchChoice(threads, stages) for _ in graph.graph_defined]
            found.append(features(graph, H200, choices))
    return found


def test_a_fit_finds_hidden_coefficients() -> None:
    truth = hidden(start_us=1.9, memory_efficiency=0.7, lane_scale=2.0)
    rows = [Row(f, predict(f, H200, truth), label=str(n)) for n, f in enumerate(some_features())]
    fit = calibrate(rows, H200, fitted=("start_us", "memory_efficiency", "lane_scale"))
    assert fit.median_error < 0.03 < fit.before
    assert fit.rank_correlation > 0.99
    assert fit.preset.coefficients.start_us == pytest.approx(1.9, rel=0.1)
    assert asdict(fit.preset.coefficients)["cluster_us"] == preset().coefficients.cluster_us  # not fitted
    again = calibrate(rows, H200, fitted=("start_us", "memory_efficiency", "lane_scale"))
    assert again.preset == fit.preset
    assert "rank correlation" in fit.describe()


def test_noise_is_fitted_within_bounds_and_one_odd_row_does_not_bend_it() -> None:
    chance = random.Random(3)
    truth = hidden(start_us=1.5)
    rows = [Row(f, predict(f, H200, truth) * math.exp(chance.gauss(0, 0.05))) for f in some_features()]
    fit = calibrate(rows, H200)
    assert fit.median_error < 0.08
    odd = [*rows, replace(rows[0], measured_us=rows[0].measured_us * 30, label="odd")]
    bent = calibrate(odd, H200)
    assert median_error(bent.predicted_us[:-1], bent.measured_us[:-1]) < 0.12
    assert "odd" in bent.describe()


def test_one_row_predicts_as_the_estimate_does() -> None:
    graph = programs.known_good("gated_mlp_down")[1]  # with a predefined operator
    found = features(graph, H200)
    for cold in (True, False):
        assert predict(found, H200, cold=cold) == pytest.approx(
            estimate(graph, hardware=H200, cold=cold).total_us, abs=1e-9
        )
    assert Features.from_json(found.to_json()) == found


def test_bad_rows_are_refused() -> None:
    found = features(programs.known_good("softmax")[0], H200)
    with pytest.raises(UsageError, match="no rows"):
        calibrate([], H200)
    with pytest.raises(UsageError, match="positive"):
        calibrate([Row(found, 0.0)], H200)
    with pytest.raises(UsageError, match="no coefficient 'speed'"):
        calibrate([Row(found, 1.0)], H200, fitted=("speed",))


def test_ranks_by_the_definition() -> None:
    assert spearman([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)  # 1 - 6 * 2 / (3 * 8)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == -1.0
    assert spearman([1, 1, 2], [5, 5, 9]) == 1.0  # ties share their mean rank
    assert spearman([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))  # ranks 1.5, 1.5, 3, 4
    assert math.isnan(spearman([1, 1], [1, 2]))
    rng = np.random.default_rng(0)
    a = rng.normal(size=50)
    b = a + rng.normal(size=50)
    squares = sum((x - y) ** 2 for x, y in zip(a.argsort().argsort(), b.argsort().argsort(), strict=True))
    assert spearman(list(a), list(b)) == pytest.approx(1 - 6 * squares / (50 * (50**2 - 1)))
    with pytest.raises(UsageError):
        spearman([1.0], [1.0])


def test_the_calibrated_preset_ships_within_its_bounds() -> None:
    fitted = preset("calibrated")
    assert isinstance(fitted.coefficients, Coefficients)
    assert "H200" in fitted.note
