"""Write docs/findings.md: what the benchmark says about the claims of the paper, and what is new.

    python benchmarks/findings.py           # prints the page
    python benchmarks/findings.py --write   # writes docs/findings.md and its picture

Every number of the page comes from the scores that ship with the package. A claim is a list of
contrasts "a before b by a metric"; its verdict follows from them by the rule that the page states.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from cel.benchmark.plan import make_plan
from cel.benchmark.ranking import WinTable, dataset_means
from cel.benchmark.shipped import shipped_cells, shipped_table
from cel.benchmark.spec import load_suite
from cel.cf_methods.variants import VARIANTS, named
from cel.datasets import load_card
from cel.metrics import METRICS
from cel.metrics.significance import (
    holm,
    least_p,
    rank_methods,
    units_needed,
    wilcoxon_exact,
)
from cel.protocols import Task
from cel.report.source import versions_remark

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "findings.md"
PICTURE = ROOT / "docs" / "images" / "findings-tradeoff.svg"
LOCAL = ("wachter", "artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex", "sace")
SHARE = 0.05  # of error, for all contrasts of a suite together
TITLES = {
    "success": "answers more rows",
    "l2_hamming": "nearer",
    "sparsity": "changes fewer features",
    "density_percentile": "denser",
    "lof": "lower outlier factor",
}
LOWER = {"time": "cpu_ms_per_row"}


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper as contrasts.

    Attributes:
        text: what is claimed.
        ahead: methods that are said to be better.
        behind: than these.
        metric: of the rows, or `time`.
        answered: whether only rows that both answered are compared.
    """

    text: str
    ahead: tuple[str, ...]
    behind: tuple[str, ...]
    metric: str
    answered: bool = False

    def contrasts(self) -> Iterator[tuple[str, str]]:
        """Pairs (a, b), a being the one said to be better."""
        return ((a, b) for a in self.ahead for b in self.behind if a != b and b not in self.ahead)


CLAIMS = (
    Claim("PPCEF and C-CHVAE have near-perfect validity, above the others",
          ("ppcef", "cchvae"), LOCAL, "success"),
    Claim("CADEX has the closest counterfactuals", ("cadex",), LOCAL, "l2_hamming"),
    Claim("Wachter and CADEX are closer than the methods that look at the data",
          ("wachter", "cadex"), ("ppcef", "cchvae", "artelt", "sace"), "l2_hamming"),
    Claim("SACE is farther than all others",
          tuple(m for m in LOCAL if m != "sace"), ("sace",), "l2_hamming"),
    Claim("DiCE is the sparsest", ("dice",), LOCAL, "sparsity"),
    Claim("CEGP is among the sparsest: before all but DiCE",
          ("cegp",), tuple(m for m in LOCAL if m != "dice"), "sparsity"),
    Claim("PPCEF and C-CHVAE are the most plausible by density",
          ("ppcef", "cchvae"), LOCAL, "density_percentile"),
    Claim("SACE adheres best to the data (outlier factor)", ("sace",), LOCAL, "lof"),
    Claim("Wachter and CADEX fall into regions of low density",
          ("ppcef", "cchvae", "artelt", "sace"), ("wachter", "cadex"), "density_percentile"),
    Claim("C-CHVAE is the fastest", ("cchvae",), LOCAL, "time"),
    Claim("CEGP is the slowest", tuple(m for m in LOCAL if m != "cegp"), ("cegp",), "time"),
    Claim("Regression: Wachter is closer than CEARM", ("wachter",), ("cearm",), "l2_hamming"),
    Claim("Regression: Wachter is more plausible than CEARM",
          ("wachter",), ("cearm",), "density_percentile"),
    Claim("Regression: Wachter is faster than CEARM", ("wachter",), ("cearm",), "time"),
    Claim("AReS fails where GLOBE-CE and GLANCE with one group answer",
          ("globe_ce", "glance_global"), ("ares",), "success"),
    Claim("GLOBE-CE is the closest global method",
          ("globe_ce",), ("ares", "glance_global"), "l2_hamming"),
    Claim("GLANCE with one group is the farthest global method",
          ("globe_ce", "ares"), ("glance_global",), "l2_hamming"),
    Claim("GLANCE answers more rows than T-CREx", ("glance",), ("tcrex",), "success"),
    Claim("T-CREx is closer than GLANCE", ("tcrex",), ("glance",), "l2_hamming"),
    Claim("T-CREx is more plausible than GLANCE", ("tcrex",), ("glance",), "density_percentile"),
    Claim("T-CREx is closer than GLANCE, on rows that both answer",
          ("tcrex",), ("glance",), "l2_hamming", answered=True),
    Claim("T-CREx is more plausible than GLANCE, on rows that both answer",
          ("tcrex",), ("glance",), "density_percentile", answered=True),
    Claim("AReS is closer than GLOBE-CE and GLANCE, on rows that both answer",
          ("ares",), ("globe_ce", "glance_global"), "l2_hamming", answered=True),
)  # fmt: skip
CARDS = {d: load_card(d) for d in load_suite("standard").datasets}
REGRESSION = tuple(d for d, card in CARDS.items() if card.task is Task.REGRESSION)
DRAWN = tuple(d for d, card in CARDS.items() if card.licence == "generated")
OURS = tuple(
    (v.method, name) for name, v in VARIANTS.items() if not v.published and v.method in VARIANTS
)


