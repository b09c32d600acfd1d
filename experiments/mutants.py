"""Do the tests notice a fault? Each mutant is one line of the source changed, and some tests must fail on it.

    python -m experiments.mutants [NAME …] [-o docs/results/mutants.md] [--finished FILE]

The source tree is copied, the line is changed in the copy, and the test files that are about that line run
against it. A mutant is killed where one of them fails, or where they do not come to an end in ``PATIENCE``
seconds of processor time; it survives where all pass. The unchanged copy is run first: its tests must pass.
Faults are of the kind that a slip of the hand makes: a sign, an index, a term left out, two names exchanged.
The first nine are those that an audit of the paper's equations had seeded and no test noticed then.
``--finished`` keeps every trial as it ends, and a later run goes on there; a trial counts as long as neither
its source file nor its tests have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from experiments.common import Finished, Values, write_files

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dissensus"
REPRODUCTION = "reproduction"  # a package beside the source, some of whose lines are changed too
PATIENCE = 300  # processor seconds; a fault may turn a loop endless, and that is noticed too


@dataclass(frozen=True)
class Mutant:
    """A line changed in one file, and the tests (files, or parts of them by -k) that are about it."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # "file.py file.py", or "file.py -k words"
    survived_before: bool = False  # when it was first tried
    why: str = ""  # it may survive


NETWORK, LDLNM = "text/ldlnm/network.py", "text/ldlnm"
PROPAGATION, PARAMETERS = "models/pgm/messages.py", "models/pgm/m_step.py"
ANNEALING, KERNELS = "models/pgm/annealing.py", "models/pgm/kernels.py"

AUDITED = [
    Mutant(
        "z_P is not dropped at evaluation",
        NETWORK,
        "z_P = self._dropped(softsign(fused), noise)",
        "z_P = softsign(fused)",
        "test_ldlnm_network.py test_ldlnm.py",
    ),
    Mutant(
        "z_E is not dropped at evaluation",
        NETWORK,
        "return self._dropped(self.encode_projected(z_P), noise)",
        "return self.encode_projected(z_P)",
        "test_ldlnm_network.py test_ldlnm.py",
    ),
    Mutant(
        "y_A is another annotator's",
        NETWORK,
        "row_shares(own)[annotator]",
        "row_shares(own)[(annotator + 1) % N]",
        "test_ldlnm.py",
    ),
    Mutant(
        "InferA starts at 0 where N(0, σ) is asked for",
        f"{LDLNM}/inference.py",
        "if not (sigma and n_starts == 1):",
        "if True:",
        "test_ldlnm.py",
    ),
    Mutant(
        "γ and τ are exchanged in the simulator",
        "labels/simulation.py",
        '("gamma", gamma, K), ("tau", tau, L)',
        '("tau", tau, K), ("gamma", gamma, L)',
        "test_simulation.py",
    ),
    Mutant(
        "the CNN does not drop",
        "reproduction/textcnn.py",
        'network["head"](network["dropout"](signal.amax(dim=2)))',
        'network["head"](signal.amax(dim=2))',
        "test_learners.py",
    ),
    Mutant(
        "reproduce: the annotator sum stands inside",
        "reproduction/measures.py",
        'annotator_sum="outside",',
        'annotator_sum="inside",',
        "test_reproduction.py -k guided_cell",
    ),
    Mutant(
        "reproduce: annotators count by their labels",
        "reproduction/measures.py",
        'guide.set_params(weight_by="annotators") if known else guide',
        "guide",
        "test_reproduction.py -k guided_cell",
    ),
]

