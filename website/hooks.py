"""mkdocs hooks: generated pages for the API, the commands, the notebooks and project files, and formulas.

The pages of the API list every public name for mkdocstrings. The page of commands comes from the program.
Formulas become MathML, which browsers display without a script or the network.
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
        *("agreement", "labels.coefficients.Agreement", "labels.coefficients.Coefficient", "simulate"),
    ],
    "Models of a population": [
        "Pool",
        "HPGM",
        "LatentPositions",
        "PGM",
        "FMM",
        "EmpiricalDistribution",
        "MajorityVote",
    ],
    "Models of one true class": [
        *("DawidSkene", "LogLinear", "IBCC", "EBCC", "CBCC"),
        *("models.confusion.gold_prior", "evaluate.gold.gold_accuracy", "evaluate.truth.choose_truth"),
    ],
    "Models of other answers": ["GradedResponse", "NumericRatings", "LabelSets", "BradleyTerry"],
    "Models with features": [
        *("DirichletRegression", "LDLNM", "text.embed", "text.embed_items", "text.with_features"),
        "text.read_features",
    ],
    "Whole jobs": [
        *("fit", "workflow.refine.Refinement", "compare", "evaluate.compare.Comparison", "select"),
        *(
            "evaluate.select.Selection",
            "recover",
            "evaluate.recovery.Recovery",
            "score",
            "write_report",
            "resources",
            "load",
        ),
    ],
    "Annotators and judges": [
        *("annotator_verdicts", "annotators.verdicts.AnnotatorVerdicts", "annotator_attributes"),
        *("evaluate.attributes.AttributeEffects", "judge_report"),
        *("judges.report.JudgeReport", "plan_labels", "annotators.plan.LabelPlan", "label_queue"),
        "annotators.plan.LabelQueue",
    ],
    "Other packages": [
        *("training.torch_dataset", "training.soft_loss", "training.sample_weight_rows"),
        *("mlflow.log_run", "mlflow.read_traces"),
    ],
    "Classifiers": ["GuidedClassifier", *("text.SoftmaxRegression", "text.FineTunedEncoder")],
}
OTHERS = "Whole jobs"  # lists the names that are in no other group
MODULES = {"Datasets": "dissensus.datasets", "Metrics": "dissensus.metrics", "Errors": "dissensus.errors"}
BASES = (
    "dissensus.models.base.Model",
    "dissensus.models.confusion.ConfusionModel",
    "dissensus.models.sampled.SampledModel",
)
EVERY_MODEL = """# What every model has