class Suite:
    """The shipped tables of one suite."""

    def __init__(self, name: str) -> None:
        self.scores, self.pairs = shipped_table(name), shipped_table(name, "pairs")
        self.rows, self.name, self.states = shipped_table(name, "rows"), name, shipped_cells(name)
        self.wins = self._wins()

    def _wins(self) -> dict[tuple[str, str, str], pd.Series]:
        """{(metric, a, b): share of rows that a wins, by dataset}."""
        means = self.pairs.groupby(["metric", "a", "b", "dataset", "model"])["win"].mean()
        lines = means.groupby(["metric", "a", "b", "dataset"]).mean().reset_index()
        return {
            key: part.set_index("dataset")["win"].astype(float)
            for key, part in lines.groupby(["metric", "a", "b"])
        }

    def where_both(self, a: str, b: str) -> Suite:
        """The tables of two lines, on the datasets of classification and models that have both."""
        scores = self.scores[self.scores["method"].isin((a, b))]
        scores = scores[~scores["dataset"].isin(REGRESSION)]
        count = scores.groupby(["dataset", "model"])["method"].transform("nunique")
        part = copy(self)
        part.scores = scores[count == 2]
        places = part.scores[["dataset", "model"]].drop_duplicates()
        pairs = self.pairs[self.pairs["a"].isin((a, b)) & self.pairs["b"].isin((a, b))]
        part.pairs = pairs.merge(places, on=["dataset", "model"])
        part.wins = part._wins()
        return part

    def asked_alike(self) -> pd.DataFrame:
        """Scores of the lines with (nearly) all problems of classification, for fair means."""
        scores = self.scores[~self.scores["dataset"].isin(REGRESSION)]
        problems = scores[scores["metric"] == "rows"].groupby("method").size()
        return scores[scores["method"].isin(problems.index[problems >= 0.9 * problems.max()])]

    def only(self, datasets: list[str]) -> Suite:
        """The same tables of some datasets."""
        part = copy(self)
        part.scores, part.pairs, part.rows = (
            t[t["dataset"].isin(datasets)] for t in (self.scores, self.pairs, self.rows)
        )
        return part

    def with_all_lines(self) -> list[str]:
        """Datasets of classification on which nine of ten of all local lines have scores."""
        told = local_lines(self, list(dict.fromkeys(self.scores["method"])))
        lines = self.scores[self.scores["method"].isin(told)]
        count = lines[~lines["dataset"].isin(REGRESSION)].groupby("dataset")["method"].nunique()
        return [str(d) for d in count.index[count >= 0.9 * len(told)]]

    def gaps(self, claim: Claim, a: str, b: str) -> pd.Series:
        """By dataset, how far a is ahead of b: share of rows won less a half, or log of time."""
        if claim.metric == "time":
            means = dataset_means(self.scores, LOWER["time"])
            if not {a, b} <= set(means):
                return pd.Series(dtype=float)
            gap = np.log(means[b] / means[a]).dropna()
        elif claim.answered:
            gap = self._both(claim.metric, a, b)
        else:
            gap = self.share(claim.metric, a, b) - 0.5
        regression = claim.text.startswith("Regression")
        return gap[[(d in REGRESSION) == regression for d in gap.index]]

    def share(self, metric: str, a: str, b: str) -> pd.Series:
        """By dataset, the share of rows that a wins, an unanswered row being lost."""
        for one, other in ((a, b), (b, a)):
            wins = self.wins.get((metric, one, other))
            if wins is not None:
                return wins if one == a else 1 - wins
        return pd.Series(dtype=float)

    def _both(self, metric: str, a: str, b: str) -> pd.Series:
        """By dataset, the share of rows that a wins among those that both answered, less a half.

        From the shipped values of the first rows of every fold.
        """
        keys = ["dataset", "model", "fold", "row"]
        found = self.rows[self.rows["found"]]
        sides = [found[found["method"] == m].set_index(keys)[metric] for m in (a, b)]
        both = pd.concat(sides, axis=1, keys=["a", "b"], join="inner").dropna()
        ahead = np.sign(both["b"] - both["a"]) * (
            1 if METRICS.get(metric).better == "lower" else -1
        )
        means = (ahead / 2).groupby(["dataset", "model", "fold"]).mean()
        return means.groupby(["dataset", "model"]).mean().groupby("dataset").mean()


