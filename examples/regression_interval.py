"""A predicted number that should come into an interval."""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import cel

X, y = load_diabetes(as_frame=True, return_X_y=True, scaled=False)
model = LinearRegression().fit(X, y)

high = X[model.predict(X) > 220].head(5)
explainer = cel.Explainer(model, X, immutable=["age", "sex"])
result = explainer.explain(high, (120, 180))
print(*result.sentences(), sep="\n")
print(model.predict(result.to_frame()).round(1))

less = explainer.explain(high, "-15%")
print(less.plan())