Every model derives from the first of these classes. Truth models also derive from the second, and Pool,
HPGM and LatentPositions from the third. The pages of the models show only the additional members.
"""


def public_names() -> list[str]:
    """Return the public names of classes and functions."""
    package = importlib.import_module("dissensus")
    names = [name for name in package.__all__ if not name.startswith("_")]
    return [name for name in names if not inspect.ismodule(getattr(package, name))]


def api_pages() -> dict[str, str]:
    """Return the Markdown of each page of the API by its address."""
    listed = {name for names in GROUPS.values() for name in names} | {"DissensusError", "DissensusWarning"}
    unlisted = [name for name in public_names() if name not in listed]
    pages = {}
    for title, names in GROUPS.items():
        parts = [f"# {title}\n"]
        for name in [*names, *(unlisted if title == OTHERS else [])]:
            thing = pkgutil.resolve_name(f"dissensus.{name}")
            parts.append(_entry(f"{thing.__module__}.{thing.__qualname__}"))
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
    """Return a page with the arguments, options and examples of every command."""
    import typer

    from dissensus.cli import application

    commands = vars(typer.main.get_command(application()))["commands"]
    head = "# All commands and options\n\nSee [the command line](../cli.md) for explanations.\n"
    return "\n".join([head, *(_command(name, command) for name, command in commands.items())])


def _command(name: str, command: Any) -> str:
    lines = [f"## dissensus {name}\n", " ".join((command.help or "").split()), ""]
    lines += ["| | meaning | default |", "|---|---|---|"]
    lines += [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith("dissensus ")]
    return "\n".join([*lines, "", "```text", *(line.replace(r"\[", "[") for line in examples), "```", ""])


def _parameter(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.param_type_name == "argument":
        names = f"`{option.metavar or option.name.upper()}`"
    no_default = option.default in (None, False, (), []) or callable(option.default)
    default = "" if no_default else f"`{option.default}`"
    help_text = " ".join((option.help or "").split()).replace("|", "\\|")
    return f"| {names} | {help_text} | {default} |"


# ---- project files and notebooks -------------------------------------------------------------------------


def project_pages() -> dict[str, str]:
    """Return CHANGELOG.md and CONTRIBUTING.md as pages, with links to the pages of the site."""
    pages = {}
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        pages[f"{name.lower()}.md"] = re.sub(r"\]\(docs/", "](", text)
    return pages


def notebook_pages() -> dict[str, str]:
    """Return the notebooks as pages, with their texts, code and outputs."""
    import nbformat

    pages = {}
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        outputs = iter(printed(notebook))
        parts = [_cell(cell, outputs) for cell in notebook.cells]
        link = f"\n\n[This page as a notebook]({path.name})\n"
        pages[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + link
    return pages


def _cell(cell: Any, outputs: Iterator[str]) -> str:
    if cell.cell_type == "markdown":
        return str(cell.source)
    output = next(outputs)
    return f"```python\n{cell.source}\n```" + (f"\n\n```text\n{output}\n```" if output else "")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    generated = api_pages() | project_pages() | notebook_pages() | {"reference/commands.md": commands_page()}
    for address, content in generated.items():
        files.append(File.generated(config, address, content=content))
    return files


# ---- formulas and references --------------------------------------------------------------------------

_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.M | re.S)
_DISPLAYED, _INLINE = re.compile(r"\$\$(.+?)\$\$", re.S), re.compile(r"\$([^$\n]+(?:\n[^$\n]+)?)\$")
_TAG = re.compile(r"\\tag\{([^}]*)\}")
_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|ref):<code>~?([^<]+)</code>")
# Replacements for LaTeX commands that latex2mathml does not support.
_REPLACEMENTS = {r"\\arg\b": r"\\mathrm{arg}", r"(\\[Bb]ig[lr])?\\[lr]([vV])ert\b": r"\\\2ert "}
_OUTSIDE = re.compile(r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Convert formulas to MathML, and links to project files to links to their pages."""
    del config, files
    markdown = _OUTSIDE.sub(lambda match: f"]({match[1].lower()}.md", markdown)
    if page.file.src_uri.startswith("reference/"):
        return markdown
    parts = _CODE.split(markdown)
    return "".join(part if index % 2 else _with_formulas(part) for index, part in enumerate(parts))


def _with_formulas(text: str) -> str:
    text = _DISPLAYED.sub(lambda match: _displayed(match[1]), text)
    return _INLINE.sub(lambda match: mathml(match[1], "inline"), text)


def _displayed(formula: str) -> str:
    tag = _TAG.search(formula)
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    return f'<span class="formula">{mathml(_TAG.sub("", formula), "block")}{number}</span>'


def mathml(formula: str, display: str) -> str:
    """Convert a LaTeX formula to MathML on one line."""
    from latex2mathml.converter import convert

    latex = " ".join(formula.split())
    for pattern, replacement in _REPLACEMENTS.items():
        latex = re.sub(pattern, replacement, latex)
    converted = str(convert(latex, display=display))
    unknown = re.search(r">\\([A-Za-z]+)", converted)
    if unknown:
        raise ValueError(f"latex2mathml does not support {unknown[1]} in {formula!r}; rewrite the formula")
    return f"<span>{converted}</span>"  # a line that begins with <math> would become a paragraph


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Replace roles in docstrings (``:class:`~dissensus.HPGM```) by the name alone."""
    del page, config, files
    return _ROLE.sub(lambda match: f"<code>{match[1].removeprefix('dissensus.')}</code>", html)
