"""A method of your own, checked and run like every other: walk towards the nearest good row."""

import torch

import cel
from cel.cf_methods import BaseCounterfactualMethod
from cel.models.classifiers import LogisticRegression
from cel.protocols import Need
from cel.testing import check_method


class Halfway(BaseCounterfactualMethod):
    """Go from each row towards the nearest training row of the target class, step by step."""

    name = "halfway"
    needs = frozenset({Need.TRAIN_ROWS})

    def _explain(self, query):
        out = torch.full_like(query.x, torch.nan)
        train = self.train_
        for k in query.target.unique():
            rows = (query.target == k).nonzero()[:, 0]
            good = train.x[train.y == k]
            if not len(good):
                continue
            near = good[torch.cdist(query.x[rows], good).argmin(1)]
            region = query.region.select(rows)
            for share in (1.0, 0.75, 0.5):
                point = region.snap(query.x[rows] + share * (near - query.x[rows]))
                reached = query.model.margin(point, query.target[rows]) >= 0
                out[rows[reached]] = point[reached]
        return out


failed = [r for r in check_method(Halfway) if r.failed]
print(len(failed), "checks failed", [(r.problem, r.check) for r in failed][:3])

wine = cel.load_dataset("wine", binary=True)
model = LogisticRegression().fit(wine.train_dataloader())
result = Halfway(model).explain_dataloader(wine.test_dataloader())
print(result)
print(cel.MetricsOrchestrator().compute(result))
