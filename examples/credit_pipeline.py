"""A credit decision with a scikit-learn pipeline: explain, read, plan, hand on."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cel

rng = np.random.default_rng(0)
n = 600
people = pd.DataFrame(
    {
        "income": rng.integers(10, 90, n) * 100,
        "debt": rng.gamma(2, 3, n).round(2),
        "age": rng.integers(20, 70, n),
        "job": rng.choice(["clerk", "nurse", "pilot"], n),
    }
)
score = people.income / 2000 - people.debt / 4 + (people.job == "pilot")
outcome = np.where(score > 1.4, "granted", "refused")
columns = make_column_transformer(
    (StandardScaler(), ["income", "debt", "age"]), (OneHotEncoder(), ["job"])
)
model = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(people, outcome)

refused = people[model.predict(people) == "refused"].head(8)
result = cel.explain(model, refused, background=people, target="granted", immutable=["age"])
result.show(rows=3)
print(result.plan())
result.save_html("credit.html")
