"""What the site has beside the pages of docs/: the API, the commands, the project's own files, and formulas.

mkdocs calls these functions while it builds. Pages of the API list every public name; what stands there is
read from the docstrings by mkdocstrings. The page of commands is read from the program. Formulas become
MathML, which browsers draw by themselves, so that no page needs a script or the network.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # mkdocs loads this file by its path

from website.notebooks import printed  # noqa: E402

# ---- the API ------------------------------------------------------------------------------------------

GROUPS = {
    "Labels in and out": [
        *("read_annotations", "Annotations", "describe", "write_labels", "write_store"),
        *("simulate", "metrics.krippendorff_alpha", "metrics.fleiss_kappa"),
    ],
    "Models of a population": [
        "HPGM",
        "LatentPositions",
        "PGM",
        "FMM",
        "EmpiricalDistribution",
        "MajorityVote",
    ],
    "Models of one true class": [
        *("DawidSkene", "OneCoin", "LogLinear", "IBCC", "EBCC", "CBCC", "MACE"),
        *("models.confusion.gold_prior", "evaluate.gold.gold_accuracy", "evaluate.compare.choose_truth"),
    ],
    "Models of other answers": [
        "GradedResponse",
        "OrdinalHPGM",
        "NumericRatings",
        "LabelSets",
        "BradleyTerry",
    ],
    "Models with features": [
        *("DirichletRegression", "LDLNM", "text.embed", "text.embed_items", "text.with_features"),
        "text.read_features",
    ],
    "Whole jobs": [
        *("fit", "workflow.refine.Refinement", "compare", "select", "evaluate.select.Selection", "recover"),
        *("evaluate.recovery.Recovery", "score", "write_report", "resources", "load"),
    ],
    "Annotators and judges": [
        *("annotator_verdicts", "annotators.verdicts.AnnotatorVerdicts", "judge_report"),
        *("judges.report.JudgeReport", "plan_labels", "annotators.plan.LabelPlan", "label_queue"),
        *("annotators.findings.LabelQueue", "annotators.skill.annotator_skills"),
        "annotators.skill.AnnotatorSkills",
    ],
    "Other packages": [
        *("training.torch_dataset", "training.soft_loss", "training.sample_weight_rows"),
        *("mlflow.log_run", "mlflow.read_traces"),
    ],
    "Classifiers": ["GuidedClassifier", *("text.SoftmaxRegression", "text.FineTunedEncoder")],
}
OTHERS = "Whole jobs"  # has what is in no list
MODULES = {"Data sets": "dissensus.datasets", "Metrics": "dissensus.metrics", "Errors": "dissensus.errors"}
BASES = (
    "dissensus.models.base.Model",
    "dissensus.models.confusion.ConfusionModel",
    "dissensus.models.sampled.SampledMixin",
)
EVERY_MODEL = """# What every model has

Every model derives from the first of these classes. Models of one true class also derive from the second,
HPGM and LatentPositions from the third. The pages of the models show only what is special to each.
"""


def public_names() -> list[str]:
    """Every public name that is a class or a function."""
    package = importlib.import_module("dissensus")
    names = [name for name in package.__all__ if not name.startswith("_")]
    return [name for name in names if not inspect.ismodule(getattr(package, name))]


def api_pages() -> dict[str, str]:
    """By address, the Markdown of each page of the API."""
    listed = {name for names in GROUPS.values() for name in names} | {"DissensusError", "DissensusWarning"}
    left = [name for name in public_names() if name not in listed]
    pages = {}
    for title, names in GROUPS.items():
        parts = [f"# {title}\n"]
        for name in [*names, *(left if title == OTHERS else [])]:
            thing = pkgutil.resolve_name(f"dissensus.{name}")
            parts.append(
                f"::: {thing.__module__}.{thing.__qualname__}\n    options:\n      heading_level: 2\n"
            )
        pages[_address(title)] = "\n".join(parts)
    pages[_address("What every model has")] = "\n".join([EVERY_MODEL, *map(_entry, BASES)])
    for title, module in MODULES.items():
        pages[_address(title)] = f"# {title}\n\n{_entry(module)}      show_root_heading: false\n"
    return pages


def _entry(path: str) -> str:
    return f"::: {path}\n    options:\n      heading_level: 2\n"


def _address(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"


# ---- the commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments, options and examples, as the program knows them."""
    import typer

    from dissensus.cli import application

    found = vars(typer.main.get_command(application()))["commands"]
    head = "# All commands and options\n\nMade from the program. [The command line](../cli.md) explains it.\n"
    return "\n".join([head, *(_command(name, command) for name, command in found.items())])


