"""The sheet that figures of Plotly are drawn on: its axes, titles, legend, colour bars, shapes and annotations."""

import re
import sys

COLORWAY = ["#636efa", "#EF553B", "#00cc96", "#ab63fa", "#FFA15A", "#19d3f3", "#FF6692", "#B6E880", "#FF97FF", "#FECB52"]
# Points of a pixel at 100 dots an inch.
POINT = 0.72
_PLASMA = [[0.0, "#0d0887"], [0.25, "#7e03a8"], [0.5, "#cc4778"], [0.75, "#f89540"], [1.0, "#f0f921"]]
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[-+]\d\d:?\d\d)?)?")


def merged(layout):
    """A layout with what its template says besides."""

    def with_base(base, own):
        if not isinstance(base, dict) or not isinstance(own, dict):
            return own
        return {**base, **{name: with_base(base.get(name), each) for name, each in own.items()}}

    template = (layout.get("template") or {}).get("layout") or {}
    found = with_base(template, {name: each for name, each in layout.items() if name != "template"})
    for name in list(found):
        kind = re.fullmatch(r"([xy]axis|scene|polar|coloraxis)\d+", name)
        if kind:
            found[name] = with_base(template.get(kind[1]), found[name])
    return found


def text(value):
    """Words without the tags of HTML, and without mathematics."""
    if isinstance(value, dict):
        value = value.get("text")
    if value is None:
        return ""
    value = re.sub(r"<br\s*/?>", "\n", str(value))
    value = re.sub(r"</?[a-zA-Z][^>]*>", "", value)
    for name, char in (("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&amp;", "&")):
        value = value.replace(name, char)
    return value.replace("$", r"\$")


def colour(value, usual=None):
    """A colour as Matplotlib has it."""
    from matplotlib import colors

    if value is None or not isinstance(value, str):
        value = usual
    if not isinstance(value, str):
        return value
    numbers = re.fullmatch(r"rgba?\(([^)]*)\)", value.replace(" ", ""))
    if numbers:
        parts = [float(part.rstrip("%")) for part in numbers[1].split(",")]
        return (*(min(max(part / 255, 0), 1) for part in parts[:3]), min(max(parts[3], 0), 1) if len(parts) > 3 else 1.0)
    hue = re.fullmatch(r"hsla?\((.*?),(.*?)%,(.*?)%.*\)", value.replace(" ", ""))
    if hue:
        import colorsys

        return colorsys.hls_to_rgb(float(hue[1]) % 360 / 360, float(hue[3]) / 100, float(hue[2]) / 100)
    return value.lower() if colors.is_color_like(value.lower()) else usual


def colour_map(scale, is_reversed=False):
    """A colour scale, by its name or its colours, as a map of Matplotlib."""
    import matplotlib
    from matplotlib import colors

    if isinstance(scale, str):
        try:
            from plotly.colors import get_colorscale

            scale = get_colorscale(scale)
        except Exception:  # noqa: BLE001 - a name that neither knows
            found = matplotlib.colormaps.get(scale.lower(), matplotlib.colormaps["plasma"])
            return found.reversed() if is_reversed else found
    scale = scale if scale is not None and len(scale) else _PLASMA
    if not isinstance(scale[0], (list, tuple)):
        scale = [[number / max(len(scale) - 1, 1), each] for number, each in enumerate(scale)]
    found = colors.LinearSegmentedColormap.from_list("scale", [(float(at), colour(each, "grey")) for at, each in scale])
    return found.reversed() if is_reversed else found


def plain(values):
    """A list of a trace's values; None for what is not there."""
    return [] if values is None else [each.tolist() if hasattr(each, "tolist") else each for each in values]


def is_dates(values):
    """Whether these are moments, as texts or otherwise."""
    some = [each for each in values if each is not None][:50]
    return bool(some) and all(hasattr(each, "isoformat") or (isinstance(each, str) and _DATE.fullmatch(each)) for each in some)


