"""Traces of Plotly, kind by kind: each function draws one on a sheet (`figure_axes.Sheet`)."""

import math
import sys

from _cellar_prelude.figure_axes import DASHES, POINT, colour, plain, text


def _numpy():
    return sys.modules["numpy"]


_SYMBOLS = {"circle": "o", "square": "s", "diamond": "D", "cross": "P", "x": "X", "triangle-up": "^", "triangle-down": "v", "triangle-left": "<", "triangle-right": ">", "star": "*", "pentagon": "p", "hexagon": "h"}


def _symbol(marker):
    given = marker.get("symbol")
    return _SYMBOLS.get(str(given).removesuffix("-open"), "o") if isinstance(given, str) else "o"


def _sizes(marker, usual=6.0):
    """Areas of markers in square points, from diameters in pixels."""
    numpy = _numpy()
    given = marker.get("size")
    if given is None:
        given = usual
    sizes = numpy.asarray(plain(given) if not isinstance(given, (int, float)) else given, float)
    if marker.get("sizeref") and sizes.ndim:
        shares = sizes / float(marker["sizeref"])
        sizes = numpy.sqrt(shares) if marker.get("sizemode") == "area" else shares
    return (numpy.maximum(numpy.nan_to_num(sizes), marker.get("sizemin") or 1) * POINT) ** 2


def _drops(values, count):
    """Values for as many places: those beyond are left out."""
    values = plain(values)
    return values[:count] + [None] * (count - len(values))


def _points(sheet, axes, xs, ys, trace, usual=6.0):
    """Draws markers; what to show in a legend."""
    marker = trace.get("marker") or {}
    opacity = marker.get("opacity", trace.get("opacity"))
    opacity = opacity if isinstance(opacity, (int, float)) else None
    edge = marker.get("line") or {}
    style = {"s": _sizes(marker, usual), "marker": _symbol(marker), "alpha": opacity, "linewidths": float(edge.get("width") or 0) * POINT if isinstance(edge.get("width"), (int, float)) else 0, "edgecolors": colour(edge.get("color"), "none")}
    given = marker.get("color")
    if given is not None and not isinstance(given, str):
        values = _drops(given, len(xs))
        if values and isinstance(next((each for each in values if each is not None), None), str):
            return axes.scatter(xs, ys, c=[colour(each, "grey") for each in values], **style)
        found, low, high, source = sheet.scale_of(marker)
        drawn = axes.scatter(xs, ys, c=_numpy().array([math.nan if each is None else each for each in values], float), cmap=found, vmin=low, vmax=high, **style)
        if marker.get("coloraxis") or marker.get("showscale"):
            sheet.colour_bar(drawn, {**source, "showscale": True}, axes, marker.get("coloraxis"))
        return drawn
    return axes.scatter(xs, ys, c=[sheet.colour_of(trace)], **style)


def _line_style(line):
    return {"linewidth": float(line.get("width") or 2) * POINT, "linestyle": DASHES.get(line.get("dash"), "-")}


def _bars_of_error(axes, xs, ys, trace, ink):
    for letter in "xy":
        error = trace.get(f"error_{letter}") or {}
        if error.get("visible") is False or not error:
            continue
        high = error.get("array")
        values = ys if letter == "y" else xs
        if high is None and error.get("value") is not None:
            high = abs(values) * float(error["value"]) / 100 if error.get("type", "percent") == "percent" else [float(error["value"])] * len(xs)
        if high is None:
            continue
        low = error.get("arrayminus")
        reach = _numpy().array([plain(low if low is not None else high), plain(high)], float)
        axes.errorbar(xs, ys, fmt="none", ecolor=colour(error.get("color"), ink), elinewidth=1.5 * POINT, capsize=3, **{f"{letter}err": reach})


def scatter(sheet, trace):
    """Lines, markers and words."""
    axes, x, y = sheet.of(trace)
    numpy = _numpy()
    given_x, given_y = trace.get("x"), trace.get("y")
    ys = y.places(given_y) if given_y is not None else numpy.arange(len(given_x), dtype=float)
    xs = x.places(given_x) if given_x is not None else numpy.arange(len(ys), dtype=float)
    count = min(len(xs), len(ys))
    xs, ys = xs[:count], ys[:count]
    mode = trace.get("mode") or ("lines+markers" if count < 20 and not trace.get("stackgroup") else "lines")
    line, ink, handle = trace.get("line") or {}, sheet.colour_of(trace, "line" if "lines" in mode else "marker"), None
    _bars_of_error(axes, xs, ys, trace, ink)
    if trace.get("stackgroup"):
        below = sheet.kept.get(("stack", trace["stackgroup"]))
        below = numpy.zeros(count) if below is None or len(below) != count else below
        ys = below + numpy.nan_to_num(ys)
        sheet.kept["stack", trace["stackgroup"]] = ys
        handle = axes.fill_between(xs, below, ys, color=colour(trace.get("fillcolor"), ink), alpha=None if trace.get("fillcolor") else 0.5, linewidth=0)
    elif trace.get("fill") in ("tozeroy", "tonexty", "toself", "tonext", "tozerox"):
        before = sheet.kept.get((trace.get("xaxis"), trace.get("yaxis")))
        under = before[1] if trace["fill"].startswith("tonext") and before is not None and len(before[1]) == count else 0
        paint = {"color": colour(trace.get("fillcolor"), ink), "alpha": None if trace.get("fillcolor") else 0.5, "linewidth": 0}
        handle = axes.fill(xs, ys, **paint)[0] if trace["fill"] == "toself" else axes.fill_between(xs, under, ys, **paint)
    if "lines" in mode and float(line.get("width", 2)) > 0:
        if line.get("shape") in ("hv", "vh", "hvh", "vhv"):
            [handle] = axes.step(xs, ys, where={"hv": "post", "vh": "pre"}.get(line["shape"], "mid"), color=ink, alpha=trace.get("opacity"), **_line_style(line))
        else:
            [handle] = axes.plot(xs, ys, color=ink, alpha=trace.get("opacity"), **_line_style(line))
    if "markers" in mode:
        marks = _points(sheet, axes, xs, ys, trace)
        handle = handle if handle is not None and "lines" in mode else marks
    if "text" in mode and trace.get("text") is not None:
        words = trace["text"] if not isinstance(trace["text"], str) else [trace["text"]] * count
        high = str(trace.get("textposition") or "middle").split(" ", maxsplit=1)[0] if isinstance(trace.get("textposition"), str) else "middle"
        shift = {"top": 6, "bottom": -6}.get(high, 0)
        for at_x, at_y, word in zip(xs, ys, plain(words), strict=False):
            axes.annotate(text(word), (at_x, at_y), xytext=(0, shift), textcoords="offset points", ha="center", va={"top": "bottom", "bottom": "top"}.get(high, "center"), fontsize=sheet.size, color=sheet.ink)
    sheet.kept[trace.get("xaxis"), trace.get("yaxis")] = xs, ys
    sheet.name(trace, handle)


