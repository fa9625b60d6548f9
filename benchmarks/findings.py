"""Write docs/findings.md: what the benchmark says about the claims of the paper, and what is new.

    python benchmarks/findings.py           # prints the page
    python benchmarks/findings.py --write   # writes docs/findings.md and its picture

Every number of the page comes from the scores that ship with the package. A claim is a list of
contrasts "a before b by a metric"; its verdict follows from them by the rule that the page states.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from cel.benchmark.ranking import WinTable, dataset_means
from cel.benchmark.shipped import shipped_table
from cel.metrics import METRICS
from cel.metrics.significance import holm, units_needed, wilcoxon_exact

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
REGRESSION = ("concrete", "diabetes", "yacht", "synthetic", "scm20d")
VARIANTS = (
    ("wachter", "wachter_exact"), ("artelt", "artelt_scp"), ("dice", "dice_closest"),
    ("dice", "dice_gradient"), ("dice", "dice_genetic"), ("ppcef", "ppcef_tangents"),
    ("cem", "elastic_net"), ("cegp", "cegp_first"), ("sace", "sace_nearest"),
    ("ares", "ares_oracle"), ("globe_ce", "globe_ce_informed"), ("glance", "glance_informed"),
    ("tcrex", "tcrex_donor"),
)  # fmt: skip


class Suite:
    """The shipped tables of one suite."""

    def __init__(self, name: str) -> None:
        self.scores, self.pairs = shipped_table(name), shipped_table(name, "pairs")
        self.rows = shipped_table(name, "rows")
        means = self.pairs.groupby(["metric", "a", "b", "dataset", "model"])["win"].mean()
        lines = means.groupby(["metric", "a", "b", "dataset"]).mean().reset_index()
        self.wins = {
            key: part.set_index("dataset")["win"].astype(float)
            for key, part in lines.groupby(["metric", "a", "b"])
        }
        self.cells = self.scores.groupby(["dataset", "model", "method", "fold"]).ngroups

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


def claims_part(suites: dict[str, Suite]) -> list[str]:
    """The table of claims."""
    found = {name: tested(suite) for name, suite in suites.items()}
    out = heads("claim of the paper", *(f"suite `{n}`" for n in suites))
    for number, claim in enumerate(CLAIMS):
        told = [verdict(t[t["claim"] == number]) for t in found.values()]
        out.append(line(claim.text, *told))
    largest = max(int(t["claim"].value_counts().max()) for t in found.values())
    most = {n: int(t["units"].max()) for n, t in found.items()}
    out += ["", "Contrasts beyond chance: " + ", ".join(
        f"{int((t['holm'] < SHARE).sum())} of {len(t)} in `{n}`" for n, t in found.items())
        + f". A claim of {largest} contrasts needs {units_needed(largest)} datasets before one "
        "of them can be; classification has " + ", ".join(f"{v} in `{n}`" for n, v in most.items())
        + f". With {len(CLAIMS)} claims, one verdict beyond chance may be chance."]  # fmt: skip
    return out


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


def ranks_of(suite: Suite, metric: str, methods: list[str]) -> pd.Series:
    """Mean rank within the rows over the datasets of classification."""
    lines = suite.pairs[suite.pairs["metric"] == metric]
    return WinTable(lines, methods).ranks().mean()


def board_part(suite: Suite) -> list[str]:
    """Ranks of all local lines by four criteria."""
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
    out += ["", f"Five criteria have {n} different winners."]
    return out


def every_line_part(suite: Suite) -> list[str]:
    """Ranks of all lines on the datasets that have them all; nothing if those are all datasets."""
    whole = suite.with_all_lines()
    if len(whole) == len(set(suite.scores["dataset"]) - set(REGRESSION)):
        return []
    return [EVERY_LINE.format(sets=", ".join(whole)), "", *board_part(suite.only(whole))]


def local_lines(suite: Suite, told: list[str]) -> list[str]:
    """Lines that answer rows one by one, on classification data."""
    from cel.cf_methods.variants import named

    rules = ("ares", "globe_ce", "glance", "tcrex", "group_ppcef")
    known = [m for m in told if not m.startswith(rules)]
    asked = suite.scores[~suite.scores["dataset"].isin(REGRESSION)]["method"].unique()
    return [m for m in known if m in asked and named(m)]


def variants_part(suite: Suite) -> list[str]:
    """What each of our variants changes against the published algorithm."""
    out = heads("published", "ours", "answers (published, ours)", "rows in which ours is nearer",
                "denser", "CPU time, ours / published")  # fmt: skip
    success, cost = (dataset_means(suite.scores, m) for m in ("success", "cpu_ms_per_row"))
    for a, b in VARIANTS:
        if not {a, b} <= set(success):
            continue
        both = success[[a, b]].dropna().index
        wins = []
        for metric in ("l2_hamming", "density_percentile"):
            share = suite.share(metric, b, a)
            wins.append(f"{share.mean():.0%}" if len(share) else "")
        ratio = np.exp(np.log(cost.loc[both, b] / cost.loc[both, a]).mean())
        share = success.loc[both].mean()
        out.append(
            line(f"`{a}`", f"`{b}`", f"{share[a]:.2f}, {share[b]:.2f}", *wins, f"{ratio:.2f}")
        )
    return out


def coach_part(suite: Suite) -> list[str]:
    """How much the density that a method may query flatters it."""
    coach, judges = (
        dataset_means(suite.scores, m) for m in ("coach_percentile", "density_percentile")
    )
    gap = (coach - judges).mean().dropna().sort_values(ascending=False)
    spread = dataset_means(suite.scores, "density_spread").mean()
    found = answered(suite, coach.index)
    out = heads("line", "rows answered", "percentile by its own density", "by the judges",
                "difference")  # fmt: skip
    for name in [*gap.index[:6]]:
        out.append(line(f"`{name}`", f"{found[name]:.0%}", f"{coach[name].mean():.2f}",
                        f"{judges[name].mean():.2f}", f"{gap[name]:+.2f}"))  # fmt: skip
    out += ["", f"Over all {len(gap)} lines the median difference is {gap.median():+.2f}; judges "
            f"differ by {spread.median():.2f} (standard deviation, median line)."]  # fmt: skip
    return out


def answered(suite: Suite, datasets: pd.Index) -> pd.Series:
    """The share of rows that every line answered: what a mean over found rows covers."""
    return dataset_means(suite.scores, "success").reindex(datasets).mean()


def redundancy_part(suite: Suite) -> list[str]:
    """Changes that could be taken back."""
    means = dataset_means(suite.scores, "redundancy")
    share = means.mean().dropna().sort_values()
    found = answered(suite, means.index)
    low, high = share.index[:6], share.index[::-1][:6]

    def told(lines: pd.Index) -> str:
        return ", ".join(f"`{m}` {share[m]:.0%} (of {found[m]:.0%})" for m in lines)

    return [f"Least: {told(low)}.", f"Most: {told(high)}."]


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
    sets = {n: s.scores["dataset"].nunique() for n, s in suites.items()}
    cells = {n: s.cells for n, s in suites.items()}
    text = HEAD.format(sets=sets, cells=cells, share=int(SHARE * 100))
    parts = [
        text, *claims_part(suites), "", BOARD, "", *board_part(standard), "", PICTURE_TEXT, "",
        *every_line_part(standard), "",
        VARIANT_TEXT, "", *variants_part(standard), "", COACH, "", *coach_part(standard), "",
        REDUNDANT, *redundancy_part(standard), "", LIMITS, "", CONTRASTS, *contrasts_part(suites),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


HEAD = """# What the benchmark says