class Axis:
    """One axis: numbers, moments or categories, and where on it values lie."""

    def __init__(self, name, layout, values):
        self.name, self.layout, self.categories = name, layout, None
        kind = layout.get("type")
        some = [each for each in values if each is not None]
        self.is_dates = kind == "date" or (kind in (None, "-") and is_dates(some))
        is_words = any(isinstance(each, str) for each in some[:200]) and not self.is_dates and not _are_numbers(some)
        if kind in ("category", "multicategory") or (kind in (None, "-") and is_words):
            self.categories = self._ordered(list(dict.fromkeys(map(str, some))))

    def _ordered(self, found):
        order, given = self.layout.get("categoryorder"), [str(each) for each in plain(self.layout.get("categoryarray"))]
        if order == "category descending":
            return sorted(found, reverse=True)
        if order == "category ascending":
            return sorted(found)
        return [*given, *(each for each in found if each not in given)]

    def places(self, values):
        """Numbers for values."""
        numpy = sys.modules["numpy"]
        values = plain(values)
        if self.categories is not None:
            at = {each: number for number, each in enumerate(self.categories)}
            return numpy.array([numpy.nan if each is None else at.get(str(each), each if isinstance(each, (int, float)) else numpy.nan) for each in values], float)
        if self.is_dates:
            from matplotlib import dates

            moments = sys.modules["pandas"].to_datetime(values, errors="coerce", utc=True, format="mixed").tz_localize(None)
            return numpy.array([numpy.nan if each is None else each for each in dates.date2num(moments.to_numpy())], float)
        return numpy.array([_number(each) for each in values], float)


def _are_numbers(values):
    return all(isinstance(each, (int, float)) or _number(each) == _number(each) for each in values[:200])


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


