"""Seeded faults: each changes one line of the source, and the named tests must fail on it.

    python -m tests.faults.mutants [WORD ...] [--finished FILE]

The packages are copied to a temporary folder, the line is changed in the copy, and the tests run against the
copy. A fault is caught if a test fails or if the tests exceed ``CPU_SECONDS`` of processor time. The tests
must pass on the unchanged copy first. WORD selects faults by name; ``--finished`` stores every outcome, and a
later run skips the faults whose source file and tests have not changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CPU_SECONDS = 300  # limit for the tests of one fault: a fault can cause an endless loop


class Fault(NamedTuple):
    """A line of a source file, its faulty version, and the tests that must notice it."""

    name: str
    file: str  # below src/dissensus, or reproduction/...
    tests: str  # files below tests/, optionally followed by -k and words
    line: str
    faulty: str

    @property
    def path(self) -> str:
        """Source file relative to the folder that contains both packages."""
        return self.file if self.file.startswith("reproduction/") else f"dissensus/{self.file}"

    @property
    def source(self) -> Path:
        """Source file in the repository."""
        return ROOT / ("" if self.file.startswith("reproduction/") else "src") / self.path

    def test_command(self) -> tuple[list[str], str]:
        """Return the test files and the words given to ``-k``."""
        files, _, words = self.tests.partition(" -k ")
        return [f"tests/{file}" for file in files.split()], words


NETWORK, INFERENCE = "text/ldlnm/network.py", "text/ldlnm/inference.py"
MESSAGES, M_STEP = "models/pgm/messages.py", "models/pgm/m_step.py"
ANNEALING, KERNELS = "models/pgm/annealing.py", "models/pgm/kernels.py"
DIRICHLET, REPRODUCED = "models/dirichlet_regression.py", "reproduction/measures.py"
REPRODUCTION_TESTS = "experiments/test_reproduction.py"
GUIDED_CELL, BLEND = f"{REPRODUCTION_TESTS} -k guided_cell", f"{REPRODUCTION_TESTS} -k blend"

# fmt: off
FAULTS = [
    Fault("no dropout on z_P", NETWORK, "text/test_network.py text/test_ldlnm.py",
          "z_P = self._dropped(softsign(fused), noise)",
          "z_P = softsign(fused)"),
    Fault("no dropout on z_E", NETWORK, "text/test_network.py text/test_ldlnm.py",
          "return self._dropped(self.encode_projected(z_P), noise)",
          "return self.encode_projected(z_P)"),
    Fault("y_A of another annotator", NETWORK, "text/test_ldlnm.py",
          "y_I[item], y_A[annotator]]",
          "y_I[item], y_A[(annotator + 1) % N]]"),
    Fault("InferA starts at 0 instead of N(0, σ)", INFERENCE, "text/test_ldlnm.py",
          "if not (sigma and n_starts == 1):",
          "if True:"),
    Fault("τ in place of γ in the simulator", "labels/simulation.py", "labels/test_simulation.py",
          'concentration("simulate", "gamma", gamma, K)',
          'concentration("simulate", "tau", tau, K)'),
    Fault("no dropout in the CNN", "reproduction/textcnn.py", "text/test_learners.py",
          'network["head"](network["dropout"](signal.amax(dim=2)))',
          'network["head"](signal.amax(dim=2))'),
    Fault("reproduction: annotator sum inside", REPRODUCED, GUIDED_CELL,
          'annotator_sum="outside",',
          'annotator_sum="inside",'),
    Fault("reproduction: annotators weighted by labels", REPRODUCED, GUIDED_CELL,
          'guide.set_params(weight_by="annotators") if has_annotators else guide',
          "guide"),
    Fault("likelihood: γ instead of τ", M_STEP, "models/test_pgm.py models/test_annealing.py",
          "((priors.tau - 1) * logs",
          "((priors.gamma - 1) * logs"),
    Fault("likelihood without Σ log Ω_z", M_STEP, "models/test_annealing.py",
          "float(terms + items + annotators) +",
          "float(terms + items) +"),
    Fault("M-step: α instead of α − 1", M_STEP, "models/test_m_step.py",
          "normalised(p.alpha - 1 + statistics.label_mass)",
          "normalised(p.alpha + statistics.label_mass)"),
    Fault("M-step: Ω with ψ's prior", M_STEP, "models/test_m_step.py",
          "normalised(p.tau - 1 + statistics.annotator_mass)",
          "normalised(p.gamma - 1 + statistics.annotator_mass)"),
    Fault("E log Θ over the wrong axis", "models/ibcc.py", "models/test_m_step.py models/test_pgm.py",
          "digamma(a) - digamma(a.sum(-1, keepdims=True))",
          "digamma(a) - digamma(a.sum(0, keepdims=True))"),
    Fault("KL of Dirichlets: wrong sign", M_STEP, "models/test_m_step.py",
          "gammaln(posterior.sum(-1)) - gammaln(prior.sum(-1))",
          "gammaln(prior.sum(-1)) - gammaln(posterior.sum(-1))"),
    Fault("Minka's step without P", M_STEP, "models/test_m_step.py",
          "by_row = P * (digamma(",
          "by_row = (digamma("),
    Fault("cavity keeps the label's own message", KERNELS, "models/test_kernels.py",
          "    ratio /= message\n",
          ""),
    Fault("messages: F instead of its transpose", KERNELS, "models/test_kernels.py models/test_messages.py",
          "F = np.ascontiguousarray(factors.transpose(0, 2, 1))",
          "F = np.ascontiguousarray(factors)"),
    Fault("repeated labels of a pair counted once", KERNELS, "models/test_kernels.py models/test_messages.py",
          "np.vstack([np.eye(P), multisets[order]])",
          "np.vstack([np.eye(P), multisets[order] > 0])"),
    Fault("large messages are not normalised", MESSAGES, "models/test_messages.py",
          "rescale = log_range + max(high, -low) > limit",
          "rescale = False"),
    Fault("messages normalised by current range only", MESSAGES, "models/test_messages.py",
          "rescale = log_range + max(high, -low) > limit",
          "rescale = max(high, -low) > limit"),
    Fault("evidence counts a normalised message twice", MESSAGES, "models/test_messages.py",
          "(0.0 if rescale else pair_term)",
          "pair_term"),
    Fault("damping weights swapped", MESSAGES, "models/test_messages.py",
          "new ** (1 - damping) * before[pairs] ** damping",
          "new**damping * before[pairs] ** (1 - damping)"),
    Fault("Bethe free energy: pair terms added", MESSAGES, "models/test_messages.py",
          "return beliefs.node_terms - float(pair_terms)",
          "return beliefs.node_terms + float(pair_terms)"),
    Fault("pairwise beliefs not normalised", MESSAGES, "models/test_messages.py",
          "        left /= sums_of_beliefs[:, None]\n",
          ""),
    Fault("population with equal annotator clusters", MESSAGES, "models/test_pgm.py",
          'np.einsum("l,klp->kp", normalised(mass), theta)',
          "theta.mean(axis=1)"),
    Fault("δ_Θ without the prior", ANNEALING, "models/test_annealing.py",
          "((priors.alpha - 1 + counts) * (safe_log(new)",
          "((counts) * (safe_log(new)"),
    Fault("δ_w without ψ", ANNEALING, "models/test_annealing.py",
          "log_psi[proposal] - log_psi[state.w] + terms",
          "terms"),
    Fault("annealing never accepts a worse state", ANNEALING, "models/test_annealing.py",
          "np.asarray(delta) / temperature)",
          "np.minimum(delta, 0) / 1e-9)"),
    Fault("FMM: likelihood without the prior of ψ", "models/fmm.py", "models/test_fmm.py",
          " + xlogy(gamma - 1, psi).sum())",
          ")"),
    Fault("FMM: responsibilities without ψ", "models/fmm.py", "models/test_fmm.py",
          "safe_log(theta) @ counts.T + safe_log(psi)[:, None])",
          "safe_log(theta) @ counts.T)"),
    Fault("Dawid–Skene: shrinks to uniform rows", "models/dawid_skene.py", "models/test_dawid_skene.py",
          "return normalised(self.smoothing * anchor + counts)",
          "return normalised(self.smoothing / anchor.shape[1] + counts)"),
    Fault("CBCC: prior of a with c instead of 1/c", "models/ibcc.py", "models/test_ibcc.py",
          "a_l * numerator / (denominator + 1 / concentration)",
          "a_l * numerator / (denominator + concentration)"),
    Fault("CBCC: B without Γ of the sum", "models/ibcc.py", "models/test_ibcc.py",
          "gammaln(a).sum(-1) - gammaln(a.sum(-1))",
          "gammaln(a).sum(-1)"),
    Fault("Dirichlet regression: label predicts itself", DIRICHLET, "models/test_dirichlet_regression.py",
          "same = counts[item, label] - cell_size[cell]",
          "same = counts[item, label]"),
    Fault("softmax regression: penalised intercept", DIRICHLET, "text/test_learners.py",
          "np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0)])",
          "np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0) + penalty * b])"),
    Fault("no residual around W_E", NETWORK, "text/test_network.py",
          "softsign(torch.baddbmm(self.b_E, z_P, self.W_E) + z_P)",
          "softsign(torch.baddbmm(self.b_E, z_P, self.W_E))"),
    Fault("weight decay on embeddings and biases", NETWORK, "text/test_network.py",
          '{"params": others}',
          '{"params": others, "weight_decay": decay}'),
    Fault("LDL-NM keeps the worst epoch", NETWORK, "text/test_network.py",
          "better = (loss < lowest[active]) | (best_epoch[active] < 0)",
          "better = (loss > lowest[active]) | (best_epoch[active] < 0)"),
    Fault("InferA: decay with the wrong sign", INFERENCE, "text/test_network.py text/test_ldlnm.py",
          "return kl(z_A) + decay /",
          "return kl(z_A) - decay /"),
    Fault("ensemble weights annotators equally", "text/ldlnm/model.py", "text/test_ldlnm.py",
          "mass = self.annotator_load_[stored] if by_labels else np.ones(len(stored))",
          "mass = np.ones(len(stored))"),
    Fault("projection without ψ", "text/guided/classifier.py", "text/test_guided.py",
          "softmax_rows(log_likelihood + log_with_zeros(self.clusters.shares))",
          "softmax_rows(log_likelihood)"),
    Fault("projection outside without π", "text/guided/classifier.py", "text/test_guided.py",
          ".reshape(-1, K, L) + log_pi\n",
          ".reshape(-1, K, L)\n"),
    Fault("KL with swapped arguments", "metrics.py", "core/test_metrics.py",
          "divergence: Array = rel_entr(g, p).sum(axis=1)",
          "divergence: Array = rel_entr(p, g).sum(axis=1)"),
    Fault("one-hot accuracy without the factor 2", "metrics.py", "core/test_metrics.py",
          "(1 - (g * p).sum(axis=1)) * 2 / g.shape[1]",
          "(1 - (g * p).sum(axis=1)) / g.shape[1]"),
    Fault("sampling floor: k − 1 for k", "metrics.py", "core/test_metrics.py",
          "gammaln(size + 1) - gammaln(k + 1)",
          "gammaln(size + 1) - gammaln(k)"),
    Fault("bootstrap over labels instead of items", "evaluate/bootstrap.py", "evaluate/test_bootstrap.py",
          "return np.unique(codes, return_inverse=True)[1].astype(np.intp)",
          "return np.arange(n_rows)"),
    Fault("simulator's population ignores Ω", "labels/simulation.py", "labels/test_simulation.py",
          'np.einsum("l,klp->kp", weights, self.theta)',
          "self.theta.mean(axis=1)"),
    Fault("reproduction: weights of a blend swapped", "reproduction/derived.py", BLEND,
          "kl(gold, weight * first + (1 - weight) * second) for",
          "kl(gold, weight * second + (1 - weight) * first) for"),
    Fault("reproduction: better and worse swapped", "reproduction/tables.py", f"{REPRODUCTION_TESTS} -k tie",
          'return "better" if row["value"] < 0 else "worse"',
          'return "better" if row["value"] > 0 else "worse"'),
    Fault("products of messages have no limit", KERNELS, "models/test_kernels.py models/test_messages.py",
          "MAX_LOG_PRODUCT = 650.0 ",
          "MAX_LOG_PRODUCT = 1e9 "),
    Fault("range of messages to items: factors only", MESSAGES, "models/test_messages.py",
          "max(log_range - low, high)",
          "log_range"),
    Fault("range of messages to annotators: factors only", MESSAGES, "models/test_messages.py",
          "max_log = log_range + max(high, -low)",
          "max_log = log_range"),
    Fault("range of messages to annotators: cavities only", MESSAGES, "models/test_messages.py",
          "max_log = log_range + max(high, -low)",
          "max_log = max(high, -low)"),
    Fault("range of damped messages: new ones only", MESSAGES, "models/test_messages.py",
          "            max_log = limit\n",
          ""),
    Fault("counts end at the wrong pair", KERNELS, "models/test_kernels.py",
          "starts = np.append(first, len(item)).astype(np.int32)",
          "starts = np.append(first, len(first)).astype(np.int32)"),
    Fault("HPGM: small data on threads", "models/hpgm/model.py", "models/test_hpgm.py",
          "labels.n_labels >= LABELS_FOR_THREADS",
          "labels.n_labels >= LABELS_FOR_THREADS - 2"),
]
# fmt: on


def check_faults(faults: list[Fault]) -> None:
    """Check that every line occurs exactly once in its file, and that the tests exist."""
    for fault in faults:
        n_lines = fault.source.read_text(encoding="utf-8").count(fault.line)
        if n_lines != 1:
            raise SystemExit(f"{fault.name}: its line occurs {n_lines} times in {fault.file}; correct it")
        files, word = fault.test_command()
        if word and not any(word in (ROOT / file).read_text(encoding="utf-8") for file in files):
            raise SystemExit(f"{fault.name}: no test of {', '.join(files)} has {word!r} in its name")


def run_tests(fault: Fault, folder: Path) -> str:
    """Run the tests of a fault against the packages in a folder: "pass", "fail" or "endless"."""
    files, word = fault.test_command()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not verify"]
    command += ["-o", f"pythonpath={folder}", *files, *(["-k", word] if word else [])]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["prlimit", f"--cpu={CPU_SECONDS}", *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "endless"
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {fault.tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return "fail" if done.returncode else "pass"


def run_faulty(fault: Fault, folder: Path) -> str:
    """Run the tests of a fault with its line changed in the folder; the line is restored afterwards."""
    path = folder / fault.path
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.line, fault.faulty), encoding="utf-8")
    try:
        return run_tests(fault, folder)
    finally:
        path.write_text(text, encoding="utf-8")


def key_of(fault: Fault) -> str:
    """Return a digest of everything that decides the outcome of a fault."""
    files = [fault.source, *(ROOT / file for file in fault.test_command()[0])]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256(repr([fault.line, fault.faulty, fault.tests, texts]).encode()).hexdigest()[:16]


def main() -> int:
    """Run the selected faults and print the outcome of each; 1 if a fault goes unnoticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="run the faults whose names contain one of these words")
    parser.add_argument("--finished", type=Path, help="file of outcomes; finished faults are skipped")
    options = parser.parse_args()
    faults = [f for f in FAULTS if not options.words or any(word in f.name for word in options.words)]
    check_faults(faults)
    finished, outcomes = options.finished, {}
    if finished is not None and finished.exists():
        outcomes = dict(map(json.loads, finished.read_text(encoding="utf-8").splitlines()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for package in (ROOT / "src" / "dissensus", ROOT / "reproduction"):
            shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        passing: set[str] = set()
        for fault in faults:
            key = key_of(fault)
            if key not in outcomes:
                if fault.tests not in passing and run_tests(fault, folder) != "pass":
                    raise SystemExit(f"{fault.tests}: fails on the unchanged source")
                passing.add(fault.tests)
                outcomes[key] = run_faulty(fault, folder)
                if finished is not None:
                    with finished.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([key, outcomes[key]]) + "\n")
            print(f"{'SURVIVES' if outcomes[key] == 'pass' else 'caught':8} {fault.name}", flush=True)
    survivors = sum(outcomes[key_of(fault)] == "pass" for fault in faults)
    print(f"{survivors} of {len(faults)} faults survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