def _siblings(sheet, trace):
    """Bars that stand on the same axes."""
    return [each for each in sheet.shown if each.get("type") in ("bar", "histogram", "funnel", "waterfall") and (each.get("xaxis") or "x", each.get("yaxis") or "y") == (trace.get("xaxis") or "x", trace.get("yaxis") or "y")]


def _stand(sheet, trace, places, values):
    """Where bars stand, how wide they are, and on what."""
    numpy = _numpy()
    mode = sheet.layout.get("barmode") or "group"
    siblings = _siblings(sheet, trace)
    unique = numpy.unique(places[~numpy.isnan(places)])
    step = float(numpy.diff(unique).min()) if len(unique) > 1 else 1.0
    wide = step * (1 - float(sheet.layout.get("bargap") if sheet.layout.get("bargap") is not None else 0.2))
    groups = list(dict.fromkeys(each.get("offsetgroup") or number for number, each in enumerate(siblings)))
    own = trace.get("offsetgroup") or next(number for number, each in enumerate(siblings) if each is trace)
    # Bars of one trace in the same place stand on each other, and with others where these are not beside them.
    is_beside, shift = mode == "group" and len(groups) > 1, 0.0
    if is_beside:
        share = wide / len(groups)
        wide, shift = share, share * (groups.index(own) + 0.5) - wide / 2
    if mode in ("stack", "relative") or len(unique) < numpy.count_nonzero(~numpy.isnan(places)):
        key = "bars", trace.get("xaxis"), trace.get("yaxis")
        sums = sheet.kept.setdefault(key, {}) if mode in ("stack", "relative") else {}
        base = []
        for at, value in zip(places, values, strict=True):
            sign = (float(at), mode != "stack" and value < 0)
            base.append(sums.get(sign, 0.0))
            sums[sign] = base[-1] + (0 if math.isnan(value) else float(value))
        return places + shift, wide, numpy.array(base)
    return places + shift, wide, numpy.zeros(len(places))


def _paint(sheet, trace, count):
    """The colours of bars: one, or one each, with the map of those that are numbers."""
    marker = trace.get("marker") or {}
    given = marker.get("color")
    if given is None or isinstance(given, str):
        return colour(given, sheet.colorway[trace["_number"] % len(sheet.colorway)]), None
    values = _drops(given, count)
    if any(isinstance(each, str) for each in values):
        return [colour(each, "grey") for each in values], None
    from matplotlib import cm, colors

    found, low, high, source = sheet.scale_of(marker)
    numbers = _numpy().array([math.nan if each is None else each for each in values], float)
    shown = cm.ScalarMappable(colors.Normalize(low if low is not None else _numpy().nanmin(numbers), high if high is not None else _numpy().nanmax(numbers)), found)
    return shown.to_rgba(numbers), (shown, source, marker)


def bar(sheet, trace):
    """Bars, upright or lying."""
    axes, x, y = sheet.of(trace)
    numpy = _numpy()
    lies = trace.get("orientation") == "h"
    of_place, of_value = (y, x) if lies else (x, y)
    names = trace.get("y" if lies else "x")
    given = trace.get("x" if lies else "y")
    if of_value.is_dates and trace.get("base") is not None:
        # Spans of time, in milliseconds from moments.
        values = numpy.array(plain(given), float) / 86_400_000
        trace["base"] = of_value.places(trace["base"])
    else:
        values = of_value.places(given)
    if names is not None and len(names) and isinstance(plain(names)[0], (list, tuple)):
        names = [" ".join(map(str, each)) for each in zip(*plain(names), strict=False)]
    places = of_place.places(names) if names is not None else numpy.arange(len(values), dtype=float)
    _draw_bars(sheet, trace, axes, places, values, lies)


def _draw_bars(sheet, trace, axes, places, values, lies, wide=None):
    numpy = _numpy()
    count = min(len(places), len(values))
    places, values = places[:count], values[:count]
    spots, width, base = _stand(sheet, trace, places, values)
    if wide is not None and width >= wide * 0.5:
        width = width / 0.8
    if trace.get("base") is not None:
        base = numpy.broadcast_to(numpy.asarray(plain(trace["base"]) if not isinstance(trace["base"], (int, float)) else trace["base"], float), count)
    ink, scaled = _paint(sheet, trace, count)
    edge = (trace.get("marker") or {}).get("line") or {}
    opacity = trace.get("opacity", (trace.get("marker") or {}).get("opacity"))
    style = {"color": ink, "alpha": opacity if isinstance(opacity, (int, float)) else None, "edgecolor": colour(edge.get("color"), "white"), "linewidth": float(edge.get("width", 0.5) if isinstance(edge.get("width", 0.5), (int, float)) else 0.5) * POINT}
    drawn = axes.barh(spots, values, width, base, **style) if lies else axes.bar(spots, values, width, base, **style)
    words = trace.get("text")
    if trace.get("texttemplate") and words is None:
        words = [_template(trace["texttemplate"], value) for value in values]
    if words is not None and not isinstance(words, str):
        inside = trace.get("textposition") in (None, "auto", "inside")
        axes.bar_label(drawn, labels=[text(_template(trace.get("texttemplate"), each) if trace.get("texttemplate") else f"{each:.10g}" if isinstance(each, float) else each) for each in _drops(words, count)], label_type="center" if inside else "edge", fontsize=sheet.size, color="white" if inside else sheet.ink)
    for letter in "xy":
        _bars_of_error(axes, values if lies else spots, spots if lies else values + base, {f"error_{letter}": trace.get(f"error_{letter}")}, sheet.ink)
    if scaled is not None and (scaled[2].get("coloraxis") or scaled[2].get("showscale")):
        sheet.colour_bar(scaled[0], {**scaled[1], "showscale": True}, axes, scaled[2].get("coloraxis"))
    sheet.name(trace, drawn)