class Sheet:
    """A figure that is being drawn."""

    def __init__(self, figure, layout, shown, width, height):
        self.figure, self.layout, self.width, self.height = figure, layout, width, height
        self.colorway = [colour(each, "grey") for each in layout.get("colorway") or COLORWAY]
        font = layout.get("font") or {}
        self.ink = colour(font.get("color"), "#2a3f5f")
        self.size = float(font.get("size") or 12) * POINT
        self.shown, self.axes, self.axis_of, self.legend, self.bars, self.kept = shown, {}, {}, [], {}, {}
        self._measure(shown)

    def _measure(self, shown):
        """Decides how much is left for plots beside titles and the legend."""
        margin = {"l": 80, "r": 80, "t": 100, "b": 80, **{name: each for name, each in (self.layout.get("margin") or {}).items() if each is not None}}
        names = self._legend_names(shown)
        self.has_legend = self.layout.get("showlegend", len(names) > 1) and bool(names)
        legend = self.layout.get("legend") or {}
        if self.has_legend and legend.get("orientation") != "h" and (legend.get("x") or 1.02) >= 1:
            widest = max(len(line) for name in [*names, legend.get("title") or ""] for line in text(name).split("\n"))
            beside = 60 if any((each.get("overlaying") and each.get("side") == "right") for each in self.layout.values() if isinstance(each, dict)) else 0
            margin["r"] = max(margin["r"], min(75 + beside + 8 * widest, self.width // 2))
        if any(self._has_bar(trace) for trace in shown):
            margin["r"] += 60
        self.left, self.right = margin["l"] / self.width, 1 - margin["r"] / self.width
        self.bottom, self.top = margin["b"] / self.height, 1 - margin["t"] / self.height
        if self.right - self.left < 0.1 or self.top - self.bottom < 0.1:
            self.left, self.right, self.bottom, self.top = 0.12, 0.95, 0.12, 0.9

    def _legend_names(self, shown):
        found = []
        for trace in shown:
            if trace.get("type") in ("pie", "funnelarea"):
                found += [] if trace.get("showlegend") is False else [str(each) for each in plain(trace.get("labels"))]
            elif trace.get("showlegend") is not False and trace.get("type") not in ("heatmap", "contour", "table", "image", "surface", "histogram2d"):
                if trace.get("name") is not None or trace.get("showlegend"):
                    found.append(str(trace.get("name") or ""))
                elif trace.get("type", "scatter") in ("scatter", "bar", "box", "violin", "scattergl", "histogram"):
                    found.append(f"trace {len(found)}")
        return list(dict.fromkeys(found))

    def _has_bar(self, trace):
        marker = trace.get("marker") or {}
        if trace.get("type") in ("heatmap", "contour", "histogram2d", "surface", "histogram2dcontour"):
            return trace.get("showscale", True) is not False
        return bool(marker.get("coloraxis") or marker.get("showscale"))

    def box(self, x=(0, 1), y=(0, 1)):
        """The rectangle of a domain, in shares of the figure."""
        wide, high = self.right - self.left, self.top - self.bottom
        return [self.left + x[0] * wide, self.bottom + y[0] * high, max((x[1] - x[0]) * wide, 0.01), max((y[1] - y[0]) * high, 0.01)]

    def domain(self, trace, part=None):
        """The rectangle of a trace without axes, or of a part of the layout."""
        at = (self.layout.get(part) or {} if part else trace).get("domain") or {}
        return self.box(at.get("x") or (0, 1), at.get("y") or (0, 1))

    def of(self, trace):
        """The axes of a trace, and what its values on both are."""
        names = trace.get("xaxis") or "x", trace.get("yaxis") or "y"
        if names not in self.axes:
            self.axes[names] = self._made(*names)
        return self.axes[names]

    def _axis(self, name):
        if name not in self.axis_of:
            letter, number = name[0], name[1:]
            values = []
            for trace in self.shown:
                if (trace.get(f"{letter}axis") or letter) == name:
                    values += self._values(trace, letter)
            self.axis_of[name] = Axis(name, self.layout.get(f"{letter}axis{number}") or {}, values)
        return self.axis_of[name]

    def _values(self, trace, letter):
        given = plain(trace.get(letter))
        if given and isinstance(given[0], (list, tuple)):
            return [" ".join(map(str, each)) for each in zip(*given, strict=False)] if letter == "x" else []
        if not given and trace.get("type") in ("box", "violin"):
            is_across = trace.get("orientation") == "h" or ("y" not in trace and "x" in trace)
            if (letter == "x") != is_across:
                return [str(trace.get("name") or f"trace {self.shown.index(trace)}")]
        return given

    def _made(self, x_name, y_name):
        x, y = self._axis(x_name), self._axis(y_name)
        over = y.layout.get("overlaying")
        below = next((found[0] for names, found in self.axes.items() if over and names[1] == over), None)
        if over and below is None:
            below = self.of({"xaxis": x_name, "yaxis": over})[0]
        if below is not None:
            axes = below.twinx()
        else:
            axes = self.figure.add_axes(self.box(x.layout.get("domain") or (0, 1), y.layout.get("domain") or (0, 1)))
            axes.set_facecolor(colour(self.layout.get("plot_bgcolor"), "white"))
            axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)
        for axis, letter in ((x, "x"), (y, "y")):
            if axis.layout.get("type") == "log":
                getattr(axes, f"set_{letter}scale")("log")
        return axes, x, y

    def dress(self, axes, axis, letter, is_over):
        """Gives one axis its title, ticks, range and grid."""
        from matplotlib import dates, ticker

        of, layout = getattr(axes, f"{letter}axis"), axis.layout
        of.set_tick_params(labelsize=self.size, labelcolor=self.ink, length=0)
        if axis.categories is not None:
            few = axis.categories[:: max(1, len(axis.categories) // 40)]
            of.set_ticks([axis.categories.index(each) for each in few], labels=[text(each) for each in few])
        elif axis.is_dates:
            locator = dates.AutoDateLocator()
            of.set_major_locator(locator)
            of.set_major_formatter(dates.ConciseDateFormatter(locator))
        elif layout.get("type") != "log":
            of.set_major_formatter(ticker.FuncFormatter(_formatter(layout)))
        if layout.get("tickvals") is not None:
            words = plain(layout.get("ticktext")) or plain(layout["tickvals"])
            of.set_ticks(axis.places(layout["tickvals"]), labels=[text(each) for each in words])
        axes_title = text(layout.get("title"))
        if axes_title:
            getattr(axes, f"set_{letter}label")(axes_title, fontsize=14 * POINT, color=self.ink)
        shows_grid = layout.get("showgrid", True) and not is_over
        if shows_grid:
            of.grid(True, color=colour(layout.get("gridcolor"), "#EEEEEE"), linewidth=0.8)
        else:
            of.grid(False)
        if layout.get("visible") is False or layout.get("showticklabels") is False:
            of.set_tick_params(labelbottom=False, labelleft=False, labelright=False)
        if letter == "y" and layout.get("side") == "right":
            of.tick_right()
            of.set_label_position("right")
        angle = layout.get("tickangle")
        if letter == "x" and axis.categories is not None and angle is None:
            longest = max((len(each) for each in axis.categories), default=0)
            angle = -45 if longest * len(axis.categories) * 6.5 > axes.get_position().width * self.width else 0
        if angle:
            for label in of.get_ticklabels():
                label.set_rotation(-angle)
                label.set_ha("right" if angle < 0 else "left")
                label.set_rotation_mode("anchor")
        self._limit(axes, axis, letter)

    def _limit(self, axes, axis, letter):
        limits, layout = plain(axis.layout.get("range")), axis.layout
        if len(limits) == 2 and None not in limits:
            low, high = axis.places(limits)
            if layout.get("type") == "log":
                low, high = 10**low, 10**high
            getattr(axes, f"set_{letter}lim")(low, high)
        elif layout.get("autorange") == "reversed" or layout.get("autoreversed"):
            low, high = sorted(getattr(axes, f"get_{letter}lim")())
            getattr(axes, f"set_{letter}lim")(high, low)

    def colour_of(self, trace, part="marker"):
        """The one colour of a trace."""
        given = (trace.get(part) or {}).get("color")
        if part == "marker" and not isinstance(given, str):
            given = (trace.get("line") or {}).get("color") if trace.get("type", "scatter").startswith("scatter") else None
        return colour(given, self.colorway[trace["_number"] % len(self.colorway)])

    def name(self, trace, handle):
        """Puts a trace into the legend."""
        if trace.get("showlegend") is not False and handle is not None:
            if hasattr(handle, "get_offsets") and len(handle.get_facecolor()):
                from matplotlib.lines import Line2D

                handle = Line2D([], [], linestyle="", marker="o", color=handle.get_facecolor()[0], markersize=8 * POINT)
            self.legend.append((text(trace.get("name") if trace.get("name") is not None else f"trace {trace['_number']}"), handle))

    def scale_of(self, part):
        """The colours of values: a map, the ends, and the bar's settings; `part` says so, or the axis of colours that it names."""
        source = self.layout.get(part.get("coloraxis") or "", {}) if part.get("coloraxis") else part
        usual = (self.layout.get("colorscale") or {}).get("sequential")
        found = colour_map(source.get("colorscale") or usual, bool(source.get("reversescale")))
        low, high = source.get("cmin", source.get("zmin")), source.get("cmax", source.get("zmax"))
        return found, low, high, source

    def colour_bar(self, drawn, source, axes, key=None):
        """Draws the bar that says what colours mean, once for each axis of colours."""
        if source.get("showscale") is False or (key is not None and key in self.bars):
            return
        self.bars[key or len(self.bars)] = True
        high = self.top - self.bottom
        place = self.figure.add_axes([self.right + 20 / self.width, self.bottom + 0.05 * high, 18 / self.width, 0.9 * high])
        bar = self.figure.colorbar(drawn, cax=place)
        bar.outline.set_visible(False)
        place.tick_params(labelsize=self.size, labelcolor=self.ink, length=0)
        if title := text((source.get("colorbar") or {}).get("title")):
            place.set_title(title, fontsize=self.size, color=self.ink, loc="left")

    def finish(self):
        """Draws what lies around the traces."""
        for (_, y_name), (axes, x, y) in self.axes.items():
            is_over = bool(self._axis(y_name).layout.get("overlaying"))
            self.dress(axes, x, "x", is_over)
            self.dress(axes, y, "y", is_over)
        if title := text(self.layout.get("title")):
            size = float(((self.layout.get("title") or {}).get("font") or {}).get("size") or 17) * POINT if isinstance(self.layout.get("title"), dict) else 17 * POINT
            at = (self.layout["title"].get("x") if isinstance(self.layout["title"], dict) else None) or 0.05
            side = "left" if at < 0.4 else "center" if at < 0.6 else "right"
            self.figure.text(at, 1 - min(50, (1 - self.top) * self.height / 2) / self.height, title, fontsize=size, color=self.ink, ha=side, va="center")
        if self.has_legend and self.legend:
            self._draw_legend()
        for shape in self.layout.get("shapes") or ():
            self._draw_shape(shape)
        for note in self.layout.get("annotations") or ():
            self._annotate(note)

    def _draw_legend(self):
        layout = self.layout.get("legend") or {}
        handles = dict(reversed([*dict.fromkeys(self.legend)]))
        names = list(dict.fromkeys(name for name, _ in self.legend))
        is_across = layout.get("orientation") == "h"
        place = {"loc": "upper left", "bbox_to_anchor": (self.right + 0.01, self.top)}
        if is_across:
            place = {"loc": "lower left" if (layout.get("y") or 0) >= 1 else "upper left", "ncols": min(len(names), 6), "bbox_to_anchor": (self.left, self.top if (layout.get("y") or 0) >= 1 else self.bottom - 0.1)}
        elif layout.get("x") is not None and layout["x"] < 1:
            x, y = float(layout["x"]), float(layout.get("y") or 1)
            place = {"loc": f"{'upper' if y > 0.5 else 'lower'} {'left' if x < 0.5 else 'right'}", "bbox_to_anchor": (self.left + x * (self.right - self.left), self.bottom + y * (self.top - self.bottom))}
        if any((self._axis(names_[1]).layout.get("side") == "right") for names_ in self.axes) and not is_across:
            place["bbox_to_anchor"] = (self.right + 60 / self.width, self.top)
        made = self.figure.legend([handles[name] for name in names], names, frameon=False, fontsize=self.size, labelcolor=self.ink, title=text(layout.get("title")) or None, title_fontsize=self.size, **place)
        made.get_title().set_color(self.ink)

    def _spot(self, x, y, x_ref, y_ref, default="paper"):
        """A place as (coordinates, transformation): of axes, or of the whole sheet."""
        from matplotlib.transforms import blended_transform_factory

        names = [re.sub(" domain$", "", ref or default) for ref in (x_ref, y_ref)]
        wanted = [name if name != "paper" else None for name in names]
        found = next((each for pair, each in self.axes.items() if all(want in (None, name) for want, name in zip(wanted, pair, strict=True))), None)
        if found is None or wanted == [None, None]:
            return self.left + x * (self.right - self.left), self.bottom + y * (self.top - self.bottom), None, self.figure.transFigure
        axes, x_axis, y_axis = found
        is_share = [want is None or (ref or "").endswith(" domain") for want, ref in zip(wanted, (x_ref, y_ref), strict=True)]
        x = x if is_share[0] else x_axis.places([x])[0]
        y = y if is_share[1] else y_axis.places([y])[0]
        return x, y, axes, blended_transform_factory(axes.transAxes if is_share[0] else axes.transData, axes.transAxes if is_share[1] else axes.transData)

    def _draw_shape(self, shape):
        from matplotlib import lines, patches

        x0, y0, axes, way = self._spot(shape.get("x0", 0), shape.get("y0", 0), shape.get("xref"), shape.get("yref"))
        x1, y1, _, _ = self._spot(shape.get("x1", 1), shape.get("y1", 1), shape.get("xref"), shape.get("yref"))
        line = shape.get("line") or {}
        style = {"linewidth": float(line.get("width", 2)) * POINT, "linestyle": DASHES.get(line.get("dash"), "-"), "alpha": shape.get("opacity"), "transform": way, "zorder": 0.5 if shape.get("layer") == "below" else 3}
        edge = colour(line.get("color"), "#444")
        kind = shape.get("type", "rect")
        if kind == "line":
            made = lines.Line2D([x0, x1], [y0, y1], color=edge, **style)
        elif kind == "circle":
            made = patches.Ellipse(((x0 + x1) / 2, (y0 + y1) / 2), abs(x1 - x0), abs(y1 - y0), edgecolor=edge, facecolor=colour(shape.get("fillcolor"), "none"), **style)
        else:
            made = patches.Rectangle((min(x0, x1), min(y0, y1)), abs(x1 - x0), abs(y1 - y0), edgecolor=edge, facecolor=colour(shape.get("fillcolor"), "none"), **style)
        (axes or self.figure).add_artist(made)

    def _annotate(self, note):
        if note.get("visible") is False or note.get("x") is None or note.get("y") is None:
            return
        x, y, axes, way = self._spot(note["x"], note["y"], note.get("xref"), note.get("yref"))
        font = note.get("font") or {}
        anchors = {"left": "left", "right": "right", "middle": "center", "top": "top", "bottom": "bottom", "center": "center"}
        wide, high = anchors.get(note.get("xanchor"), "center"), anchors.get(note.get("yanchor"), "center")
        style = {"fontsize": float(font.get("size") or 12) * POINT, "color": colour(font.get("color"), self.ink), "ha": wide, "va": "center" if note.get("yanchor") in (None, "middle") else high}
        if note.get("textangle"):
            style["rotation"] = -float(note["textangle"])
        if note.get("showarrow", True) and axes is not None:
            ax, ay = float(note.get("ax", -10) or 0), float(note.get("ay", -30) or 0)
            axes.annotate(text(note.get("text")), (x, y), xycoords=way, xytext=(ax * POINT, -ay * POINT), textcoords="offset points", arrowprops={"arrowstyle": "->", "color": colour(note.get("arrowcolor"), self.ink)}, **style)
        else:
            self.figure.text(x, y, text(note.get("text")), transform=way, **style)


DASHES = {"dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": (0, (8, 3, 2, 3))}


def _formatter(layout):
    """How numbers beside an axis are written: as they are, with thousands, as percent or money where the figure says so."""
    form, before, after = layout.get("tickformat") or "", layout.get("tickprefix") or "", layout.get("ticksuffix") or ""
    known = re.fullmatch(r"(\$?)(,?)(?:\.(\d))?([fd%s]?)", form)

    def write(value, _place=None):
        if known and known[4] == "%":
            words = f"{value:.{known[3] or 0}%}"
        elif known and (known[2] or known[3] or known[4] in ("f", "d")):
            words = f"{value:{known[2]}.{known[3] or 0}f}"
        else:
            words = _short(value)
        return f"{before}{'$' if known and known[1] else ''}{words}{after}".replace("$", r"\$")

    return write


def _short(value):
    """A number as Plotly writes it: 1.5M, 20k, 0.25."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (1e4 if letter == "k" else size):
            return f"{value / size:.6g}{letter}"
    return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")