OURS = [
    # ---- the joint likelihood and the M-step
    Mutant(
        "ℓ: γ where τ belongs",
        PARAMETERS,
        "((priors.tau - 1) * logs",
        "((priors.gamma - 1) * logs",
        "test_pgm.py test_annealing.py",
    ),
    Mutant(
        "ℓ without Σ log Ω_z",
        PARAMETERS,
        "float(labels + items + annotators) +",
        "float(labels + items) +",
        "test_annealing.py",
    ),
    Mutant(
        "M-step: α in place of α − 1",
        PARAMETERS,
        "normalised(p.alpha - 1 + statistics.label_mass)",
        "normalised(p.alpha + statistics.label_mass)",
        "test_pgm.py",
    ),
    Mutant(
        "M-step: Ω with ψ's prior",
        PARAMETERS,
        "normalised(p.tau - 1 + statistics.annotator_mass)",
        "normalised(p.gamma - 1 + statistics.annotator_mass)",
        "test_pgm.py",
    ),
    Mutant(
        "E log Θ over the wrong axis",
        PARAMETERS,
        "digamma(posterior) - digamma(posterior.sum(axis=-1, keepdims=True))",
        "digamma(posterior) - digamma(posterior.sum(axis=0, keepdims=True))",
        "test_dirichlet.py test_pgm.py",
    ),
    Mutant(
        "KL of Dirichlets: a sign",
        PARAMETERS,
        "gammaln(posterior.sum(-1)) - gammaln(prior.sum(-1))",
        "gammaln(prior.sum(-1)) - gammaln(posterior.sum(-1))",
        "test_dirichlet.py",
    ),
    Mutant(
        "Minka's step without P", PARAMETERS, "pull = P * (digamma(", "pull = (digamma(", "test_dirichlet.py"
    ),
    # ---- messages
    Mutant("a cavity that keeps the message", KERNELS, "    ratio /= message\n", "", "test_kernels.py"),
    Mutant(
        "messages: F in place of its transpose",
        KERNELS,
        "F = np.ascontiguousarray(factors.transpose(0, 2, 1))",
        "F = np.ascontiguousarray(factors)",
        "test_kernels.py test_propagation.py",
    ),
    Mutant(
        "several labels of a pair count once",
        KERNELS,
        "np.vstack([np.eye(P), multisets[order]])",
        "np.vstack([np.eye(P), multisets[order] > 0])",
        "test_kernels.py test_propagation.py",
    ),
    Mutant(
        "messages that have gone far are not normalised",
        PROPAGATION,
        "too_far = reach + max(high, -low) > most",
        "too_far = False",
        "test_propagation.py -k gone_far",
    ),
    Mutant(
        "messages are normalised by how far they are, not by how far they will be",
        PROPAGATION,
        "too_far = reach + max(high, -low) > most",
        "too_far = max(high, -low) > most",
        "test_propagation.py -k gone_far",
    ),
    Mutant(
        "the evidence counts a normalised message twice",
        PROPAGATION,
        "(0.0 if too_far else pair_term)",
        "pair_term",
        "test_propagation.py -k scale",
    ),
    Mutant(
        "damping the other way round",
        PROPAGATION,
        "new ** (1 - damping) * before[pairs] ** damping",
        "new**damping * before[pairs] ** (1 - damping)",
        "test_propagation.py",
        survived_before=True,
    ),
    Mutant(
        "Bethe: pairs' terms added",
        PROPAGATION,
        "return beliefs.node_terms - float(pair_terms)",
        "return beliefs.node_terms + float(pair_terms)",
        "test_propagation.py",
    ),
    Mutant(
        "pairwise beliefs without their norm",
        PROPAGATION,
        "        left /= sums_of_beliefs[:, None]\n",
        "",
        "test_propagation.py",
    ),
    Mutant(
        "Θ's weights: clusters alike",
        PROPAGATION,
        'np.einsum("l,klp->kp", normalised(mass), theta)',
        "theta.mean(axis=1)",
        "test_pgm.py",
    ),
    # ---- annealing
    Mutant(
        "δ_Θ without the prior",
        ANNEALING,
        "((priors.alpha - 1 + counts) * (safe_log(new)",
        "((counts) * (safe_log(new)",
        "test_annealing.py",
    ),
    Mutant(
        "δ_w without ψ",
        ANNEALING,
        "log_psi[proposal] - log_psi[state.w] + labels",
        "labels",
        "test_annealing.py",
    ),
    Mutant(
        "worse states are never taken",
        ANNEALING,
        "np.asarray(delta) / temperature)",
        "np.minimum(delta, 0) / 1e-9)",
        "test_annealing.py",
    ),
    # ---- the other models
    Mutant(
        "FMM: ψ's prior left out of ℓ", "models/fmm.py", " + xlogy(gamma - 1, psi).sum())", ")", "test_fmm.py"
    ),
    Mutant(
        "FMM: responsibilities without ψ",
        "models/fmm.py",
        "safe_log(theta) @ counts.T + safe_log(psi)[:, None])",
        "safe_log(theta) @ counts.T)",
        "test_fmm.py",
    ),
    Mutant(
        "Dawid–Skene: matrices shrunk to even rows",
        "models/dawid_skene.py",
        "return normalised(self.smoothing * anchor + counts)",
        "return normalised(self.smoothing / anchor.shape[1] + counts)",
        "test_dawid_skene.py",
    ),
    Mutant(
        "one-coin: wrong answers not shared out",
        "models/dawid_skene.py",
        "learned[:, 1] / max(P - 1, 1)",
        "learned[:, 1]",
        "test_dawid_skene.py",
    ),
    Mutant(
        "CBCC: the prior of a with c for 1/c",
        "models/ibcc.py",
        "own * raised / (pull + 1 / concentration)",
        "own * raised / (pull + concentration)",
        "test_cbcc.py",
    ),
    Mutant(
        "CBCC: B without Γ of the sum",
        "models/ibcc.py",
        "gammaln(a).sum(-1) - gammaln(a.sum(-1))",
        "gammaln(a).sum(-1)",
        "test_cbcc.py",
    ),
    Mutant(
        "Dirichlet regression: a label sees itself",
        "models/dirichlet_regression.py",
        "same = counts[item, label] - own_class[which]",
        "same = counts[item, label]",
        "test_dirichlet_regression.py",
    ),
    Mutant(
        "softmax regression: the intercept is penalised",
        "models/softmax.py",
        "np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0)])",
        "np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0) + penalty * b])",
        "test_learners.py",
    ),
    # ---- the neural model
    Mutant(
        "no residual around W_E",
        NETWORK,
        "softsign(torch.baddbmm(self.b_E, z_P, self.W_E) + z_P)",
        "softsign(torch.baddbmm(self.b_E, z_P, self.W_E))",
        "test_ldlnm_network.py",
    ),
    Mutant(
        "annotators and biases decay",
        NETWORK,
        '{"params": others}',
        '{"params": others, "weight_decay": decay}',
        "test_ldlnm_network.py",
    ),
    Mutant(
        "the worst epoch is kept",
        NETWORK,
        "better = (loss < lowest[going]) | (kept[going] < 0)",
        "better = (loss > lowest[going]) | (kept[going] < 0)",
        "test_ldlnm_network.py",
    ),
    Mutant(
        "InferA: decay with the other sign",
        f"{LDLNM}/inference.py",
        "return kl(z_A) + decay /",
        "return kl(z_A) - decay /",
        "test_ldlnm_network.py test_ldlnm.py",
    ),
    Mutant(
        "the ensemble counts annotators alike",
        f"{LDLNM}/model.py",
        "mass = self.annotator_load_[stored] if by_labels else np.ones(len(stored))",
        "mass = np.ones(len(stored))",
        "test_ldlnm.py",
    ),
    # ---- guided learning
    Mutant(
        "projection without ψ",
        "text/guided/guides.py",
        "softmax_rows(log_likelihood + log_chances(self.clusters.shares))",
        "softmax_rows(log_likelihood)",
        "test_guided.py -k by_hand",
    ),
    Mutant(
        "projection outside without π",
        "text/guided/guides.py",
        ".reshape(-1, K, L) + log_pi, axis=2)",
        ".reshape(-1, K, L), axis=2)",
        "test_guided.py -k by_hand",
    ),
    # ---- measures and the evaluation
    Mutant(
        "KL the other way round",
        "metrics.py",
        "divergence: Array = rel_entr(g, p).sum(axis=1)",
        "divergence: Array = rel_entr(p, g).sum(axis=1)",
        "test_metrics.py",
    ),
    Mutant(
        "one-hot accuracy without the factor 2",
        "metrics.py",
        "(1 - (g * p).sum(axis=1)) * 2 / g.shape[1]",
        "(1 - (g * p).sum(axis=1)) / g.shape[1]",
        "test_metrics.py",
    ),
    Mutant(
        "sampling floor: k − 1 for k",
        "metrics.py",
        "gammaln(size + 1) - gammaln(k + 1)",
        "gammaln(size + 1) - gammaln(k)",
        "test_metrics.py",
    ),
    Mutant(
        "intervals resample labels, not items",
        "evaluate/bootstrap.py",
        "return np.unique(codes, return_inverse=True)[1].astype(np.intp)",
        "return np.arange(n_rows)",
        "test_bootstrap.py",
    ),
    Mutant(
        "the simulator's population ignores Ω",
        "labels/simulation.py",
        'np.einsum("l,klp->kp", self.omega, self.theta)',
        "self.theta.mean(axis=1)",
        "test_simulation.py",
    ),
    Mutant(
        "reproduce: the blend's weights exchanged",
        "reproduction/findings.py",
        "kl(gold, weight * first + (1 - weight) * second) for",
        "kl(gold, weight * second + (1 - weight) * first) for",
        "test_reproduction.py -k blended",
    ),
    Mutant(
        "reproduce: better and worse exchanged",
        "reproduction/answers.py",
        'return "better" if self.difference.value < 0 else "worse"',
        'return "better" if self.difference.value > 0 else "worse"',
        "test_reproduction.py -k tie",
    ),
    # ---- what is faster
    Mutant(
        "products of messages have no limit",
        KERNELS,
        "RANGE = 650.0 ",
        "RANGE = 1e9 ",
        "test_kernels.py test_propagation.py",
    ),
    Mutant(
        "messages to items are as mild as the factors",
        PROPAGATION,
        "max(reach - low, high)",
        "reach",
        "test_propagation.py -k a_few_at_a_time",
    ),
    Mutant(
        "messages to annotators are as mild as the factors",
        PROPAGATION,
        "furthest = reach + max(high, -low)",
        "furthest = reach",
        "test_propagation.py -k a_few_at_a_time",
    ),
    Mutant(
        "messages to annotators are as mild as the cavities",
        PROPAGATION,
        "furthest = reach + max(high, -low)",
        "furthest = max(high, -low)",
        "test_propagation.py -k a_few_at_a_time",
    ),
    Mutant(
        "damped messages are as mild as the new ones",
        PROPAGATION,
        "            furthest = most\n",
        "",
        "test_propagation.py -k a_few_at_a_time",
    ),
    Mutant(
        "counts take the first of those who agree",
        KERNELS,
        "starts = np.append(first, len(item)).astype(np.int32)",
        "starts = np.append(first, len(first)).astype(np.int32)",
        "test_kernels.py",
    ),
    Mutant(
        "HPGM's chains of few labels run on threads",
        "models/hpgm/model.py",
        "labels.n_labels >= LABELS_FOR_THREADS",
        "labels.n_labels >= LABELS_FOR_THREADS - 2",
        "test_hpgm.py -k one_after_the_other",
    ),
]