@lru_cache
def tested(suite: Suite) -> pd.DataFrame:
    """All contrasts of all claims with exact p-values, Holm within each claim."""
    lines = []
    for number, claim in enumerate(CLAIMS):
        for a, b in claim.contrasts():
            gap = suite.gaps(claim, a, b)
            p = float(wilcoxon_exact(gap.to_numpy(float)[:, None])[0]) if len(gap) else 1.0
            lines.append((number, a, b, len(gap), int((gap > 0).sum()), gap.mean(), p))
    names = ["claim", "a", "b", "units", "ahead", "gap", "p"]
    table = pd.DataFrame(lines, columns=names)
    adjusted = table.groupby("claim")["p"].transform(lambda p: holm(p.to_numpy(float)))
    return table.assign(holm=adjusted)


def verdict(part: pd.DataFrame) -> str:
    """Holds, fails, or open, by the rule of the page."""
    sure = part["holm"] < SHARE
    if part.empty or (part["units"] == 0).all():
        return "no common cells"
    if (sure & (part["gap"] < 0)).any():
        against = part[sure & (part["gap"] < 0)].sort_values("gap")
        ahead = [f"{b} before {a}" for a, b in zip(against["a"], against["b"], strict=True)]
        more = f" and {len(ahead) - 3} more" if len(ahead) > 3 else ""
        return "**fails**: " + ", ".join(ahead[:3]) + more
    if (sure & (part["gap"] > 0)).all():
        return "**holds**"
    right = int((part["gap"] > 0).sum())
    return f"open: {right} of {len(part)} contrasts as claimed, {int(sure.sum())} beyond chance"


def line(*values: object) -> str:
    return "| " + " | ".join(str(v) for v in values) + " |"


def heads(*names: str) -> list[str]:
    return [line(*names), line(*["---"] * len(names))]


