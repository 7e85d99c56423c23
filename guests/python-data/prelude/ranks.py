"""What pandas asks SciPy for and does without it here: correlations by ranks, and densities."""

import sys

import numpy as np


def _ranks(values):
    return sys.modules["pandas"].Series(values).rank().to_numpy()


def _spearman(first, second):
    return np.corrcoef(np.column_stack((_ranks(first), _ranks(second))), rowvar=False)[1, 0]


def _pairs_within(values):
    """How many pairs have the same value."""
    counts = np.unique(values, return_counts=True, axis=0)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _kendall(first, second):
    """Tau-b: pairs in order less those out of order, by the pairs that are no ties."""
    first, second = (np.asarray(each, dtype=float) for each in (first, second))
    count = len(first)
    agreeing = sum(
        int((np.sign(first[at + 1 :] - first[at]) * np.sign(second[at + 1 :] - second[at])).sum()) for at in range(count - 1)
    )
    pairs = count * (count - 1) // 2
    untied = [pairs - _pairs_within(each) for each in (first, second)]
    if 0 in untied:
        return np.nan
    return float(np.clip(agreeing / np.sqrt(untied[0]) / np.sqrt(untied[1]), -1, 1))


def _plot_density(cls, ax, y, style=None, bw_method=None, weights=None, ind=None, column_num=None, stacking_id=None, **options):
    # seaborn has brought it along.
    from seaborn.external.kde import gaussian_kde

    module = sys.modules["pandas.plotting._matplotlib.hist"]
    density = gaussian_kde(module.remove_na_arraylike(y), bw_method=bw_method, weights=weights)
    return module.MPLPlot._plot(ax, ind, density.evaluate(ind), style=style, **options)


def begin():
    """Has pandas use these."""
    operations = sys.modules["pandas.core.nanops"]
    own = operations.get_corr_func

    def get_corr_func(method):
        return {"kendall": _kendall, "spearman": _spearman}.get(method) or own(method)

    operations.get_corr_func = get_corr_func
    sys.modules["pandas.plotting._matplotlib.hist"].KdePlot._plot = classmethod(_plot_density)