def _template(form, value):
    """Words by a template such as `%{y:.2f}`."""
    import re

    def written(found):
        try:
            return format(float(value), (found[1] or ":g")[1:].replace("~s", "g").replace("s", "g"))
        except (TypeError, ValueError):
            return str(value)

    return re.sub(r"%\{[a-z]+(:[^}]*)?\}", written, form)


def _bins(trace, letter, values, is_dates):
    """The edges of the bins of a histogram: those that it names, or steps of round numbers."""
    numpy = _numpy()
    given = trace.get(f"{letter}bins") or {}
    values = values[~numpy.isnan(values)]
    if not len(values):
        return numpy.array([0.0, 1.0])
    if isinstance(given.get("size"), (int, float)) and not is_dates:
        start = float(given.get("start", numpy.floor(values.min() / given["size"]) * given["size"]))
        return numpy.arange(start, float(given.get("end", values.max())) + given["size"], given["size"])
    wanted = trace.get(f"nbins{letter}") or max(2.0, 2 * len(values) ** 0.4)
    rough = (values.max() - values.min()) / max(float(wanted), 1) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    if numpy.all(values == numpy.round(values)) and not is_dates:
        step = max(step, 1.0)
        first = math.floor(values.min() / step) * step - 0.5
    else:
        first = math.floor(values.min() / step) * step
    return numpy.arange(first, values.max() + step * 1.0001, step)


def _counted(trace, places, edges, weights):
    numpy = _numpy()
    how, norm = trace.get("histfunc") or "count", trace.get("histnorm") or ""
    counts = numpy.histogram(places, edges)[0].astype(float)
    found = counts
    if how in ("sum", "avg") and weights is not None:
        sums = numpy.histogram(places, edges, weights=weights)[0]
        found = sums if how == "sum" else numpy.divide(sums, counts, out=numpy.zeros_like(sums), where=counts > 0)
    elif how in ("min", "max") and weights is not None:
        at = numpy.digitize(places, edges) - 1
        found = numpy.array([getattr(weights[at == number], how)() if (at == number).any() else 0 for number in range(len(edges) - 1)], float)
    whole = found.sum() or 1
    if "percent" in norm:
        found = found * 100 / whole
    elif norm.startswith("probability"):
        found = found / whole
    if norm.endswith("density"):
        found = found / (whole if norm == "probability density" else 1) / numpy.diff(edges)
    return found.cumsum() if (trace.get("cumulative") or {}).get("enabled") else found


def histogram(sheet, trace):
    """Counts of values, upright or lying."""
    axes, x, y = sheet.of(trace)
    numpy = _numpy()
    lies = trace.get("orientation") == "h" or ("x" not in trace and "y" in trace)
    of, letter, other = (y, "y", "x") if lies else (x, "x", "y")
    places = of.places(trace.get(letter))
    weights = None if trace.get(other) is None else numpy.nan_to_num(numpy.array(plain(trace[other]), float))
    if of.categories is not None:
        edges = numpy.arange(-0.5, len(of.categories))
    else:
        # Histograms on the same axes share their bins.
        key = "bins", trace.get("bingroup") or (trace.get("xaxis"), trace.get("yaxis"))
        if key not in sheet.kept:
            every = [of.places(each.get(letter)) for each in _siblings(sheet, trace) if each.get("type") == "histogram" and each.get(letter) is not None]
            sheet.kept[key] = _bins(trace, letter, numpy.concatenate(every), of.is_dates)
        edges = sheet.kept[key]
    counts = _counted(trace, places, edges, weights)
    middles = (edges[1:] + edges[:-1]) / 2
    _draw_bars(sheet, trace, axes, middles, counts, lies, wide=edges[1] - edges[0] if of.categories is None else None)


def pie(sheet, trace):
    """Shares of a circle, which may have a hole."""
    numpy = _numpy()
    names, values = plain(trace.get("labels")), trace.get("values")
    values = [1.0] * len(names) if values is None else [float(each or 0) for each in plain(values)]
    names = names or list(range(len(values)))
    sums = {}
    for name, value in zip(names, values, strict=False):
        sums[str(name)] = sums.get(str(name), 0.0) + value
    order = list(sums) if trace.get("sort") is False else sorted(sums, key=lambda name: -sums[name])
    inks = [colour(each, "grey") for each in plain((trace.get("marker") or {}).get("colors"))]
    first = {name: inks[number] if number < len(inks) else sheet.colorway[number % len(sheet.colorway)] for number, name in enumerate(order if not inks else sums)}
    axes = sheet.figure.add_axes(sheet.domain(trace))
    whole, shows = sum(sums.values()) or 1, trace.get("textinfo") or "percent"
    words = []
    for name in order:
        parts = {"percent": f"{100 * sums[name] / whole:.3g}%", "label": text(name), "value": f"{sums[name]:g}"}
        words.append("\n".join(parts[part] for part in shows.split("+") if part in parts))
    pull = trace.get("pull")
    pulls = dict(zip(sums, plain(pull), strict=False)) if pull is not None and not isinstance(pull, (int, float)) else dict.fromkeys(sums, pull or 0)
    hole = float(trace.get("hole") or 0)
    drawn = axes.pie([sums[name] for name in order], colors=[first[name] for name in order], startangle=90 - float(trace.get("rotation") or 0), counterclock=trace.get("direction") == "counterclockwise" or (trace.get("sort") is not False and trace.get("direction") is None), explode=[float(pulls.get(name) or 0) for name in order], wedgeprops={"width": 1 - hole if hole else None, "alpha": trace.get("opacity")})
    for wedge, word, name in zip(drawn[0], words, order, strict=True):
        middle = math.radians((wedge.theta1 + wedge.theta2) / 2)
        at = (1 + hole) / 2 if hole else 0.65
        if sums[name] / whole > 0.02:
            axes.text(wedge.center[0] + at * math.cos(middle), wedge.center[1] + at * math.sin(middle), word, ha="center", va="center", fontsize=sheet.size, color="white" if numpy.mean(_rgb(first[name])) < 0.7 else sheet.ink)
        if trace.get("showlegend") is not False:
            sheet.legend.append((text(name), wedge))
    _titled(sheet, axes, trace)