def wrapped(text: str) -> str:
    """Paragraphs at the width of the page."""
    fill = textwrap.TextWrapper(width=99, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(fill.fill(part) for part in text.split("\n\n"))


def shipped_part(suite: Suite) -> str:
    """What is shipped of a suite, how many rows were explained, and why other cells are not."""
    cells, sets = suite.states, sorted(set(suite.scores["dataset"]))
    done = cells["state"] == "done"
    why, blank = cells[~done & (cells["reason"] != "")], cells[~done & (cells["reason"] == "")]
    whole = load_suite(suite.name)
    told = [
        f"Suite `{suite.name}`: {int(done.sum()):,} of {len(cells):,} cells have scores,",
        f"{suite.scores['method'].nunique()} lines on {len(sets)} of {len(whole.datasets)}",
        f"datasets, {suite.scores['fold'].nunique()} folds.",
        rows_text(suite, whole.max_rows),
        f"{len(why)} cells are blank with a reason{_after(reasons_text(why))}.",
        f"{len(blank)} are blank without one{_after(blanks_text(blank))}.",
        *versions_remark(shipped_table(suite.name, "origins"), make_plan(load_suite(suite.name))),
    ]
    return wrapped(" ".join(told))


def _after(text: str) -> str:
    return f": {text}" if text else ""


def rows_text(suite: Suite, most: int | None) -> str:
    """How many rows of a fold are explained, by dataset."""
    rows = suite.scores[suite.scores["metric"] == "rows"].groupby("dataset")["value"]
    low, high = rows.min(), rows.max()
    if most is None:
        return (
            f"All test rows that are to change are explained: {low.min():.0f} to {high.max():.0f}."
        )
    capped = sorted(high.index[high >= most])
    text = f"Up to {most} rows of a fold are explained ({len(capped)} datasets reach that"
    fewer = [f"{d} {low[d]:.0f} to {high[d]:.0f}" for d in sorted(high.index[high < most])]
    text += f"; {', '.join(fewer)})." if fewer else ")."
    over = sorted(high.index[high > most])
    return text + (f" Older scores of more rows: {', '.join(over)}." if over else "")


def reasons_text(why: pd.DataFrame) -> str:
    """Reasons with the lines that gave them."""
    parts = []
    for reason, part in why.groupby("reason"):
        lines = ", ".join(f"`{m}`" for m in sorted(set(part["method"])))
        parts.append(f"{lines} ({len(part)}): {str(reason).split('. ')[0]}")
    return "; ".join(parts)


def blanks_text(blank: pd.DataFrame) -> str:
    """How many lines of which datasets are blank."""
    sets = blank.groupby("dataset")["method"].nunique()
    return (
        "lines by dataset " + ", ".join(f"{d} {n}" for d, n in sets.items()) if len(sets) else ""
    )


def check_part(suite: Suite) -> list[str]:
    """One contrast and one ranking with their numbers, to be computed by other libraries."""
    claim = next(c for c in CLAIMS if c.metric == "l2_hamming" and not c.answered)
    a, b = next(claim.contrasts())
    gap = suite.gaps(claim, a, b)
    shares = (0.5 + gap).round(6)
    p = float(wilcoxon_exact((shares - 0.5).to_numpy(float)[:, None])[0])
    ranks = ranks_table(suite, claim.metric, list(LOCAL)).round(6)
    found = rank_methods(ranks, lower_is_better=True)
    place = wrapped(f"The share of rows that `{a}` wins from `{b}` by {claim.metric} in suite "
                    f"`{suite.name}`, on {', '.join(shares.index)}:")  # fmt: skip
    values = textwrap.fill(" ".join(map(str, shares)), 90)
    out = [CHECK.format(place=place, p=p, shares=values)]
    body = zip(ranks.index, ranks.to_numpy(), strict=True)
    out += [*heads("dataset", *ranks.columns)]
    out += [line(d, *(f"{v:.6g}" for v in row)) for d, row in body]
    told = ", ".join(f"{m} {v:.3f}" for m, v in found.ranks.items())
    return [*out, "", wrapped(CHECKED.format(p=found.p_value, cd=found.difference, ranks=told))]


def limits_part(suites: dict[str, Suite]) -> str:
    """What so few tables cannot show."""
    sets = sorted(set().union(*(s.scores["dataset"] for s in suites.values())))
    drawn = [d for d in sets if d in DRAWN]
    few = [d for d in sets if d in REGRESSION]
    reach = least_p(len(few), 1)
    can = (
        "nothing about it can be shown at this level" if reach >= SHARE else "little can be shown"
    )
    told = LIMITS.format(n=len(sets), drawn=", ".join(drawn), few=len(few), reach=reach, can=can)
    return f"## What these datasets cannot show\n\n{wrapped(told)}"


def claims_part(suites: dict[str, Suite]) -> list[str]:
    """The table of claims."""
    found = {name: tested(suite) for name, suite in suites.items()}
    out = heads("claim of the paper", *(f"suite `{n}`" for n in suites))
    for number, claim in enumerate(CLAIMS):
        told = [verdict(t[t["claim"] == number]) for t in found.values()]
        out.append(line(claim.text, *told))
    largest = max(int(t["claim"].value_counts().max()) for t in found.values())
    most = {n: int(t["units"].max()) for n, t in found.items()}
    beyond = ", ".join(
        f"{int((t['holm'] < SHARE).sum())} of {len(t)} in `{n}`" for n, t in found.items()
    )
    told = (f"Contrasts beyond chance: {beyond}. A claim of {largest} contrasts needs "
            f"{units_needed(largest)} datasets before one of them can be; classification has "
            + ", ".join(f"{v} in `{n}`" for n, v in most.items())
            + f". With {len(CLAIMS)} claims, one verdict beyond chance may be "
            "chance.")  # fmt: skip
    names = {m for c in CLAIMS for pair in c.contrasts() for m in pair}
    for name, suite in suites.items():
        lost = suite.states[suite.states["method"].isin(names) & (suite.states["reason"] != "")]
        if len(lost):
            told += (
                f" Cells of `{name}` that a method refuses count as lost: {reasons_text(lost)}."
            )
    return [*out, "", wrapped(told)]


def contrasts_part(suites: dict[str, Suite]) -> list[str]:
    """Every contrast of every claim."""
    out = []
    for name, suite in suites.items():
        out += [f"Suite `{name}`:", "", *heads("a", "b", "by", "datasets", "a ahead in",
                "share of rows won, or factor of time", "p", "p after Holm")]  # fmt: skip
        for row in tested(suite).itertuples():
            metric = CLAIMS[row.claim].metric
            by = metric + (", both answered" if CLAIMS[row.claim].answered else "")
            told = (
                ""
                if not row.units
                else (f"{np.exp(row.gap):.2f}x" if metric == "time" else f"{0.5 + row.gap:.2f}")
            )
            out.append(line(row.a, row.b, by, row.units, row.ahead, told, f"{row.p:.2g}",
                            f"{row.holm:.2g}"))  # fmt: skip
        out.append("")
    return out


def ranks_table(suite: Suite, metric: str, methods: list[str]) -> pd.DataFrame:
    """Mean rank within the rows, datasets of classification x methods."""
    lines = suite.pairs[suite.pairs["metric"] == metric]
    return WinTable(lines[~lines["dataset"].isin(REGRESSION)], methods).ranks()


def ranks_of(suite: Suite, metric: str, methods: list[str]) -> pd.Series:
    """Mean rank within the rows over the datasets of classification."""
    return ranks_table(suite, metric, methods).mean()


def board_part(suite: Suite) -> list[str]:
    """Ranks of all local lines by five criteria."""
    told = list(dict.fromkeys(suite.scores["method"]))
    kinds = local_lines(suite, told)
    metrics = ("success", "l2_hamming", "sparsity", "density_percentile", "lof")
    table = pd.DataFrame({m: ranks_of(suite, m, kinds) for m in metrics}).dropna()
    cost = dataset_means(suite.scores, "cpu_ms_per_row").median()
    out = heads("line", *(TITLES[m] for m in metrics), "CPU ms per row (median dataset)")
    for name, row in table.sort_values("l2_hamming").iterrows():
        best = [f"**{v:.1f}**" if v == table[m].min() else f"{v:.1f}" for m, v in row.items()]
        told_cost = f"{cost[name]:.2g}" if cost[name] < 100 else f"{cost[name]:.0f}"
        out.append(line(f"`{name}`", *best, told_cost))
    winners = {m: table[m].idxmin() for m in metrics}
    n = len(set(winners.values()))
    sets = ranks_table(suite, metrics[1], kinds).index
    told = (f"{len(metrics)} criteria have {n} different winners, over {len(sets)} datasets "
            f"({', '.join(sets)}).")  # fmt: skip
    lost = suite.states[suite.states["method"].isin(table.index) & (suite.states["reason"] != "")]
    lost = lost[lost["dataset"].isin(sets)]
    if len(lost):
        told += f" Rows of problems that a line refuses count as lost: {reasons_text(lost)}."
    out += ["", wrapped(told)]
    return out


def every_line_part(suite: Suite) -> list[str]:
    """Ranks of all lines on the datasets that have them all; nothing if those are all datasets."""
    whole = suite.with_all_lines()
    if len(whole) == len(set(suite.scores["dataset"]) - set(REGRESSION)):
        return []
    return [EVERY_LINE.format(sets=", ".join(whole)), "", *board_part(suite.only(whole))]


def local_lines(suite: Suite, told: list[str]) -> list[str]:
    """Lines that answer rows one by one, on classification data."""
    rules = ("ares", "globe_ce", "glance", "tcrex", "group_ppcef")
    known = [m for m in told if not m.startswith(rules)]
    asked = suite.scores[~suite.scores["dataset"].isin(REGRESSION)]["method"].unique()
    return [m for m in known if m in asked and named(m)]


def variants_part(suite: Suite) -> list[str]:
    """What each of our variants changes against the published algorithm."""
    out = heads("published", "ours", "datasets", "answers (published, ours)",
                "rows in which ours is nearer", "denser",
                "CPU time, ours / published")  # fmt: skip
    for a, b in OURS:
        part = suite.where_both(a, b)
        success, cost = (dataset_means(part.scores, m) for m in ("success", "cpu_ms_per_row"))
        if not {a, b} <= set(success):
            continue
        wins = []
        for metric in ("l2_hamming", "density_percentile"):
            share = part.share(metric, b, a)
            wins.append(f"{share.mean():.0%}" if len(share) else "")
        ratio = np.exp(np.log(cost[b] / cost[a]).mean())
        share = success.mean()
        answers = f"{share[a]:.2f}, {share[b]:.2f}"
        out.append(line(f"`{a}`", f"`{b}`", len(success), answers, *wins, f"{ratio:.2f}"))
    return out


def coach_part(suite: Suite) -> list[str]:
    """How much the density that a method may query flatters it."""
    scores = suite.asked_alike()
    coach, judges = (dataset_means(scores, m) for m in ("coach_percentile", "density_percentile"))
    gap = (coach - judges).mean().dropna().sort_values(ascending=False)
    spread = dataset_means(scores, "density_spread").mean()
    found = answered(scores)
    out = heads("line", "rows answered", "percentile by its own density", "by the judges",
                "difference")  # fmt: skip
    for name in [*gap.index[:6]]:
        out.append(line(f"`{name}`", f"{found[name]:.0%}", f"{coach[name].mean():.2f}",
                        f"{judges[name].mean():.2f}", f"{gap[name]:+.2f}"))  # fmt: skip
    out += ["", f"Over {len(gap)} lines the median difference is {gap.median():+.2f}; judges "
            f"differ by {spread.median():.2f} (standard deviation, median line)."]  # fmt: skip
    return out


def answered(scores: pd.DataFrame) -> pd.Series:
    """The share of rows that every line answered: what a mean over found rows covers."""
    return dataset_means(scores, "success").mean()


def redundancy_part(suite: Suite) -> list[str]:
    """Changes that could be taken back."""
    scores = suite.asked_alike()
    share = dataset_means(scores, "redundancy").mean().dropna().sort_values()
    found = answered(scores)
    low, high = share.index[:6], share.index[::-1][:6]

    def told(lines: pd.Index) -> str:
        return ", ".join(f"`{m}` {share[m]:.0%} (of {found[m]:.0%})" for m in lines)

    return [wrapped(f"Least: {told(low)}.\n\nMost: {told(high)}.")]


def draw(suite: Suite) -> None:
    """The trade-off of nearness and density as a picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "cel"
    lines = local_lines(suite, list(dict.fromkeys(suite.scores["method"])))
    near, dense = (ranks_of(suite, m, lines) for m in ("l2_hamming", "density_percentile"))
    table = pd.DataFrame({"near": near, "dense": dense}).dropna()
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    published = table.index.isin(LOCAL)
    for chosen, mark, colour, label in (
        (published, "o", "#0072b2", "published in the paper"),
        (~published, "^", "#d55e00", "variants and further methods"),
    ):
        part = table[chosen]
        axes.scatter(part["near"], part["dense"], marker=mark, color=colour, s=22, label=label)
    place(axes, table)
    axes.set_xlabel("mean rank by distance (left: nearer)")
    axes.set_ylabel("mean rank by density (down: denser)")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


def place(axes, table: pd.DataFrame) -> None:
    """Labels beside their points, pushed apart in height."""
    height = 0.028 * np.ptp(table["dense"])
    taken: list[tuple[float, float]] = []
    for name, row in table.sort_values("dense").iterrows():
        y = row["dense"]
        wide = 0.19 * np.ptp(table["near"])
        while any(abs(x - row["near"]) < wide and abs(y - v) < height for x, v in taken):
            y += height / 4
        taken.append((row["near"], y))
        axes.annotate(str(name), (row["near"], y), xytext=(4, -2), textcoords="offset points",
                      fontsize=6)  # fmt: skip


def page() -> str:
    """The whole page."""
    suites = {n: Suite(n) for n in ("paper", "standard")}
    standard = suites["standard"]
    told = "\n\n".join(shipped_part(s) for s in suites.values())
    text = HEAD.format(told=told, share=int(SHARE * 100))
    parts = [
        text, *claims_part(suites), "", BOARD, "", *board_part(standard), "", PICTURE_TEXT, "",
        *every_line_part(standard), "",
        VARIANT_TEXT, "", *variants_part(standard), "", COACH, "", *coach_part(standard), "",
        REDUNDANT, *redundancy_part(standard), "", limits_part(suites), "",
        *check_part(suites["paper"]), "", CONTRASTS, *contrasts_part(suites),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


HEAD = """# What the benchmark says

`python benchmarks/findings.py` prints this page from the shipped scores. Suite `paper` is the
printed protocol. Suite `standard` honours constraints, asks for desirable targets, and has
densities judged by models that no method may query. `cel report --shipped paper` and
`cel report --shipped standard` show every cell.

{told}

## The claims of the paper

A claim is a list of contrasts "a before b". Methods are compared row by row, an unanswered row
being last; shares of rows won are averaged over folds and models within a dataset, and the
dataset is the unit of an exact signed-rank test, two-sided, with Holm's correction within the
claim. **Holds**: every contrast goes as claimed at {share} %. **Fails**: at least one goes the
other way at {share} %; it is named. Open is everything else. Times are CPU time per row, of this
library's implementations.
"""
BOARD = """## Nobody wins everything

Suite `standard`, classification: mean rank within the rows among the lines that were asked about
all datasets shown; low is good. [methods.md](methods.md) says which names are published algorithms
and which are ours."""
EVERY_LINE = """## Every line

Some lines have scores on these datasets alone: {sets}. The same ranks among all
lines:"""
PICTURE_TEXT = (
    """![Rank by distance and rank by density of every local line](images/findings-tradeoff.svg)"""
)
VARIANT_TEXT = """## What our variants change

Suite `standard`, datasets and models that both were asked about; unanswered rows count as lost.
Time is a ratio, its mean over datasets geometric."""
COACH = """## A density flatters those who ask it

Methods may query one density. `standard` scores by three others. The lines that gain most from
being judged by the density they asked, over the rows that they answered:"""
REDUNDANT = """## Changes that need not be

The share of changed features that can be put back without losing the answer (suite `standard`,
lines with nearly all problems of classification, mean of datasets; in brackets the share of rows
that were answered, which the mean is over):
"""
LIMITS = (
    "{n} tables, some of them drawn ({drawn}), most of the others about credit or income, are no "
    "sample of anything: the tests speak about these tables and others like them. Two models "
    "(logistic regression and a small network) stand for all. Where a claim has fewer datasets "
    "than the correction needs, no contrast can be beyond chance, and the table says open "
    "whatever the direction. Regression has {few} datasets, on which p cannot be below "
    "{reach:.3f}: {can}; the directions are in `cel report --shipped standard`."
)
CHECK = '''## Check it

{place}

```python
import numpy as np
from scipy import stats

shares = """
{shares}
"""
gaps = [float(s) - 0.5 for s in shares.split()]
every_sign = stats.PermutationMethod(n_resamples=np.inf)
p = stats.wilcoxon(gaps, zero_method="pratt", method=every_sign).pvalue
```

gives p = {p:.6g}, the first contrast of that claim below before Holm's correction. Mean ranks
within the rows of the published local methods, by the same metric:
'''
CHECKED = (
    "`scipy.stats.friedmanchisquare` over these columns gives p = {p:.6g}. Mean places over "
    "datasets are {ranks}; `scikit_posthocs.posthoc_nemenyi_friedman` calls those pairs different "
    "at 5 % that are more than {cd:.6g} apart."
)
CONTRASTS = """## All contrasts

a is the method that the paper puts first. A share of rows won of 0.5 is a draw; a factor of time
above 1 says that a is faster.
"""


def main() -> None:
    text = page()
    if "--write" in sys.argv:
        PAGE.write_text(text)
        draw(Suite("standard"))
        print(f"wrote {PAGE.name} and {PICTURE.name}")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
