"""What a figure of Matplotlib shows, as data, in the shapes that E2B's clients have for charts: lines, points, bars, sectors,
boxes, and several of these. Sandboxes of theirs are told so by their environment; nobody else reads it.
"""

import json
import os
import re
import sys

TYPE = "application/vnd.e2b.chart+json"
# Points of a chart; one with more has only its picture.
POINTS = 10_000
_VARIABLE = "E2B_SANDBOX"


def begin():
    """Has boxes remembered, which are only lines once they are drawn."""
    from matplotlib.axes import Axes

    own = Axes.bxp

    def bxp(self, bxpstats, *args, **options):
        self._cellar_boxes = [*getattr(self, "_cellar_boxes", ()), *map(dict, bxpstats)][:1000]
        return own(self, bxpstats, *args, **options)

    bxp.__doc__, bxp.__name__ = own.__doc__, "bxp"
    Axes.bxp = bxp


def represent(figure):
    """The chart as plain data; None where nobody asks for it, or it has other things than charts."""
    if _VARIABLE not in os.environ:
        return None
    try:
        found = [chart for axes in figure.axes if axes.get_label() != "<colorbar>" and (chart := _chart(axes)) is not None]
        if not found:
            return None
        title = figure.get_suptitle() or None
        whole = found[0] if len(found) == 1 else {"type": "superchart", "title": title, "elements": found}
        return json.loads(json.dumps(whole, allow_nan=False, default=_value))
    except Exception:  # noqa: BLE001 - a picture is shown all the same
        return None


def _value(value):
    return value.item() if hasattr(value, "item") else str(value)


def _chart(axes):
    """The chart of one pair of axes."""
    from matplotlib import collections, lines, patches

    drawn = [each for each in axes.get_children() if each in axes._children and each.get_visible()]
    wedges = [each for each in drawn if isinstance(each, patches.Wedge)]
    points = [each for each in drawn if isinstance(each, collections.PathCollection) and len(each.get_offsets())]
    # Lines across the whole, such as those of `axhline`, are no data.
    known = [each for each in drawn if isinstance(each, lines.Line2D) and each.get_transform() == axes.transData and len(each.get_xdata())]
    bars = [each for each in axes.containers if getattr(each, "orientation", None)]
    if getattr(axes, "_cellar_boxes", None):
        return {**_labels(axes, "box_and_whisker"), "elements": _boxes(axes)}
    if wedges:
        return {"type": "pie", "title": _title(axes), "elements": [{"label": _name(each), "angle": each.theta2 - each.theta1, "radius": each.r} for each in wedges]}
    if bars and sum(len(each) for each in bars) <= POINTS:
        return {**_labels(axes, "bar", bars[0].orientation == "horizontal"), "elements": [bar for each in bars for bar in _bars(axes, each)]}
    if known and sum(len(each.get_xdata()) for each in known) <= POINTS:
        return {**_labels(axes, "line"), **_scales(axes, known), "elements": [_points(each) for each in known]}
    if points and sum(len(each.get_offsets()) for each in points) <= POINTS:
        places = [[[_number(part) for part in place] for place in each.get_offsets().tolist()] for each in points]
        return {**_labels(axes, "scatter"), **_scales(axes, ()), "elements": [{"label": _name(each), "points": _dated(axes, place)} for each, place in zip(points, places, strict=True)]}
    return None


def _title(axes):
    return axes.get_title() or axes.get_title("left") or axes.get_title("right") or None


def _name(drawn):
    name = str(drawn.get_label() or "")
    return "" if name.startswith("_") else name