def _rgb(ink):
    from matplotlib import colors

    return colors.to_rgb(ink)


def _titled(sheet, axes, trace):
    if title := text(trace.get("title")):
        axes.set_title(title, fontsize=sheet.size * 1.2, color=sheet.ink)


def _groups(sheet, trace, axes_of):
    """The values of boxes and violins, each with where it stands."""
    numpy = _numpy()
    _, x, y = axes_of
    lies = trace.get("orientation") == "h" or ("y" not in trace and "x" in trace)
    of_place, of_value = (y, x) if lies else (x, y)
    values = of_value.places(trace.get("x" if lies else "y"))
    names = trace.get("y" if lies else "x")
    places = of_place.places(names) if names is not None else of_place.places([str(trace.get("name") or f"trace {trace['_number']}")] * len(values))
    found = [(at, values[(places == at) & ~numpy.isnan(values)]) for at in numpy.unique(places[~numpy.isnan(places)])]
    kind = trace["type"]
    siblings = [each for each in sheet.shown if each.get("type") == kind and each.get("xaxis") == trace.get("xaxis") and each.get("yaxis") == trace.get("yaxis")]
    groups = list(dict.fromkeys(each.get("offsetgroup") or each.get("name") for each in siblings))
    wide, shift = 0.5, 0.0
    if sheet.layout.get(f"{kind}mode") == "group" and len(groups) > 1:
        wide = 0.7 / len(groups)
        shift = -0.35 + wide * (groups.index(trace.get("offsetgroup") or trace.get("name")) + 0.5)
    step = 1.0 if of_place.categories is not None or len(found) < 2 else float(numpy.diff([at for at, _ in found]).min())
    return [(at + shift * step, each) for at, each in found if len(each)], wide * step, lies


def box(sheet, trace):
    """Boxes with whiskers, and the values beyond."""
    axes_of = sheet.of(trace)
    axes, (found, wide, lies), ink = axes_of[0], _groups(sheet, trace, axes_of), sheet.colour_of(trace)
    line = {"color": colour((trace.get("line") or {}).get("color"), ink), "linewidth": 2 * POINT}
    fill = colour(trace.get("fillcolor"), (*_rgb(ink), 0.5))
    if not found:
        return
    drawn = axes.boxplot([each for _, each in found], positions=[at for at, _ in found], widths=wide * 0.9, orientation="horizontal" if lies else "vertical", patch_artist=True, manage_ticks=False, showmeans=bool(trace.get("boxmean")), meanline=True, notch=bool(trace.get("notched")), boxprops={"facecolor": fill, "edgecolor": line["color"], "linewidth": 2 * POINT}, medianprops=line, whiskerprops=line, capprops=line, meanprops={**line, "linestyle": "--"}, flierprops={"marker": "o", "markersize": 6 * POINT, "markerfacecolor": ink, "markeredgewidth": 0}, showfliers=trace.get("boxpoints") is not False)
    if trace.get("boxpoints") == "all":
        _jitter(axes, found, wide, lies, ink, trace.get("pointpos"))
    sheet.name(trace, drawn["boxes"][0])


def _jitter(axes, found, wide, lies, ink, beside=None):
    numpy = _numpy()
    for at, values in found:
        middle = at + (wide * (-0.7 if beside is None else 0.5 * float(beside)))
        spread = middle + numpy.random.default_rng(0).uniform(-0.15, 0.15, len(values)) * wide
        axes.scatter(*((values, spread) if lies else (spread, values)), s=(6 * POINT) ** 2, color=ink, linewidths=0)


def violin(sheet, trace):
    """Densities, mirrored."""
    axes_of = sheet.of(trace)
    axes, (found, wide, lies), ink = axes_of[0], _groups(sheet, trace, axes_of), sheet.colour_of(trace)
    numpy, shape = _numpy(), None
    for at, values in found:
        spread = values.std(ddof=1) if len(values) > 1 else 0
        bandwidth = 0.9 * (spread or 1) * len(values) ** -0.2
        along = numpy.linspace(values.min() - 2 * bandwidth, values.max() + 2 * bandwidth, 100)
        density = numpy.exp(-(((along[:, None] - values[None, :5000]) / bandwidth) ** 2) / 2).sum(axis=1)
        reach = density / density.max() * wide * 0.9
        fill = axes.fill_betweenx if not lies else axes.fill_between
        shape = fill(along, at - reach, at + reach, facecolor=(*_rgb(ink), 0.5), edgecolor=ink, linewidth=2 * POINT)
        if (trace.get("box") or {}).get("visible"):
            axes.boxplot([values], positions=[at], widths=wide * 0.2, orientation="horizontal" if lies else "vertical", manage_ticks=False, showfliers=False, medianprops={"color": ink}, boxprops={"color": ink}, whiskerprops={"color": ink}, capprops={"color": ink})
    if trace.get("points") == "all":
        _jitter(axes, found, wide, lies, ink)
    sheet.name(trace, shape)


