"""Every loss with everything that a model goes through: saved, cloned, pickled, resumed, weighted, exported."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import app
from knotwork.data.losses import LOSSES
from knotwork.errors import DataError

LOG_LINKS = ("poisson", "gamma", "tweedie")
EXTRA = {"quantile": {"quantile": 0.8}, "tweedie": {"power": 1.4}}


def table(loss: str, rows: int = 240, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A number, a second one with gaps, and a category; y suits the loss."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.uniform(-2, 2, size=rows)})
    X["kind"] = rng.choice(["red", "green", "blue"], size=rows)
    eta = 0.6 * np.abs(X["a"]) + 0.4 * np.maximum(X["b"], 0) - 0.5 * (X["kind"] == "red")
    eta = eta.to_numpy()
    X.loc[rng.random(rows) < 0.1, "b"] = np.nan
    if loss == "poisson":
        return X, rng.poisson(np.exp(eta)).astype(float)
    if loss == "gamma":
        return X, rng.gamma(2.0, np.exp(eta) / 2.0)
    if loss == "tweedie":
        return X, rng.poisson(np.exp(eta)) * rng.gamma(2.0, 0.5, size=rows)
    return X, eta + 0.3 * rng.standard_t(3, size=rows)


def models(loss: str) -> list:
    options = {"loss": loss, **EXTRA.get(loss, {})}
    return [
        kw.MarsRegressor(**options),
        kw.SplineNetRegressor(n_members=1, hidden=(16, 8), epochs=4, random_state=0, **options),
    ]


@pytest.fixture(scope="module", params=[(loss, kind) for loss in LOSSES for kind in (0, 1)], ids=str)
def fitted(request):
    loss, kind = request.param
    X, y = table(loss)
    return loss, models(loss)[kind].fit(X, y), X, y


def test_saved_cloned_and_pickled(fitted, tmp_path):
    _, model, X, y = fitted
    predicted = model.predict(X)
    kw.save(model, tmp_path / "model")
    for twin in (kw.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.predict(X), predicted)
        assert twin.loss_ == model.loss_
        assert twin.score(X, y) == model.score(X, y)
        assert twin.get_params() == model.get_params()
    again = clone(model)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.fit(X, y).predict(X), predicted)
    assert 0.05 < model.score(X, y) < 1


def test_the_link_travels(fitted):
    loss, model, X, _ = fitted
    net = kw.to_network(model)
    link = "log" if loss in LOG_LINKS else "identity"
    assert net.conversion.link == link
    rows = torch.from_numpy(net.conversion.encoder.encode(X))
    inner = net.double()(rows).detach().numpy()[:, 0]
    expected = model.predict(X)
    if link == "log":
        assert (expected > 0).all()
        inner = np.exp(inner)
    np.testing.assert_allclose(inner, expected, rtol=1e-5, atol=1e-5)


def test_onnx_gives_our_predictions(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    loss, model, X, _ = fitted
    done = kw.export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    far = pd.concat([X, X.assign(a=1e308), X.assign(b=-1e308)], ignore_index=True)
    feed = {name: far[[name]].to_numpy(dtype=object if name == "kind" else np.float64) for name in done.input_names}
    outputs = dict(zip(done.output_names, session.run(None, feed), strict=True))
    np.testing.assert_allclose(outputs["prediction"][:, 0], model.predict(far), rtol=1e-9)
    assert ("log_prediction" in outputs) == (loss in LOG_LINKS)
    if loss in LOG_LINKS:
        assert (outputs["prediction"] > 0).all()
        assert np.isfinite(outputs["prediction"]).all()


def test_explained_on_both_scales(fitted, tmp_path):
    loss, model, X, y = fitted
    explanation = kw.explain(model, X, y)
    outputs = explanation.contributions(X)
    np.testing.assert_allclose(outputs.response[:, 0], model.predict(X), rtol=1e-6)
    share = "R²" if loss == "squared_error" else "D²"
    row = explanation.quality.iloc[-2]  # the last model; the constant is behind it
    if loss != "huber":  # whose score is R²
        assert row[share] == pytest.approx(model.score(X, y), abs=1e-5)
    assert explanation.importances.index[0] in ("a", "b", "kind", "b is missing")
    if loss in LOG_LINKS:
        assert explanation.subject.output_names == ("log(y)",)
        frame = outputs.to_frame()
        assert list(frame.columns[-2:]) == ["prediction", "response"]
        assert frame.columns.name == "log(y)"
        assert "multiplies the prediction" in str(explanation)
    explanation.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert ('"link":"log"' in page.replace(" ", "")) == (loss in LOG_LINKS)


def test_weights_count_like_rows(fitted):
    loss, _, X, y = fitted
    weights = np.tile([0.0, 1.0, 2.0], len(y) // 3)
    rows = np.repeat(np.arange(len(y)), weights.astype(int))
    one = kw.MarsRegressor(loss=loss, **EXTRA.get(loss, {}))
    weighted = clone(one).fit(X, y, sample_weight=weights)
    repeated = clone(one).fit(X.iloc[rows], y[rows])
    # Between two values a quantile may be anywhere: there is nothing to choose by.
    tolerance = 1e-3 if loss == "quantile" else 1e-6
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-5, atol=tolerance)
    assert weighted.deviance_ == pytest.approx(repeated.deviance_, rel=1e-6)
    assert weighted.score(X, y, weights) == pytest.approx(repeated.score(X.iloc[rows], y[rows]), abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_training_goes_on_from_its_checkpoint(loss, tmp_path, monkeypatch):
    from knotwork.network.train import loop

    X, y = table(loss)
    whole = models(loss)[1].fit(X, y)
    path = tmp_path / "training.ckpt"
    evaluate, calls = loop.mean_losses, []

    def until(*args):
        calls.append(1)
        if len(calls) == 7:
            raise RuntimeError("power cut")
        return evaluate(*args)

    monkeypatch.setattr(loop, "mean_losses", until)
    with pytest.raises(RuntimeError, match="power cut"):
        models(loss)[1].set_params(checkpoint=path).fit(X, y)
    monkeypatch.setattr(loop, "mean_losses", evaluate)
    assert path.exists()
    resumed = models(loss)[1].set_params(checkpoint=path).fit(X, y)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert resumed.history_.validation_loss == whole.history_.validation_loss


@pytest.mark.parametrize("loss", LOSSES)
def test_the_command_line_knows_losses(loss, tmp_path):
    X, y = table(loss)
    X.assign(y=y).to_csv(tmp_path / "data.csv", index=False)
    extra = [str(v) for name, value in EXTRA.get(loss, {}).items() for v in (f"--{name}", value)]
    arguments = ["fit", str(tmp_path / "data.csv"), "--target", "y", "--loss", loss, *extra]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "model"), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    model = kw.load(tmp_path / "model")
    assert model.loss_.name == loss
    name = {"poisson": "log(y)", "gamma": "log(y)", "tweedie": "log(y)"}.get(loss, "y")
    assert list(report["model"]["formulas"]) == [name]
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "data.csv"), "--json"])
    predicted = json.loads(done.stdout)["predictions"]["prediction"]
    np.testing.assert_allclose(predicted, model.predict(X), rtol=1e-6)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert ("R²" if loss == "squared_error" else "D²") in done.output


@pytest.mark.parametrize("loss", LOSSES)
def test_networks_of_ones_own(loss):
    """init_ sets a network to the spline of a loss, and train makes that loss smaller."""
    X, y = table(loss)
    rows = X[["a"]].to_numpy()
    y = y if loss in LOG_LINKS else (y - y.mean()) / y.std()
    net = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    report = kw.init_(net, rows, y, loss=loss, random_state=0, **EXTRA.get(loss, {}))
    assert report.link == ("log" if loss in LOG_LINKS else "identity")
    assert report.max_difference < 1e-3
    history = kw.train(net, rows, y, loss=loss, epochs=3, random_state=0, **EXTRA.get(loss, {}))
    assert min(history.validation_loss) <= history.validation_loss[0]
    if loss in LOG_LINKS:
        assert kw.explain(net, rows).subject.link == "log"


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"loss": "poisson"}, [-1.0, 2.0], "loss='poisson' takes responses of 0 or more, got -1"),
        ({"loss": "poisson"}, [0.0, 0.0], "not all zero"),
        ({"loss": "gamma"}, [0.0, 2.0], "loss='gamma' takes responses greater than 0, got 0"),
        ({"loss": "tweedie", "power": 3}, [0.0, 2.0], "responses greater than 0"),
        ({"loss": "quantile"}, [1.0, 2.0], "needs the quantile"),
        ({"loss": "poisson", "quantile": 0.5}, [1.0, 2.0], "quantile is for loss='quantile'"),
        ({"loss": "gamma", "power": 2}, [1.0, 2.0], "power is for loss='tweedie'"),
        ({"loss": "huber"}, [[1.0, 2.0], [3.0, 4.0]], "takes one response, got 2"),
    ],
)
@pytest.mark.parametrize("estimator", [kw.MarsRegressor, kw.SplineNetRegressor])
def test_what_a_loss_is_not_made_for_is_refused(estimator, options, y, message):
    y = np.tile(np.array(y), (15, 1) if isinstance(y[0], list) else 15)
    X = np.arange(30.0)[:, None]
    with pytest.raises(ValueError, match=message):
        estimator(**options).fit(X, y)


@pytest.mark.parametrize("loss", LOG_LINKS)
@pytest.mark.parametrize("extrapolate", ["clip", "linear"])
def test_predictions_behind_a_log_are_positive_and_finite_on_any_finite_row(loss, extrapolate, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.exp(2 * X[:, 0] - X[:, 1]) * rng.gamma(2, 0.5, size=200)
    options = {"loss": loss, "extrapolate": extrapolate}
    far = np.concatenate([X, *(X * size for size in (1e3, -1e3, 1e100, -1e100))])
    for model in (
        kw.MarsRegressor(**options),
        kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, random_state=0, **options),
    ):
        predicted = model.fit(X, y).predict(far)
        assert np.isfinite(predicted).all()
        assert (predicted > 0).all()
        for dtype in ("float32", "float64"):
            done = kw.export_onnx(model, tmp_path / "model.onnx", dtype=dtype)
            session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
            rows = far.clip(-1e30, 1e30).astype(dtype)
            found = session.run(["prediction"], {"features": rows})[0]
            assert np.isfinite(found).all()
            assert (found > 0).all()


@pytest.mark.parametrize("loss", ["poisson", "quantile", "huber"])
def test_members_share_a_loss(loss, tmp_path):
    """Their average is taken on the scale of the link; rows left out are predicted on that of y."""
    X, y = table(loss)
    options = {"loss": loss, **EXTRA.get(loss, {})}
    model = kw.SplineNetRegressor(hidden=(8,), epochs=2, n_members=3, random_state=0, **options).fit(X, y)
    assert model.score(X, y) > 0.05
    assert model.loss_.score(y, model.oof_prediction_) > 0
    assert kw.to_network(model).conversion.link == model.loss_.link
    kw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(kw.load(tmp_path / "model").predict(X), model.predict(X))


def test_exposure_is_a_weight_of_rates():
    """As in PoissonRegressor: rates y/exposure with the exposures as weights are counts with an offset."""
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-1, 1, size=(2000, 2)), rng.uniform(0.2, 2.0, size=2000)
    counts = rng.poisson(exposure * np.exp(1 + np.abs(X[:, 0])))
    model = kw.MarsRegressor(loss="poisson").fit(X, counts / exposure, sample_weight=exposure)
    assert model.predict(X) @ exposure == pytest.approx(counts.sum(), rel=1e-3)
    assert model.score(X, counts / exposure, exposure) > 0.05


@pytest.mark.parametrize(
    "options", [{"loss": "huber"}, {"loss": "quantile", "quantile": 0.9}, {"loss": "absolute_error"}]
)
def test_losses_do_not_notice_where_the_responses_lie(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3))
    y = np.abs(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=800) + 1e9
    far = kw.MarsRegressor(**options).fit(X[:500], y[:500]).predict(X[500:]) - 1e9
    near = kw.MarsRegressor(**options).fit(X[:500], y[:500] - 1e9).predict(X[500:])
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-6)


@pytest.mark.parametrize("odd", [pd.DataFrame({"a": [1]}), "x", np.ones(3), 1j])
@pytest.mark.parametrize(("loss", "name"), [("quantile", "quantile"), ("tweedie", "power")])
def test_parameters_of_a_loss_that_are_no_numbers(loss, name, odd):
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=name):
        kw.init_(net, X, np.abs(X[:, 0]) + 1, loss=loss, **{name: odd})


@pytest.mark.parametrize("loss", LOG_LINKS)
def test_members_whose_folds_differ_in_length_train_with_any_loss(loss):
    # The shorter folds are filled up with a row of weight zero, at which the loss must be finite too.
    X, y = table(loss, rows=203)
    model = kw.SplineNetRegressor(
        loss=loss, n_members=8, epochs=2, random_state=0, n_jobs=1, **EXTRA.get(loss, {})
    ).fit(X, y)
    assert np.isfinite(model.history_.validation_loss).all()
    assert model.score(X, y) > 0


@pytest.mark.parametrize("loss", ["absolute_error", "quantile", "huber"])
@pytest.mark.parametrize("estimator", [kw.MarsRegressor, kw.SplineNetRegressor])
@pytest.mark.parametrize("unit", [1e-200, 1e155, 1e300])
def test_responses_without_squares_are_refused(estimator, loss, unit):
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(DataError, match=f"loss='{loss}' takes responses whose differences have squares"):
        estimator(loss=loss, quantile=0.9 if loss == "quantile" else None).fit(X, X[:, 0] * unit)
