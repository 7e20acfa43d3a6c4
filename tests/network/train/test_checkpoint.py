"""Trainings that go on from their checkpoint: equal to those that were never interrupted, or refused."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import knotwork as kw
from knotwork.errors import DataError, NetworkError
from knotwork.network.train import checkpoint as checkpoints

X = np.random.default_rng(0).normal(size=(300, 3)) * [1.0, 50.0, 1e-3] + [0.0, 1e3, 0.0]
Y = 100 * np.abs(X[:, 0]) + X[:, 1] + np.random.default_rng(1).normal(size=300)


class Crash(Exception):
    pass


@pytest.fixture(autouse=True)
def _every_epoch(monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_SHARE", 1e9)


def crash_after(epoch):
    def callback(now):
        if now.epoch == epoch:
            raise Crash

    return callback


def start(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    ).to(dtype)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = start()

    def forward(self, x):
        return self.net(x + torch.randn_like(x) if self.training else x)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


OPTIONS = [
    {},
    {"dropout": 0.3, "l1": 1e-4, "sample_weight": np.linspace(0.1, 1, 300)},
    {"setback": 0.0, "learning_rate": 0.3},
    {"optimizer": momentum, "loss": nn.HuberLoss(reduction="none")},
    {"patience": 2, "learning_rate": 0.5, "average": 0.0},
]


def same(first, second):
    (net, history), (other, its) = first, second
    for name, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    a, b = vars(history), vars(its)
    assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}
    return True


@pytest.mark.parametrize("make", [start, lambda: start(torch.float64), Noisy])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_training_that_crashed_goes_on_as_if_it_had_not(tmp_path, options, make):
    path = tmp_path / "run.checkpoint"
    settings = {"epochs": 8, "batch_size": 33, "random_state": 3, **options}
    whole = make()
    expected = whole, kw.train(whole, X, Y, **settings)
    for epoch in (0, 3, 5):
        if epoch < len(expected[1]) - 1:
            with pytest.raises(Crash):
                kw.train(make(), X, Y, **settings, checkpoint=path, callbacks=[crash_after(epoch)])
            assert path.exists() == (epoch > 0)
    seen = []
    torch.manual_seed(99)  # what the process drew before does not matter
    net = make()
    torch.manual_seed(98)
    again = net, kw.train(net, X, Y, **settings, checkpoint=path, callbacks=[lambda now: seen.append(now.epoch)])
    assert same(again, expected)
    assert not path.exists()
    assert seen[0] > 0 or len(expected[1]) < 5


def crashed(path, **options):
    with pytest.raises(Crash):
        kw.train(start(), X, Y, **{**SETTINGS, **options}, checkpoint=path, callbacks=[crash_after(2)])


SETTINGS = {"epochs": 4, "random_state": 0}


@pytest.mark.parametrize(("change", "named"), [
    ({"random_state": 1}, "seed and data or weights"),
    ({"y": Y + 1}, "data or weights"),
    ({"X": X * 2}, "data or weights"),
    ({"learning_rate": 0.02}, "options"),
    ({"epochs": 5}, "options"),
    ({"loss": nn.L1Loss(reduction="none")}, "data or weights and options"),
    ({"optimizer": momentum}, "options"),
    ({"net": start(torch.float64)}, "data or weights"),
])  # fmt: skip
def test_the_file_of_another_fit_is_refused_and_stays(tmp_path, change, named):
    path = tmp_path / "a"
    crashed(path)
    before = path.read_bytes()
    arguments = {"net": start(), "X": X, "y": Y, **SETTINGS, **change}
    with pytest.raises(DataError, match=f"by the fit that wrote it, the one at .* has other {named}; call"):
        kw.train(**arguments, checkpoint=path)
    assert path.read_bytes() == before


def test_a_loss_with_another_constant_is_another_fit(tmp_path):
    def loss(share):
        return lambda prediction, target: (prediction - share * target).square()

    crashed(tmp_path / "a", loss=loss(1.0))
    with pytest.raises(DataError, match="has other options"):
        kw.train(start(), X, Y, **SETTINGS, loss=loss(0.5), checkpoint=tmp_path / "a")
    assert len(kw.train(start(), X, Y, **SETTINGS, loss=loss(1.0), checkpoint=tmp_path / "a")) == 5


def scaled(prediction, target, share):
    return (prediction - share * target).square()


class Scaled:
    def __init__(self, share):
        self.share = share

    def __call__(self, prediction, target):
        return scaled(prediction, target, self.share)


class ScaledModule(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, prediction, target):
        return scaled(prediction, target, self.share)


def keyword_only(value):
    def loss(prediction, target, *, share=value):
        return scaled(prediction, target, share)

    return loss


def in_a_dict(value):
    options = {"share": value}
    return lambda prediction, target: scaled(prediction, target, options["share"])


def in_an_array(value):
    options = np.array([value])
    return lambda prediction, target: scaled(prediction, target, options[0])


@pytest.mark.parametrize("make", [
    lambda value: nn.HuberLoss(reduction="none", delta=value),  # whose repr does not show it
    Scaled,
    ScaledModule,
    lambda value: Scaled(value).__call__,
    keyword_only,
    in_a_dict,
    in_an_array,
])  # fmt: skip
def test_the_settings_of_a_loss_belong_to_the_fit(tmp_path, make):
    path = tmp_path / "a"
    crashed(path, loss=make(1.0))
    with pytest.raises(DataError, match="has other options"):
        kw.train(start(), X, Y, **SETTINGS, loss=make(0.5), checkpoint=path)
    assert len(kw.train(start(), X, Y, **SETTINGS, loss=make(1.0), checkpoint=path)) == 5


def test_the_settings_of_layers_belong_to_the_fit(tmp_path):
    path = tmp_path / "a"
    crashed(path)
    other = start()
    other[3].p = 0.5
    with pytest.raises(DataError, match="has other data or weights"):
        kw.train(other, X, Y, **SETTINGS, checkpoint=path)


def test_a_loss_that_refers_to_itself(tmp_path):
    def loss(prediction, target):
        loss.calls = getattr(loss, "calls", 0) + 1
        return (prediction - target).square()

    assert len(kw.train(start(), X, Y, **SETTINGS, loss=loss, checkpoint=tmp_path / "a")) == 5


def test_without_a_seed_the_file_gives_it(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(Crash):
        kw.train(start(), X, Y, epochs=4, checkpoint=path, callbacks=[crash_after(3)])
    with safe_open(path, framework="pt") as file:
        seed = json.loads(file.metadata()["training"])["identity"]["seed"]
    assert kw.train(start(), X, Y, epochs=4, checkpoint=path).best_epoch >= 0
    assert isinstance(seed, int)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"my diary", b"\x10\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_something_else_is_never_replaced(tmp_path, content):
    path = tmp_path / "diary"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"or not exist yet, .* is something else"):
        kw.train(start(), X, Y, **SETTINGS, checkpoint=path)
    assert path.read_bytes() == content
    save_file({"a": torch.zeros(3)}, path)  # somebody's weights
    content = path.read_bytes()
    with pytest.raises(DataError, match="is something else"):
        kw.SplineNetRegressor(n_members=1, checkpoint=path, epochs=1).fit(X, Y)
    assert path.read_bytes() == content


@pytest.mark.parametrize("seed", ["-7", "1e999", str(10**30), "null", '"1"', "true"])
def test_a_header_that_no_training_wrote(tmp_path, seed):
    path = tmp_path / "a"
    header = f'{{"identity": {{"seed": {seed}}}, "document": {{}}, "digest": ""}}'
    for text in (header, "[" * 100_000, '{"identity": "seed"}'):
        save_file({"a": torch.zeros(1)}, path, metadata={"format": checkpoints.FORMAT, "training": text})
        with pytest.raises(DataError, match="is damaged"):
            kw.train(start(), X, Y, epochs=1, checkpoint=path)


def test_what_somebody_else_puts_there_meanwhile_stays(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    crashed(other, random_state=5)
    for content, message in ((b"my diary", "is something else"), (other.read_bytes(), "give each fit a file of its")):
        for epoch in (0, 1):

            def put(now, content=content, epoch=epoch):
                if now.epoch == epoch:
                    path.write_bytes(content)

            net = start()
            with pytest.raises(DataError, match=message):
                kw.train(net, X, Y, **SETTINGS, checkpoint=path, callbacks=[put])
            assert all(torch.equal(a, b) for a, b in zip(net.parameters(), start().parameters(), strict=True))
            assert path.read_bytes() == content
            path.unlink()


def test_what_is_there_at_the_end_is_removed_only_if_it_is_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.Checkpoint, "is_due", lambda self: False)  # writes after epoch 0 alone
    path = tmp_path / "a"
    kw.train(start(), X, Y, **SETTINGS, checkpoint=path, callbacks=[lambda e: e.epoch == 4 and path.write_text("mine")])
    assert path.read_text() == "mine"


def test_a_link_stays_a_link(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    crashed(link)
    assert target.is_file()
    assert link.is_symlink()
    kw.train(start(), X, Y, **SETTINGS, checkpoint=link)
    assert not target.exists()
    assert link.is_symlink()


def test_a_file_that_cannot_be_removed_loses_no_training(tmp_path, monkeypatch):
    def protected(self, missing_ok=False):
        raise PermissionError(13, "protected")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Path, "unlink", protected)
        expected = kw.train(start(), X, Y, **SETTINGS, checkpoint=tmp_path / "a")
    assert kw.train(start(), X, Y, **SETTINGS, checkpoint=tmp_path / "a").train_loss == expected.train_loss
    assert not (tmp_path / "a").exists()


def test_a_folder_that_is_not_there_is_told_before_training(tmp_path):
    seen = []
    with pytest.raises(DataError, match="must exist"):
        kw.train(start(), X, Y, **SETTINGS, checkpoint=tmp_path / "no" / "a", callbacks=[lambda e: seen.append(e)])
    assert len(seen) == 1  # epoch 0 only looks


def test_every_changed_byte_of_a_file_is_noticed(tmp_path):
    path = tmp_path / "a"
    crashed(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(whole), size=40):
        bad = bytearray(whole)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        with pytest.raises(DataError, match=r"damaged|something else|by the fit that wrote it"):
            kw.train(start(), X, Y, **SETTINGS, checkpoint=path)
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"damaged|something else"):
        kw.train(start(), X, Y, **SETTINGS, checkpoint=path)


def forge(path, change):
    """Change what a file says, and compute its digest anew; ``change`` gets the tensors and the document."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    header = json.loads(metadata["training"])
    document = change(tensors, header["document"])
    header["document"] = header["document"] if document is None else document
    header["digest"] = checkpoints.digest_of(tensors, header["document"])
    save_file(tensors, path, metadata=metadata | {"training": json.dumps(header)})