def _grid(sheet, trace):
    numpy = _numpy()
    axes, x, y = sheet.of(trace)
    values = numpy.array([[math.nan if each is None else float(each) for each in plain(row)] for row in plain(trace["z"])], float)
    if trace.get("transpose"):
        values = values.T
    xs = x.places(trace["x"]) if trace.get("x") is not None else numpy.arange(values.shape[1], dtype=float)
    ys = y.places(trace["y"]) if trace.get("y") is not None else numpy.arange(values.shape[0], dtype=float)
    return axes, xs, ys, values


def _edges(middles):
    numpy = _numpy()
    if len(middles) < 2:
        return numpy.array([middles[0] - 0.5, middles[0] + 0.5])
    between = (middles[1:] + middles[:-1]) / 2
    return numpy.concatenate([[2 * middles[0] - between[0]], between, [2 * middles[-1] - between[-1]]])


def heatmap(sheet, trace):
    """A grid of colours."""
    axes, xs, ys, values = _grid(sheet, trace)
    _mesh(sheet, trace, axes, _edges(xs) if len(xs) == values.shape[1] else xs, _edges(ys) if len(ys) == values.shape[0] else ys, values)
    form, words = trace.get("texttemplate"), trace.get("text")
    if form and values.size <= 2500:
        shown = plain(words) if words is not None and "text" in form else values.tolist()
        for row, at_y in zip(shown, ys, strict=False):
            for word, at_x in zip(plain(row), xs, strict=False):
                axes.text(at_x, at_y, text(_template(form, word)) if word == word else "", ha="center", va="center", fontsize=sheet.size, color="white")


def _mesh(sheet, trace, axes, xs, ys, values):
    found, low, high, source = sheet.scale_of(trace)
    middle = source.get("cmid", source.get("zmid"))
    if middle is not None and low is None:
        reach = float(_numpy().nanmax(abs(values - middle)))
        low, high = middle - reach, middle + reach
    drawn = axes.pcolormesh(xs, ys, values, cmap=found, vmin=low, vmax=high, alpha=trace.get("opacity"))
    axes.grid(False)
    sheet.colour_bar(drawn, {**source, "showscale": trace.get("showscale", source.get("showscale", True))}, axes, trace.get("coloraxis"))


def contour(sheet, trace):
    """Lines of the same height, filled."""
    axes, xs, ys, values = _grid(sheet, trace)
    _contours(sheet, trace, axes, xs, ys, values)


def _contours(sheet, trace, axes, xs, ys, values):
    found, low, high, source = sheet.scale_of(trace)
    settings = trace.get("contours") or {}
    if settings.get("size"):
        levels = _numpy().arange(float(settings["start"]), float(settings["end"]) + settings["size"] / 2, float(settings["size"]))
    else:
        levels = min(int(trace.get("ncontours") or 15), 100)
    if settings.get("coloring") in ("lines", "none"):
        axes.contour(xs, ys, values, levels, **({"cmap": found} if settings["coloring"] == "lines" else {"colors": [sheet.colour_of(trace, "line")]}))
        return
    drawn = axes.contourf(xs, ys, values, levels, cmap=found, vmin=low, vmax=high)
    axes.contour(xs, ys, values, levels, colors="black", linewidths=0.5 * POINT)
    if settings.get("showlabels"):
        axes.clabel(axes.contour(xs, ys, values, levels, colors="black", linewidths=0), fontsize=sheet.size)
    sheet.colour_bar(drawn, {**source, "showscale": trace.get("showscale", True)}, axes, trace.get("coloraxis"))


def _counts(sheet, trace):
    numpy = _numpy()
    axes, x, y = sheet.of(trace)
    xs, ys = x.places(trace["x"]), y.places(trace["y"])
    edges = [numpy.arange(-0.5, len(of.categories)) if of.categories is not None else _bins(trace, letter, at, of.is_dates) for of, letter, at in ((x, "x", xs), (y, "y", ys))]
    weights = None if trace.get("z") is None else numpy.array(plain(trace["z"]), float)
    counts = numpy.histogram2d(xs, ys, edges)[0]
    if weights is not None:
        sums = numpy.histogram2d(xs, ys, edges, weights=weights)[0]
        counts = sums if trace.get("histfunc") != "avg" else numpy.divide(sums, counts, out=numpy.full_like(sums, numpy.nan), where=counts > 0)
    return axes, edges, counts.T


def histogram2d(sheet, trace):
    """Counts of pairs, as colours."""
    axes, edges, counts = _counts(sheet, trace)
    _mesh(sheet, trace, axes, *edges, counts)


def histogram2dcontour(sheet, trace):
    """Counts of pairs, as lines of the same height."""
    axes, edges, counts = _counts(sheet, trace)
    settings = trace.get("contours") or {}
    _contours(sheet, {**trace, "contours": {"coloring": "none", **settings} if settings.get("coloring") is None else settings}, axes, *((each[1:] + each[:-1]) / 2 for each in edges), counts)


def image(sheet, trace):
    """A picture of pixels."""
    numpy = _numpy()
    axes, _, y = sheet.of(trace)
    if trace.get("source"):
        import base64
        import io

        data = str(trace["source"]).partition(",")[2]
        pixels = numpy.asarray(sys.modules["PIL.Image"].open(io.BytesIO(base64.b64decode(data))))
    else:
        pixels = numpy.array(plain(trace["z"]), float)
        pixels = numpy.clip(pixels / 255, 0, 1)
    axes.imshow(pixels, zorder=1, aspect="auto" if (y.layout.get("scaleanchor") is None and y.layout.get("constrain") is None) else "equal")
    axes.grid(False)
    y.layout.setdefault("autoreversed", False)


