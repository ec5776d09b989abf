"""Records of GPUs: each figure has a source, the figures agree with each other, unknown names are refused."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest

from workbench.core.dtypes import DType
from workbench.cost.hardware import hardware, hardware_names, parse_hardware
from workbench.errors import FormatError, UnknownNameError
from workbench.shipped import shipped_path


def test_the_five_gpus_are_there() -> None:
    assert hardware_names() == ("a100-40", "a100-80", "b200", "h100", "h200")


@pytest.mark.parametrize("name", hardware_names())
def test_every_figure_names_its_source(name: str) -> None:
    record = hardware(name)
    assert all(len(source) > 10 for source in record.sources.values())
    for figure in ("memory_tb_s", "multiprocessors", "l2_bytes", "max_cluster", "tensor_tflops_float16", "launch_us"):
        assert figure in record.sources
        assert figure in record.describe()


@pytest.mark.parametrize("name", hardware_names())
def test_rates_follow_from_clock_and_lanes(name: str) -> None:
    record = hardware(name)
    lanes = record.multiprocessors * record.fp32_lanes * 2 * record.clock_ghz * 1e-3
    assert record.fp32_tflops == pytest.approx(lanes, rel=0.1)  # independent figures of the same data sheet
    assert record.tensor_tflops["float16"] == pytest.approx(2 * record.tensor_tflops["float32"], rel=0.01)


def test_data_sheet_figures() -> None:
    assert hardware("a100-40").memory_tb_s == 1.555
    assert hardware("a100-80").memory_tb_s == 2.039
    assert (hardware("h100").memory_tb_s, hardware("h100").multiprocessors) == (3.35, 132)
    assert hardware("h200").memory_tb_s == 4.8
    assert hardware("a100-40").max_cluster == 1


def test_measured_ceilings_stand_apart_and_are_used_first() -> None:
    ours, other = hardware("h200"), hardware("h100")
    assert (ours.measured_memory_tb_s, ours.measured_tensor_tflops, ours.measured_launch_us) == (4.64, 661.0, 1.2)
    assert "measured" in ours.sources["measured_memory_tb_s"]
    assert ours.bandwidth_tb_s == 4.64
    assert ours.tensor_rate(DType.FLOAT16) == 661.0
    assert ours.tensor_rate(DType.FLOAT32) == pytest.approx(330.5)
    assert other.measured_memory_tb_s is None
    assert other.bandwidth_tb_s == 3.35
    assert other.tensor_rate(DType.BFLOAT16) == 989.4


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"no GPU 'h300'.*a100-40.*h200"):
        hardware("h300")
    assert hardware("H200") is hardware("h200")


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        hardware("h200").launch_us = 0.0  # type: ignore[misc]


def test_a_figure_without_a_source_is_refused() -> None:
    record = json.loads(shipped_path("data", "hardware", "h200.json").read_text())
    record["figures"]["launch_us"]["source"] = ""
    with pytest.raises(FormatError, match="launch_us has no source"):
        parse_hardware(record)
    del record["figures"]["launch_us"]
    with pytest.raises(FormatError, match="launch_us"):
        parse_hardware(record)
    with pytest.raises(FormatError, match="schema"):
        parse_hardware({**record, "version": 2})