MUTANTS = [*(replace(mutant, survived_before=True) for mutant in AUDITED), *OURS]


# ---- running -------------------------------------------------------------------------------------------


def outcome(tree: Path, tests: str) -> Values:
    """What these tests say of a source tree: "pass", "fail" or "endless"."""
    files, _, words = tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not verify"]
    command += ["-o", f"pythonpath={tree}"]  # before the packages of the repository
    command += [f"tests/{file}" for file in files.split()] + (["-k", words] if words else [])
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["prlimit", f"--cpu={PATIENCE}", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"outcome": "endless"}
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return {"outcome": "fail" if done.returncode else "pass"}


def trial(mutant: Mutant, tree: Path) -> Values:
    """Change the line in the tree, run the tests, change it back."""
    path = file_of(mutant, tree, tree / "dissensus")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return outcome(tree, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")


def file_of(mutant: Mutant, root: Path = ROOT, source: Path = SOURCE) -> Path:
    """Give the file whose line is changed."""
    return (root if mutant.file.startswith(f"{REPRODUCTION}/") else source) / mutant.file


def files_of(tests: str) -> list[Path]:
    """The test files named."""
    return [ROOT / "tests" / file for file in tests.partition(" -k ")[0].split()]


def key(what: object, tests: str, source: Sequence[Path]) -> str:
    """A trial's name in the file of finished ones: what is tried, on which source, by which tests."""
    texts = [path.read_text(encoding="utf-8") for path in (*source, *files_of(tests))]
    return hashlib.sha256(repr([what, tests, texts]).encode()).hexdigest()[:16]


def check_places(mutants: Sequence[Mutant]) -> None:
    """Every line to be changed must stand in its file once."""
    for mutant in mutants:
        found = file_of(mutant).read_text(encoding="utf-8").count(mutant.old)
        if found != 1:
            raise SystemExit(f"{mutant.name}: its line stands {found} times in {mutant.file}")


def check_unchanged(mutants: Sequence[Mutant], tree: Path, finished: Finished) -> None:
    """Tests that fail on the source as it is say nothing about a fault."""
    for tests in dict.fromkeys(mutant.tests for mutant in mutants):
        source = sorted({file_of(mutant) for mutant in mutants if mutant.tests == tests})
        found = finished.measured(key("unchanged", tests, source), partial(outcome, tree, tests))
        if found["outcome"] != "pass":
            raise SystemExit(f"{tests}: {found['outcome']} on the unchanged source")


# ---- the page ------------------------------------------------------------------------------------------

WORDS = {"pass": "**survives**", "fail": "killed", "endless": "killed (it never ended)", "": "not tried"}


def page(rows: Sequence[tuple[Mutant, str]]) -> str:
    """The table, and how many survive."""
    tried = [mutant for mutant, found in rows if found]
    before = sum(mutant.survived_before for mutant in tried)
    alive = [mutant for mutant, found in rows if found == "pass"]
    lines = [
        f"| {mutant.name} | `{mutant.file}` | `{mutant.tests}` "
        f"| {'survived' if mutant.survived_before else WORDS[found]} | {WORDS[found]} |"
        for mutant, found in rows
    ]
    explained = [f"- **{mutant.name}**: {mutant.why or 'NOT EXPLAINED'}" for mutant in alive]
    return "\n".join(
        [
            "# Seeded faults",
            "",
            "Written by `python -m experiments.mutants`: each line is one change of the source, and the",
            f"tests that are about it. Of {len(rows)} faults {len(tried)} were tried; {before} of those",
            f"survived at first, and {len(alive)} survive now. The first {len(AUDITED)} are an audit's, of",
            "which no test knew.",
            "",
            *([*explained, ""] if alive else []),
            "| fault | file | tests | at first | now |",
            "|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


def main() -> None:
    """Run every mutant, or those named, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="words that a mutant's name holds; without any, all")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--finished", type=Path, help="file of finished trials, to go on where a run was")
    parser.add_argument("--as-it-stands", action="store_true", help="run nothing, write what is finished")
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.names or any(word in m.name for word in given.names)]
    check_places(chosen)
    rows, finished = [], Finished(given.finished)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for package in (SOURCE, ROOT / REPRODUCTION):
            shutil.copytree(package, tree / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        if not given.as_it_stands:
            check_unchanged(chosen, tree, finished)
        for mutant in chosen:
            place = key((mutant.old, mutant.new), mutant.tests, [file_of(mutant)])
            if given.as_it_stands:
                found = finished.done.get(place, {"outcome": ""})["outcome"]
            else:
                found = finished.measured(place, partial(trial, mutant, tree))["outcome"]
            rows.append((mutant, found))
            print(f"{WORDS[found]:12} {mutant.name}", flush=True)
    if given.output:
        write_files(given.output, page(rows))
    print(f"{sum(found == 'pass' for _, found in rows)} of {len(rows)} survive")


if __name__ == "__main__":
    main()