def _space(sheet, trace):
    """The axes of a scene of three dimensions."""
    name = trace.get("scene") or "scene"
    if name not in sheet.kept:
        axes = sheet.figure.add_axes(sheet.domain(trace, name), projection="3d")
        layout = sheet.layout.get(name) or {}
        for letter in "xyz":
            title = text((layout.get(f"{letter}axis") or {}).get("title")) or letter
            getattr(axes, f"set_{letter}label")(title, fontsize=sheet.size, color=sheet.ink)
        axes.tick_params(labelsize=sheet.size * 0.8, labelcolor=sheet.ink)
        sheet.kept[name] = axes
    return sheet.kept[name]


def scatter3d(sheet, trace):
    """Points and lines in space."""
    numpy = _numpy()
    axes = _space(sheet, trace)
    xs, ys, zs = (numpy.array([math.nan if each is None else float(each) for each in plain(trace[letter])], float) for letter in "xyz")
    mode, marker, handle = trace.get("mode") or "lines+markers", trace.get("marker") or {}, None
    if "lines" in mode:
        [handle] = axes.plot(xs, ys, zs, color=sheet.colour_of(trace, "line"), **_line_style(trace.get("line") or {}))
    if "markers" in mode:
        given = marker.get("color")
        if given is not None and not isinstance(given, str):
            found, low, high, source = sheet.scale_of(marker)
            drawn = axes.scatter(xs, ys, zs, c=numpy.array(plain(given), float), cmap=found, vmin=low, vmax=high, s=_sizes(marker, 8), alpha=marker.get("opacity"))
            if marker.get("coloraxis") or marker.get("showscale"):
                sheet.colour_bar(drawn, {**source, "showscale": True}, axes, marker.get("coloraxis"))
        else:
            drawn = axes.scatter(xs, ys, zs, color=sheet.colour_of(trace), s=_sizes(marker, 8), alpha=marker.get("opacity"))
        handle = handle or drawn
    sheet.name(trace, handle)


def surface(sheet, trace):
    """A surface over a grid."""
    numpy = _numpy()
    axes = _space(sheet, trace)
    heights = numpy.array([plain(row) for row in plain(trace["z"])], float)
    xs = numpy.array(plain(trace["x"]), float) if trace.get("x") is not None else numpy.arange(heights.shape[1], dtype=float)
    ys = numpy.array(plain(trace["y"]), float) if trace.get("y") is not None else numpy.arange(heights.shape[0], dtype=float)
    if xs.ndim == 1:
        xs, ys = numpy.meshgrid(xs, ys)
    found, low, high, source = sheet.scale_of(trace)
    drawn = axes.plot_surface(xs, ys, heights, cmap=found, vmin=low, vmax=high, rcount=80, ccount=80, linewidth=0)
    sheet.colour_bar(drawn, {**source, "showscale": trace.get("showscale", True)}, axes, trace.get("coloraxis"))


def candlestick(sheet, trace):
    """Prices of days: open, high, low and close."""
    numpy = _numpy()
    axes, x, _ = sheet.of(trace)
    xs = x.places(trace["x"]) if trace.get("x") is not None else numpy.arange(len(trace["close"]), dtype=float)
    opened, high, low, closed = (numpy.array(plain(trace[name]), float) for name in ("open", "high", "low", "close"))
    wide = (float(numpy.diff(numpy.unique(xs)).min()) if len(xs) > 1 else 1.0) * 0.7
    inks = {True: colour(((trace.get("increasing") or {}).get("line") or {}).get("color"), "#3D9970"), False: colour(((trace.get("decreasing") or {}).get("line") or {}).get("color"), "#FF4136")}
    for rises in (True, False):
        here = (closed >= opened) == rises
        axes.vlines(xs[here], low[here], high[here], color=inks[rises], linewidth=2 * POINT)
        if trace["type"] == "ohlc":
            axes.hlines(opened[here], xs[here] - wide / 2, xs[here], color=inks[rises], linewidth=2 * POINT)
            axes.hlines(closed[here], xs[here], xs[here] + wide / 2, color=inks[rises], linewidth=2 * POINT)
        else:
            axes.bar(xs[here], abs(closed - opened)[here], wide, numpy.minimum(opened, closed)[here], color=inks[rises])


def waterfall(sheet, trace):
    """Bars that stand where the one before has ended."""
    numpy = _numpy()
    axes, x, y = sheet.of(trace)
    values, places = y.places(trace["y"]), x.places(trace.get("x"))
    kinds, level = plain(trace.get("measure")) or ["relative"] * len(values), 0.0
    inks = [colour(((trace.get(name) or {}).get("marker") or {}).get("color"), usual) for name, usual in (("increasing", "#3D9970"), ("decreasing", "#FF4136"), ("totals", "#4499FF"))]
    for at, value, kind in zip(places, numpy.nan_to_num(values), kinds, strict=False):
        if kind == "total":
            axes.bar(at, level, 0.8, color=inks[2])
            continue
        level = 0.0 if kind == "absolute" else level
        axes.bar(at, value, 0.8, level, color=inks[0] if value >= 0 else inks[1])
        level += value


def funnel(sheet, trace):
    """Stages, each a bar in the middle."""
    axes, x, y = sheet.of(trace)
    lies = trace.get("orientation", "h") == "h"
    values = (x if lies else y).places(trace["x" if lies else "y"])
    places = (y if lies else x).places(trace["y" if lies else "x"])
    ink, _ = _paint(sheet, trace, len(values))
    drawn = (axes.barh if lies else axes.bar)(places, values, 0.8, -values / 2, color=ink)
    axes.bar_label(drawn, labels=[f"{each:g}" for each in values], label_type="center", color="white", fontsize=sheet.size)
    if lies:
        y.layout.setdefault("autorange", "reversed")
        x.layout.setdefault("showticklabels", False)
    sheet.name(trace, drawn)


