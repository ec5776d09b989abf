"""Two programs that are in no list beside all their peers: RMSNorm then two linears, and a 24 x 5120 gated MLP with biases.

    python benchmarks/gpu_unlisted.py --out FILE.jsonl

Candidates are those kept in data/records/candidates.jsonl (`benchmarks/keep_variants.py`). Rows have the keys of
`workbench measure`, `table` is false. Exit status 1 if one is not right.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import workbench as wb  # noqa: E402
from benchmarks.gpu_variants import unlisted_rows  # noqa: E402
from workbench.commands.measure import measured_values, schedule_of  # noqa: E402
from workbench.cost.hardware import hardware  # noqa: E402
from workbench.device.measure_program import (  # noqa: E402
    Candidate,
    MeasureJob,
    compulsory_work,
    measure_prepared,
    prepare_job,
    source_hash,
)
from workbench.device.peers import ALL_PEERS  # noqa: E402
from workbench.device.worker import Worker, run_in_workers  # noqa: E402
from workbench.records.candidates import find_candidates, shipped_candidates  # noqa: E402
from workbench.records.measurements import measurement_store  # noqa: E402
from workbench.views.measured_table import text_table  # noqa: E402

DEVICE = "h200"


def main() -> int:
    """Measure both; return 1 if one is not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    store = measurement_store(parser.parse_args().out)
    rows, jobs = unlisted_rows(), []
    for row in rows:
        stored = find_candidates([shipped_candidates()], row.reference, device=DEVICE, version=wb.__version__)
        candidates = tuple(
            Candidate(
                label=f"stored {number}",
                graph=one.graph,
                schedules={name: schedule_of(fields) for name, fields in one.schedules.items()},
            )
            for number, one in enumerate(stored[:3])
        )
        jobs.append(MeasureJob(program=row.reference, candidates=candidates, device=DEVICE, peers=ALL_PEERS))
    prepared = run_in_workers(prepare_job, jobs, workers=2, timeout_s=120.0)
    gpu, bad, told = hardware(DEVICE), 0, []
    with Worker() as worker:
        for row, job, ready in zip(rows, jobs, prepared, strict=True):
            measured = worker.run(measure_prepared, 120.0, ready.result(), DEVICE).result()
            work, machine = compulsory_work(row.reference, gpu), measured.machine.to_json()
            record = {
                "program": row.label, "parameters": dict(row.sizes), "style": "standard", "dtype": "float16", "table": False,
                "ours_us": None, "ratio": None, "relative_error": None, "correct": False, "device": DEVICE,
                "floor_us": work.floor_us(gpu.bandwidth_tb_s, gpu.measured_tensor_tflops or 661.0), "target_us": None,
                "bytes": work.bytes, "flops": work.flops, "product_flops": work.product_flops,
                "program_hash": row.reference.hash, "kernels_hash": source_hash(job.candidates, DEVICE),
                "workbench": wb.__version__, "seed": job.seed, "peers_asked": list(job.peers),
                "elapsed_s": measured.elapsed_s, **machine, **measured_values(job, measured),
            }  # fmt: skip
            told.append(store.append(record))
            bad |= not record["correct"]
    print(text_table(told))
    return bad


if __name__ == "__main__":
    sys.exit(main())