def _command(name: str, command: Any) -> str:
    lines = [f"## dissensus {name}\n", " ".join((command.help or "").split()), ""]
    lines += ["| | what it does | default |", "|---|---|---|"]
    lines += [_parameter(one) for one in command.params if one.name != "help"]
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith("dissensus ")]
    return "\n".join([*lines, "", "```text", *(line.replace(r"\[", "[") for line in examples), "```", ""])


def _parameter(one: Any) -> str:
    words = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    if one.param_type_name == "argument":
        words = f"`{one.metavar or one.name.upper()}`"
    default = "" if one.default in (None, False, (), []) or callable(one.default) else f"`{one.default}`"
    help_text = " ".join((one.help or "").split()).replace("|", "\\|")
    return f"| {words} | {help_text} | {default} |"


# ---- the project's own files --------------------------------------------------------------------------


def project_pages() -> dict[str, str]:
    """CHANGELOG.md and CONTRIBUTING.md as pages; their links into docs/ lead to the pages of the site."""
    pages = {}
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        pages[f"{name.lower()}.md"] = re.sub(r"\]\(docs/", "](", text)
    return pages


def notebook_pages() -> dict[str, str]:
    """The notebooks as pages: their texts, their code and what it printed."""
    import nbformat

    pages = {}
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        outputs = iter(printed(notebook))
        parts = [_cell(cell, outputs) for cell in notebook.cells]
        where = f"\n\n[This page as a notebook]({path.name})\n"
        pages[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + where
    return pages


def _cell(cell: Any, outputs: Iterator[str]) -> str:
    if cell.cell_type == "markdown":
        return str(cell.source)
    told = next(outputs)
    return f"```python\n{cell.source}\n```" + (f"\n\n```text\n{told}\n```" if told else "")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made rather than written."""
    made = api_pages() | project_pages() | notebook_pages() | {"reference/commands.md": commands_page()}
    for address, content in made.items():
        files.append(File.generated(config, address, content=content))
    return files


# ---- formulas and references --------------------------------------------------------------------------

_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.M | re.S)
_DISPLAYED, _INLINE = re.compile(r"\$\$(.+?)\$\$", re.S), re.compile(r"\$([^$\n]+(?:\n[^$\n]+)?)\$")
_TAG = re.compile(r"\\tag\{([^}]*)\}")
_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|ref):<code>~?([^<]+)</code>")
# What latex2mathml does not know, in words that it knows.
_OTHER_WORDS = {r"\\arg\b": r"\\mathrm{arg}", r"(\\[Bb]ig[lr])?\\[lr]([vV])ert\b": r"\\\2ert "}
_OUTSIDE = re.compile(r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Formulas as MathML; links to the project's files as links to their pages."""
    del config, files
    markdown = _OUTSIDE.sub(lambda found: f"]({found[1].lower()}.md", markdown)
    if page.file.src_uri.startswith("reference/"):
        return markdown
    parts = _CODE.split(markdown)
    return "".join(part if place % 2 else _with_formulas(part) for place, part in enumerate(parts))


def _with_formulas(text: str) -> str:
    text = _DISPLAYED.sub(lambda found: _displayed(found[1]), text)
    return _INLINE.sub(lambda found: mathml(found[1], "inline"), text)


def _displayed(formula: str) -> str:
    tag = _TAG.search(formula)
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    return f'<span class="formula">{mathml(_TAG.sub("", formula), "block")}{number}</span>'


def mathml(formula: str, display: str) -> str:
    """A formula in LaTeX as MathML on one line."""
    from latex2mathml.converter import convert

    known = " ".join(formula.split())
    for pattern, plain in _OTHER_WORDS.items():
        known = re.sub(pattern, plain, known)
    made = str(convert(known, display=display))
    unknown = re.search(r">\\([A-Za-z]+)", made)
    if unknown:
        raise ValueError(f"latex2mathml does not know {unknown[1]} in {formula!r}; write it another way")
    return f"<span>{made}</span>"  # a line that begins with <math> would be a paragraph of its own


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Roles of docstrings (``:class:`~dissensus.HPGM```) as the name alone."""
    del page, config, files
    return _ROLE.sub(lambda found: f"<code>{found[1].removeprefix('dissensus.')}</code>", html)
