"""A boosted model with constraints, and whether men and women get out of a refusal alike."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import cel

rng = np.random.default_rng(1)
n = 600
women = rng.random(n) < 0.5
open_ = rng.integers(0, 6, n)
people = pd.DataFrame(
    {
        "income": (rng.normal(50, 12, n) - 12 * women).round(1),
        "education": rng.integers(8, 21, n),
        "credits_open": open_,
        "credits_total": open_ + rng.integers(0, 6, n),
        "sex": np.where(women, "f", "m"),
    }
)
read = ["income", "education", "credits_open", "credits_total"]
score = people.income + 2 * people.education - 4 * people.credits_open
outcome = np.where(score > 62, "yes", "no")
model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(people[read], outcome)

rules = {
    "increasing": ["education"],
    "ranges": {"income": (0, 90)},
    "relations": ["credits_open <= credits_total"],
    "max_changes": 2,
}
refused = people.loc[model.predict(people[read]) == "no", read].head(10)
result = cel.explain(model, refused, background=people[read], target="yes", constraints=rules)
print(*result.sentences(), sep="\n")

found = cel.audit(model, people, "sex", target="yes", constraints=rules, max_rows=200)
found.show()
found.save_html("audit.html")