def _polar(sheet, trace):
    name = trace.get("subplot") or "polar"
    if name not in sheet.kept:
        layout = sheet.layout.get(name) or {}
        axes = sheet.figure.add_axes(sheet.domain(trace, name), projection="polar")
        axes.set_facecolor(colour(layout.get("bgcolor"), "white"))
        angular = layout.get("angularaxis") or {}
        axes.set_theta_direction(-1 if angular.get("direction") == "clockwise" else 1)
        axes.set_theta_offset(math.radians(float(angular.get("rotation") or (90 if angular.get("direction") == "clockwise" else 0))))
        axes.tick_params(labelsize=sheet.size, labelcolor=sheet.ink)
        limits = plain((layout.get("radialaxis") or {}).get("range"))
        if len(limits) == 2 and None not in limits:
            axes.set_ylim(*limits)
        sheet.kept[name] = axes
    return sheet.kept[name]


def _angles(sheet, axes, trace):
    """Angles in radians; of categories, shares of the circle, which are named."""
    numpy = _numpy()
    given = plain(trace.get("theta"))
    if any(isinstance(each, str) for each in given):
        names = list(dict.fromkeys(map(str, given)))
        angles = [2 * math.pi * names.index(str(each)) / len(names) for each in given]
        axes.set_xticks([2 * math.pi * number / len(names) for number in range(len(names))], [text(each) for each in names])
        return numpy.array(angles)
    angles = numpy.array([float(each) for each in given])
    return angles if trace.get("thetaunit") == "radians" else numpy.radians(angles)


def scatterpolar(sheet, trace):
    """Lines and points around a middle."""
    axes = _polar(sheet, trace)
    angles, reach, mode = _angles(sheet, axes, trace), _numpy().array(plain(trace["r"]), float), trace.get("mode") or "lines+markers"
    ink, handle = sheet.colour_of(trace, "line" if "lines" in mode else "marker"), None
    if trace.get("fill") == "toself":
        handle = axes.fill(angles, reach, color=colour(trace.get("fillcolor"), ink), alpha=None if trace.get("fillcolor") else 0.5)[0]
    if "lines" in mode:
        [handle] = axes.plot(angles, reach, color=ink, **_line_style(trace.get("line") or {}))
    if "markers" in mode:
        marks = _points(sheet, axes, angles, reach, trace)
        handle = handle or marks
    sheet.name(trace, handle)


def barpolar(sheet, trace):
    """Bars around a middle."""
    numpy = _numpy()
    axes = _polar(sheet, trace)
    angles, reach = _angles(sheet, axes, trace), numpy.array(plain(trace["r"]), float)
    base = sheet.kept.setdefault(("barpolar", trace.get("subplot")), {})
    below = numpy.array([base.get(float(each), 0.0) for each in angles])
    base.update((float(angle), low + value) for angle, low, value in zip(angles, below, reach, strict=True))
    drawn = axes.bar(angles, reach, 2 * math.pi / max(len(numpy.unique(angles)), 1) * 0.95, below, color=_paint(sheet, trace, len(reach))[0])
    sheet.name(trace, drawn)


def table(sheet, trace):
    """Rows of words."""
    numpy = _numpy()
    head = [text(each[0] if isinstance(each, (list, tuple)) else each) for each in plain((trace.get("header") or {}).get("values"))]
    columns = [[text(each) for each in plain(column)] for column in plain((trace.get("cells") or {}).get("values"))]
    axes = sheet.figure.add_axes(sheet.domain(trace))
    axes.axis("off")
    rows = [list(each) for each in zip(*columns, strict=False)][:200]
    if not rows and not head:
        return
    fill = ((trace.get("header") or {}).get("fill") or {}).get("color")
    made = axes.table(cellText=rows or [[""] * len(head)], colLabels=head or None, loc="upper center", cellLoc="center", colColours=[colour(fill if isinstance(fill, str) else None, "#C8D4E3")] * len(head) if head else None)
    made.auto_set_font_size(False)
    made.set_fontsize(sheet.size)
    made.scale(1, float(numpy.clip(20 / max(len(rows) + 1, 1), 1, 1.6)))


def _tree(trace):
    """The parts of a hierarchy: children by the number of their parent, and how much each is."""
    names, parents = plain(trace.get("labels")), [str(each or "") for each in plain(trace.get("parents"))]
    ids = [str(each) for each in plain(trace.get("ids"))] or [str(each) for each in names]
    given = [float(each or 0) for each in plain(trace.get("values"))] or [0.0] * len(ids)
    at = {each: number for number, each in enumerate(ids)}
    children = {}
    for number, parent in enumerate(parents):
        children.setdefault(at.get(parent) if parent != ids[number] else None, []).append(number)
    sizes, seen = {}, set()

    def size(number):
        if number in seen:
            raise ValueError("the hierarchy is a circle")
        seen.add(number)
        below = sum(map(size, children.get(number, ())))
        sizes[number] = (max(given[number], below) if trace.get("branchvalues") == "total" else given[number] + below) or (0.0 if children.get(number) else 1.0 if not any(given) else 0.0)
        return sizes[number]

    for number in children.get(None, ()):
        size(number)
    return names, children, sizes


def _inks(sheet, trace, children):
    """The colours of a hierarchy: given, by numbers, or those of the first parts."""
    marker, count = trace.get("marker") or {}, len(plain(trace.get("labels")))
    given = plain(marker.get("colors"))
    if given and not isinstance(given[0], str):
        return list(_paint(sheet, {**trace, "marker": {**marker, "color": given}}, count)[0])
    roots = children.get(None, [])
    firsts = children.get(roots[0], []) if len(roots) == 1 else roots
    found = [colour("#EEEEEE")] * count

    def spread(number, ink):
        found[number] = ink
        for child in children.get(number, ()):
            spread(child, ink)

    for place, number in enumerate(firsts):
        spread(number, sheet.colorway[place % len(sheet.colorway)])
    return [colour(given[number], ink) if number < len(given) and given[number] else ink for number, ink in enumerate(found)]


