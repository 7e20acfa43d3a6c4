"""Fill the API page with every public name, in the order of the table below; new names come last by themselves."""

import knotwork

FIRST = (
    "MarsRegressor", "MarsClassifier", "SplineNetRegressor", "SplineNetClassifier", "Spline", "Linear", "Hinge",
    "to_network", "fold", "Scaling", "widen", "deepen", "reshape", "init_", "init_head_", "with_spline",
    "train", "save", "load", "export_onnx",
)  # fmt: skip
# What public functions return, hand to callbacks, or raise; none is a name of the package itself.
RETURNED = (
    "knotwork.network.train.history.History", "knotwork.network.train.train.Epoch",
    "knotwork.network.start.init.InitReport", "knotwork.network.start.heads.HeadReport",
    "knotwork.export.check.Exported", "knotwork.export.feed.onnx_feed", "knotwork.errors",
)  # fmt: skip


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != "api.md":
        return markdown
    homes = knotwork._HOME
    names = [name for name in FIRST if name in homes] + [name for name in homes if name not in FIRST]
    directives = [f"::: {homes[name]}.{name}" for name in names]
    directives += [f"::: {home}" for home in knotwork._MODULES.values()]
    directives += [f"::: {home}" for home in RETURNED]
    return markdown + "\n\n" + "\n\n".join(directives) + "\n"