`python benchmarks/findings.py` prints this page from the shipped scores: suite `paper`
({cells[paper]} cells on {sets[paper]} datasets, the printed protocol) and suite `standard`
({cells[standard]} cells on {sets[standard]} datasets: constraints honoured, desirable targets,
densities judged by models that no method may query). `cel report --shipped standard` shows every
cell. In `paper` up to 250 rows of a fold are explained; in `standard` up to 30 rows of a fold of
the larger datasets (Adult, Bank Marketing, Credit Default, HELOC, Lending Club, SCM20D), all test
rows of the others. Give Me Some Credit has no scores of `standard`.

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
all datasets shown; low is good. Names without a suffix are the published algorithms
(docs/methods.md)."""
EVERY_LINE = """## Every line

The further methods have scores on these datasets alone: {sets}. The same ranks among all
lines; `actionable` and `artelt` answer for linear models alone and lose the rows of networks:"""
PICTURE_TEXT = (
    """![Rank by distance and rank by density of every local line](images/findings-tradeoff.svg)"""
)
VARIANT_TEXT = """## What our variants change

Suite `standard`, datasets on which both ran; unanswered rows count as lost."""
COACH = """## A density flatters those who ask it

Methods may query one density. `standard` scores by three others. The lines that gain most from
being judged by the density they asked, over the rows that they answered:"""
REDUNDANT = """## Changes that need not be

The share of changed features that can be put back without losing the answer (suite `standard`,
mean of datasets; in brackets the share of rows that were answered, which the mean is over):
"""
LIMITS = """## What these datasets cannot show

Eighteen tables, two of them drawn, most about credit or income, are no sample of anything: the
tests speak about these tables and others like them. Two models (logistic regression and a small
network) stand for all. Where a claim has fewer datasets than the correction needs, no contrast
can be beyond chance, and the table says open whatever the direction. Regression has five
datasets: nothing about it can be shown at this level; the directions are in `cel report
--shipped standard`."""

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