def treemap(sheet, trace):
    """A hierarchy as rectangles in rectangles."""
    from matplotlib import patches

    names, children, sizes = _tree(trace)
    inks, axes = _inks(sheet, trace, children), sheet.figure.add_axes(sheet.domain(trace))
    axes.axis("off")

    def fill(parts, left, low, wide, high, depth):
        parts = sorted((each for each in parts if sizes[each] > 0), key=lambda each: -sizes[each])
        while parts:
            whole = sum(sizes[each] for each in parts)
            taken = [parts.pop(0)]
            while parts and sum(sizes[each] for each in taken) / whole < 0.35:
                taken.append(parts.pop(0))
            share = sum(sizes[each] for each in taken) / whole
            upright = wide >= high
            at = low if upright else left
            for each in taken:
                part = sizes[each] / (whole * share)
                spot = (left, at, wide * share, high * part) if upright else (at, low + high * (1 - share), wide * part, high * share)
                at += high * part if upright else wide * part
                place(each, *spot, depth)
            left, wide, high = (left + wide * share, wide * (1 - share), high) if upright else (left, wide, high * (1 - share))

    def place(number, left, low, wide, high, depth):
        axes.add_patch(patches.Rectangle((left, low), wide, high, facecolor=inks[number], edgecolor="white", linewidth=1.2))
        below, room = children.get(number, ()), min(0.06, high * 0.25)
        if wide * sheet.width > 40 and high * sheet.height > 18:
            word = text(names[number])[: max(int(wide * sheet.width / 8), 3)]
            axes.text(left + 0.008, low + high - 0.01, word, ha="left", va="top", fontsize=sheet.size, color=sheet.ink if depth == 0 and below else "white", clip_on=True)
        if below and depth < 8:
            fill(below, left + 0.006, low + 0.006, max(wide - 0.012, 0), max(high - room, 0), depth + 1)

    fill(children.get(None, ()), 0, 0, 1, 1, 0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def sunburst(sheet, trace):
    """A hierarchy as rings; as columns of rectangles, an icicle."""
    from matplotlib import patches

    names, children, sizes = _tree(trace)
    inks, axes, is_flat = _inks(sheet, trace, children), sheet.figure.add_axes(sheet.domain(trace)), trace["type"] == "icicle"
    axes.axis("off")

    def levels(number):
        return 1 + max(map(levels, children.get(number, ())), default=0)

    deep = max(map(levels, children.get(None, ())), default=1)

    def place(number, depth, first, last):
        low, high = depth / deep, (depth + 1) / deep
        if is_flat:
            axes.add_patch(patches.Rectangle((low, 1 - last), high - low, last - first, facecolor=inks[number], edgecolor="white"))
            spot = (low + high) / 2, 1 - (first + last) / 2
        else:
            axes.add_patch(patches.Wedge((0, 0), high, 360 * first, 360 * last, width=high - low, facecolor=inks[number], edgecolor="white"))
            turn = math.pi * (first + last)
            spot = ((low + high) / 2 * math.cos(turn), (low + high) / 2 * math.sin(turn)) if depth or last - first < 1 else (0, 0)
        if last - first > 0.025:
            axes.text(*spot, text(names[number]), ha="center", va="center", fontsize=sheet.size, color="white" if depth else sheet.ink)
        at, whole = first, max(sizes[number], sum(sizes[each] for each in children.get(number, ()))) or 1
        for child in children.get(number, ()):
            reach = (last - first) * sizes[child] / whole
            place(child, depth + 1, at, at + reach)
            at += reach

    at, whole = 0.0, sum(sizes[each] for each in children.get(None, ())) or 1
    for number in children.get(None, ()):
        place(number, 0, at, at + sizes[number] / whole)
        at += sizes[number] / whole
    axes.set_xlim(*((0, 1) if is_flat else (-1.05, 1.05)))
    axes.set_ylim(*((0, 1) if is_flat else (-1.05, 1.05)))
    if not is_flat:
        axes.set_aspect("equal")


def indicator(sheet, trace):
    """One number, in large."""
    axes = sheet.figure.add_axes(sheet.domain(trace))
    axes.axis("off")
    value, before = trace.get("value"), (trace.get("delta") or {}).get("reference")
    number = trace.get("number") or {}
    words = f"{number.get('prefix') or ''}{value:g}{number.get('suffix') or ''}" if value is not None else ""
    axes.text(0.5, 0.5, text(words), ha="center", va="center", fontsize=40, color=sheet.ink, transform=axes.transAxes)
    if before is not None and "delta" in (trace.get("mode") or "number"):
        change = value - before
        axes.text(0.5, 0.25, f"{'▲' if change >= 0 else '▼'}{abs(change):g}", ha="center", fontsize=18, color="#3D9970" if change >= 0 else "#FF4136", transform=axes.transAxes)
    if "gauge" in (trace.get("mode") or ""):
        limits = plain(((trace.get("gauge") or {}).get("axis") or {}).get("range")) or [0, value or 1]
        place = axes.inset_axes([0.1, 0.02, 0.8, 0.1])
        place.barh([0], [value - limits[0]], left=limits[0], color=colour(((trace.get("gauge") or {}).get("bar") or {}).get("color"), "green"))
        place.set_xlim(*limits)
        place.set_yticks([])
    _titled(sheet, axes, trace)


DRAWN = {
    "scatter": scatter, "scattergl": scatter, "bar": bar, "histogram": histogram, "pie": pie, "funnelarea": pie, "box": box, "violin": violin,
    "heatmap": heatmap, "contour": contour, "histogram2d": histogram2d, "histogram2dcontour": histogram2dcontour, "image": image,
    "scatter3d": scatter3d, "surface": surface, "candlestick": candlestick, "ohlc": candlestick, "waterfall": waterfall, "funnel": funnel,
    "scatterpolar": scatterpolar, "scatterpolargl": scatterpolar, "barpolar": barpolar, "table": table, "treemap": treemap, "sunburst": sunburst,
    "icicle": sunburst, "indicator": indicator,
}  # fmt: skip