def _labels(axes, kind, is_turned=False):
    words = {"x": axes.get_xlabel() or None, "y": axes.get_ylabel() or None}
    if is_turned:
        words = {"x": words["y"], "y": words["x"]}
    units = {letter: (re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", text) or [None, None])[1] if text else None for letter, text in words.items()}
    return {"type": kind, "title": _title(axes), "x_label": words["x"], "y_label": words["y"], "x_unit": units["x"], "y_unit": units["y"]}


def _is_dated(axis):
    converter = type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__
    return "Date" in converter or "Period" in converter or "Time" in converter


def _scales(axes, known):
    """Scales and ticks of both axes."""
    from matplotlib import category

    found = {}
    for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        is_words = isinstance(axis.units, category.UnitData)
        is_dates = _is_dated(axis) or any(_is_moment(next(iter(getattr(line, f"get_{letter}data")(orig=True)), None)) for line in known)
        ticks, limits = [float(tick) for tick in axis.get_majorticklocs()], sorted(axis.get_view_interval())
        texts = [label.get_text() for label in axis.get_majorticklabels()]
        shown = [(tick, text) for tick, text in zip(ticks, texts, strict=False) if limits[0] <= tick <= limits[1]]
        found[f"{letter}_ticks"] = [text for _, text in shown] if is_dates or is_words else [_number(tick) for tick, _ in shown]
        found[f"{letter}_tick_labels"] = [text for _, text in shown]
        found[f"{letter}_scale"] = "datetime" if is_dates else "categorical" if is_words else axis.get_scale()
    return found


def _is_moment(value):
    return hasattr(value, "isoformat") or hasattr(value, "to_timestamp") or type(value).__name__ == "datetime64"


def _place(value):
    """A value of an axis as JSON has it."""
    if hasattr(value, "to_timestamp"):
        value = value.to_timestamp()
    if type(value).__name__ == "datetime64":
        value = sys.modules["pandas"].Timestamp(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return _number(value)


def _number(value):
    value = value.item() if hasattr(value, "item") else value
    return value if not isinstance(value, float) or abs(value) < float("inf") else None


def _points(line):
    pairs = zip(line.get_xdata(orig=True), line.get_ydata(orig=True), strict=False)
    return {"label": _name(line), "points": [[_place(x), _place(y)] for x, y in pairs]}


def _dated(axes, places):
    """Points whose axes have moments, which are numbers of days once they are drawn, and words, which are numbers too."""
    from matplotlib import category, dates

    for number, axis in enumerate((axes.xaxis, axes.yaxis)):
        words = {at: word for word, at in axis.units._mapping.items()} if isinstance(axis.units, category.UnitData) else None
        for place in places:
            if words is not None:
                place[number] = words.get(place[number], place[number])
            elif _is_dated(axis) and place[number] is not None:
                place[number] = dates.num2date(place[number]).replace(tzinfo=None).isoformat()
    return places


def _bars(axes, container):
    """The bars of one group, each by the word below it."""
    is_turned = container.orientation == "horizontal"
    axis = axes.yaxis if is_turned else axes.xaxis
    named = [(tick, label.get_text()) for tick, label in zip(map(float, axis.get_majorticklocs()), axis.get_majorticklabels(), strict=False)]
    found = []
    for bar in container:
        wide, at, value = (bar.get_height(), bar.get_y(), bar.get_width()) if is_turned else (bar.get_width(), bar.get_x(), bar.get_height())
        middle = at + wide / 2
        near = min(named, key=lambda tick: abs(tick[0] - middle), default=None)
        # Bars of a group stand beside their tick.
        reach = max(abs(wide) * max(len(axes.containers), 1) / 2, 1e-9) * 1.01
        label = near[1] if near is not None and near[1] and abs(near[0] - middle) <= reach else f"{middle:g}"
        found.append({"label": label, "group": _name(container), "value": _number(value)})
    return found


def _boxes(axes):
    ticks = [label.get_text() for label in axes.get_xticklabels()] or [label.get_text() for label in axes.get_yticklabels()]
    if not any(ticks):
        ticks = [label.get_text() for label in axes.get_yticklabels()]
    boxes, found = axes._cellar_boxes, []
    for number, box in enumerate(boxes):
        label = str(box.get("label") or (ticks[number] if len(ticks) == len(boxes) else number + 1))
        ends = {"min": "whislo", "first_quartile": "q1", "median": "med", "third_quartile": "q3", "max": "whishi"}
        found.append({"label": label, **{name: _number(box[key]) for name, key in ends.items()}, "outliers": [_number(each) for each in list(box.get("fliers", ()))[:POINTS]]})
    return found