def leaves(value, path=()):
    if isinstance(value, dict | list):
        yield path
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path


def set_leaf(document, path, odd):
    if not path:
        return odd
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = odd


def changed_tensors(name, value):
    yield name, None
    yield f"{name}x", value
    yield name, value.reshape(-1)[:-1].clone() if value.numel() > 1 else torch.zeros(5)
    yield name, value[None].clone()
    yield name, value.to(torch.int32 if value.is_floating_point() else torch.float32)
    yield name, torch.zeros_like(value)


@pytest.mark.parametrize("options", [{}, {"optimizer": momentum}], ids=["own", "momentum"])
def test_a_forged_file_is_refused_by_a_sentence_or_resumed(tmp_path, options):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 1))

    path, x, y = tmp_path / "a", X[:40], Y[:40]
    settings = {"epochs": 3, "batch_size": 32, "random_state": 0, **options}
    with pytest.raises(Crash):
        kw.train(make(), x, y, **settings, checkpoint=path, callbacks=[crash_after(2)])
    whole = path.read_bytes()
    seen = {}
    forge(path, lambda tensors, document: seen.update(tensors=tensors, document=document))
    assert len(kw.train(make(), x, y, **settings, checkpoint=path)) == 4  # the digest is right

    def outcome(change):
        path.write_bytes(whole)
        forge(path, change)
        net = make()
        try:
            kw.train(net, x, y, **settings, checkpoint=path)
            return "resumed"
        except DataError as error:
            sentence = str(error)
        assert sentence.endswith("is damaged; remove it to start over")
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), make().parameters(), strict=True))
        return "refused"

    # What the file holds of somebody's own optimiser may look like anything.
    foreign = "optimizer" in options
    odd_values, refused = (None, "x", -1, 10**30, [], {}), 0
    for number, leaf in enumerate(leaves(seen["document"])):
        for odd in odd_values[number % 3 :: 3]:
            if not (foreign and len(leaf) == 2 and leaf[0] == "optimiser"):
                refused += outcome(lambda _, document, leaf=leaf, odd=odd: set_leaf(document, leaf, odd)) == "refused"
    assert refused > 30
    for name, value in seen["tensors"].items():
        for new, odd in changed_tensors(name, value):
            if name.startswith("optimiser/") and foreign:
                continue

            def change(tensors, _, name=name, new=new, odd=odd):
                del tensors[name]
                if odd is not None:
                    tensors[new] = odd

            zeros = odd is not None and new == name and odd.shape == value.shape and odd.dtype == value.dtype
            assert outcome(change) == "refused" or zeros, (name, new)


