"""The trials of a GPU from the command line, or some of them: written and compiled where there is none, run where there
is one.

python tests/kernels/gpu_trials.py write FOLDER [forms|pairs|copies|warps|resident|grouped|...]
python tests/kernels/gpu_trials.py compile FOLDER NVCC CUTLASS   (compilers, no GPU)
python tests/kernels/gpu_trials.py emulated FOLDER NVCC CUTLASS  (the same for emulated.py)
python tests/kernels/gpu_trials.py run FOLDER RESULT.json        (a GPU, unless emulated; no compilers)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from gpu_attention_layers import attention_trials
from gpu_averages import averages
from gpu_copies import copies
from gpu_depthwise_chains import (
    averaged_trials,
    chain_trials,
    inverted_strips_trials,
    inverted_trials,
    quads_trials,
    strips_trials,
)
from gpu_grouped_layers import grouped_trials
from gpu_groups import group_trials
from gpu_harness import Library, compile_all, write
from gpu_image_numbers import image_number_trials
from gpu_images import image_trials
from gpu_kept import kept_trials
from gpu_layers import forms, of_warps, trials, with_other_windows, with_pooling, with_resident_weights
from gpu_means import mean_trials
from gpu_moments import moment_trials
from gpu_pair_layers import pair_trials, pairs_with_resident_weights, thin_pairs
from gpu_prologues import prologues
from gpu_row_sums import row_sums
from gpu_shuffles import shuffle_trials
from gpu_slabs import slabs
from gpu_sliced import sliced_trials
from gpu_thin import thin_trials
from gpu_turned_chains import turned_trials


def main() -> int:
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "write":
        parts = {
            "copies": copies, "forms": forms, "pairs": pair_trials, "warps": of_warps,
            "resident": with_resident_weights, "resident-pairs": pairs_with_resident_weights,
            "thin-pairs": thin_pairs,
            "windows": with_other_windows, "pooled": with_pooling,
            "grouped": grouped_trials, "attention": attention_trials, "prologues": prologues,
            "averages": lambda: [*averages(), *averaged_trials()],
            "row-sums": row_sums, "sliced": sliced_trials, "groups": group_trials,
            "image-numbers": image_number_trials, "means": mean_trials, "moments": moment_trials,
            "shuffles": shuffle_trials, "kept": kept_trials, "thin": thin_trials,
            "norms-in-both": lambda: [each for each in (*slabs(), *image_trials()) if "-bothx" in each.label],
            "depthwise-chains": lambda: [
                *chain_trials(), *inverted_trials(), *strips_trials(), *inverted_strips_trials(), *quads_trials(),
                *turned_trials(),
            ],
        }  # fmt: skip
        write(parts[sys.argv[3]]() if sys.argv[3:] else trials(), folder)
        return 0
    if command in ("compile", "emulated"):
        how = {}
        if command == "emulated":
            import emulated  # needs pytest, which a GPU's machine may not have

            how = {"flags": emulated.compile_flags(), "cudart": emulated.link_flags()}
        compile_all(folder, Path(sys.argv[3]), Path(sys.argv[4]), **how)
        return 0
    library = Library(folder)
    outcomes = []
    for index in range(len(library.trials)):
        begun = time.monotonic()
        outcome = library.run(index)
        limit = 2e-3 if library.trials[index].large else 1.0
        right = outcome.error <= limit
        outcomes.append({**vars(outcome), "right": right})
        if not right or outcome.microseconds is not None or time.monotonic() - begun > 5:
            took = "" if outcome.microseconds is None else f"{outcome.microseconds:9.2f} us"
            print(f"{'ok   ' if right else 'WRONG'} {outcome.error:9.3g} {took} {outcome.label} {outcome.message}")
            sys.stdout.flush()
    wrong = [o["label"] for o in outcomes if not o["right"]]
    Path(sys.argv[3]).write_text(json.dumps({"trials": outcomes, "wrong": wrong}, indent=1))
    print(f"{len(outcomes)} trials, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