def test_a_forged_setting_that_only_equals_the_right_one_is_refused(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(Crash):
        kw.train(start(), X, Y, **SETTINGS, checkpoint=path, callbacks=[crash_after(2)])
    settings = {}
    forge(path, lambda _, document: settings.update(document["optimiser"]))
    switches = [key for key, value in settings.items() if type(value) is bool]
    assert switches
    whole = path.read_bytes()
    for key in switches:
        path.write_bytes(whole)
        forge(path, lambda _, document, key=key: document["optimiser"].update({key: int(settings[key])}))
        with pytest.raises(DataError, match="is damaged; remove it to start over"):
            kw.train(start(), X, Y, **SETTINGS, checkpoint=path)


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    class Odd(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for p in self.param_groups[0]["params"]:
                self.state[p]["past"] = [1, 2]

    with pytest.raises(NetworkError, match=r"Odd has a list \(past\); use another optimiser, or no checkpoint"):
        kw.train(start(), X, Y, **SETTINGS, checkpoint=tmp_path / "a", optimizer=lambda p: Odd(p, lr=0.1))
    loader = [(X, Y)]
    with pytest.raises(NetworkError, match="a checkpoint needs rows in memory"):
        kw.train(start(), loader, validation=(X, Y), epochs=1, checkpoint=tmp_path / "b")


@pytest.mark.parametrize("make", [
    lambda **more: kw.SplineNetRegressor(n_members=1, hidden=(16, 16), epochs=6, dropout=0.2, **more),
    lambda **more: kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=6, label_smoothing=0.1, **more),
])  # fmt: skip
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_estimator_goes_on_from_its_checkpoint(tmp_path, monkeypatch, make, error):
    path = tmp_path / "a"
    y = np.digitize(Y, [1000.0, 1100.0]) if "Classifier" in type(make()).__name__ else Y
    expected = make(random_state=1).fit(X, y)
    model = make(random_state=1, checkpoint=str(path))
    real, steps = torch.optim.AdamW.step, iter(range(9))

    def failing(self, *args, **kwargs):
        if next(steps, None) is None:
            raise error("in the middle")
        return real(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", failing)
        before = dict(vars(model))
        with pytest.raises(error):
            model.fit(X, y)
    assert vars(model) == before
    assert path.exists()
    taken = []
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", lambda self, *a, **k: (taken.append(1), real(self, *a, **k))[1])
        model.fit(X, y)
    assert same((model.network_, model.history_), (expected.network_, expected.history_))
    assert model.spline_ == expected.spline_
    assert len(taken) < 6 * 2
    assert not path.exists()


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_SHARE", 0.05)
    clock = iter(np.arange(0.0, 1e6, 1.0))
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: next(clock))
    file = checkpoints.Checkpoint(tmp_path / "a")
    identity = checkpoints.Identity(0, "", "", "", "")
    assert file.is_due()
    file.write(identity, checkpoints.Saved({"a": torch.zeros(1)}, {}))  # took one tick
    assert sum(file.is_due() for _ in range(100)) == 81  # not the first twenty
