# What CPython is compiled to be fast at: a mixture of what programs in cells do. What runs here often is laid out for
# speed, so everything that matters should run, and nothing much longer than the rest. What the programs never reach is
# compiled as if there were no profile.
import _frozen_importlib as bootstrap
import sys

import training


class Library:
    """Imports from the library's sources alone. It lists no folder, whose order differs from machine to machine."""

    def find_spec(self, name, path, target=None):
        for tail, is_package in (".py", False), ("/__init__.py", True):
            file = f"/cpython/Lib/{name.replace('.', '/')}{tail}"
            try:
                with open(file, encoding="utf-8") as opened:
                    source = opened.read()
            except OSError:
                continue
            return bootstrap.ModuleSpec(name, self, origin=file, loader_state=source, is_package=is_package)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(module.__spec__.loader_state, module.__spec__.origin, "exec"), vars(module))


# Only modules that are built in, or frozen, have been imported otherwise.
sys.meta_path[2:] = [Library()]

import ast
import base64
import bisect
import calendar
import collections
import contextlib
import copy
import csv
import dataclasses
import datetime
import decimal
import difflib
import enum
import fractions
import functools
import hashlib
import heapq
import html
import io
import itertools
import json
import math
import operator
import pickle
import random
import re
import shlex
import statistics
import string
import struct
import textwrap
import traceback
import types
import unicodedata
import urllib.parse

WORDS = "the quick brown fox jumps over lazy dogs while seven wizards quietly boil Zinc größer as ñandú".split()


class Shape:
    """Classes with properties, slots, operators and inheritance."""

    __slots__ = ("name", "_scale")
    count = 0

    def __init__(self, name, scale=1.0):
        self.name = name
        self._scale = scale
        Shape.count += 1

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        self._scale = value

    def area(self):
        raise NotImplementedError(self.name)

    def __lt__(self, other):
        return self.area() < other.area()

    def __eq__(self, other):
        return isinstance(other, Shape) and self.area() == other.area()

    def __hash__(self):
        return hash((self.name, self._scale))

    def __repr__(self):
        return f"<{type(self).__name__} {self.name} {self.area():.2f}>"


class Circle(Shape):
    __slots__ = ("radius",)

    def __init__(self, radius):
        super().__init__("circle", scale=2.0)
        self.radius = radius

    def area(self):
        return math.pi * self.radius**2 * self.scale


class Box(Shape):
    def __init__(self, width, height, **details):
        super().__init__("box")
        self.width, self.height = width, height
        self.details = details

    def area(self):
        return self.width * self.height

    def __add__(self, other):
        return Box(self.width + other.width, max(self.height, other.height))

    def __getitem__(self, key):
        return self.details[key]

    def __len__(self):
        return len(self.details)

    def __getattr__(self, name):
        if name.startswith("x_"):
            return self.details.get(name[2:])
        raise AttributeError(name)


class Account:
    """Plain objects with a dictionary."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount, note=""):
        if amount <= 0:
            raise ValueError(f"cannot deposit {amount}")
        self.balance += amount
        self.history.append((amount, note))
        return self

    @classmethod
    def of(cls, pair):
        return cls(*pair)

    @staticmethod
    def fee(amount):
        return amount // 100 + 1


def objects():
    shapes = [Circle(n % 7 + 1) if n % 3 else Box(n % 5 + 1, n % 11 + 1, id=n, tag="t") for n in range(700)]
    total = sum(shape.area() for shape in sorted(shapes))
    joined = functools.reduce(operator.add, (shape for shape in shapes if isinstance(shape, Box)))
    for shape in shapes:
        shape.scale = shape.scale + 0.5
        if type(shape) is Box:
            total += shape["id"] + len(shape) + (shape.x_id or 0)
    accounts = {name: Account.of((name, n)) for n, name in enumerate(WORDS)}
    for n in range(4000):
        account = accounts[WORDS[n % len(WORDS)]]
        try:
            account.deposit(n % 10, note="n").deposit(2)
        except ValueError as error:
            total += len(str(error))
        account.balance -= Account.fee(n)
        if hasattr(account, "closed") or getattr(account, "limit", None):
            total += 1
    different = len(set(shapes)) + len(repr(shapes[:40])) + joined.width
    return total + different + sum(len(account.history) for account in accounts.values())


def numbers():
    sieve = bytearray([1]) * 20_000
    for n in range(2, 142):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, len(sieve), n)))
    total = sum(sieve) + sum(n for n in range(5000) if n % 3 == 0 or n % 5 == 0)
    x, y = 0.5, 1
    for n in range(1, 9000):
        x = x * 1.5 - n / 3.0 if x < 1000 else math.sqrt(x) + n % 7
        y = (y * 48271 + n) % 2147483647
        if n & 1:
            total += y >> 5 ^ n << 2
        elif y // 3 > n or not x:
            total -= int(x) | 1
        x = abs(x) + min(n, 3, 7) + round(x, 2) / max(1.0, x)
    for n in range(1, 800):
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            total += 1
    big = 1
    for n in range(1, 150):
        big = big * n + 7**n
        total += big % 1_000_003 + divmod(big, 12345)[1] + math.gcd(big, 360) + big.bit_length()
    power = pow(3, big % 1000 + 5, 10**40 + 7)
    z = 0j
    for n in range(300):
        z = z * z / 3 + complex(n % 3, 0.25)
    return total + len(str(big)) + power % 97 + abs(z)


def matrices():
    size = 24
    a = [[1 / (row + column + 1) for column in range(size)] for row in range(size)]
    b = [[float(row * column % 7) for column in range(size)] for row in range(size)]
    product = [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
    for pivot in range(size):
        largest = max(range(pivot, size), key=lambda row: abs(b[row][pivot] + row))
        b[pivot], b[largest] = b[largest], b[pivot]
        for row in range(pivot + 1, size):
            factor = b[row][pivot] / (b[pivot][pivot] or 1.0)
            for column in range(pivot, size):
                b[row][column] -= factor * b[pivot][column]
    grid = [[0] * 40 for _ in range(40)]
    for _ in range(4):
        for row in range(1, 39):
            above, line, below = grid[row - 1], grid[row], grid[row + 1]
            for column in range(1, 39):
                line[column] = (above[column - 1] + line[column - 1] + below[column + 1] + row * column) & 15
    return product[3][5] + b[2][2] + sum(map(sum, grid))


def tables():
    """Records that are filtered, grouped, joined and sorted."""
    source = random.Random(7)
    rows = [
        {"id": n, "name": f"{WORDS[source.randrange(15)]}-{n}", "price": source.random() * 100, "group": n % 13, "day": None if n % 17 == 0 else n % 28}
        for n in range(900)
    ]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
    report = {
        key: {"total": sum(row["price"] for row in members), "names": {row["name"][:3] for row in members}, "most": max(members, key=operator.itemgetter("price"))["id"]}
        for key, members in groups.items()
    }
    cheap = [{**row, "price": row["price"] * 1.19, "cheap": True} for row in rows if row["price"] < 50 and row["day"] is not None]
    ordered = sorted(rows, key=lambda row: (-row["group"], row["name"]))
    index = {row["id"]: row for row in ordered}
    joined = [(index[n]["name"], index.get(n * 2, {}).get("price", 0.0)) for n in range(0, 900, 3)]
    for row in cheap:
        row.setdefault("seen", []).append(row.pop("day"))
        row.update(rank=len(row), old=row["id"])
        del row["cheap"]
    counts = collections.Counter(name[0] for name, _price in joined)
    merged = dict(zip(counts, itertools.accumulate(counts.values()))) | {"z": 1}
    by_day = itertools.groupby(sorted((row["day"] or 0, row["id"]) for row in rows), key=operator.itemgetter(0))
    days = {day: [number for _day, number in members] for day, members in by_day}
    keys = set(report) & set(days) | {1, 2} - {2}
    return len(ordered) + sum(merged.values()) + len(counts.most_common(3)) + len(keys) + ("name" in rows[0]) + len(cheap)


def lists():
    items = [n * 7919 % 3001 for n in range(3000)]
    copied, total = items[:], 0
    copied.sort()
    copied.reverse()
    copied.extend(range(50))
    for n in range(0, 900, 9):
        copied.insert(n, -n)
        total += copied.pop() + copied[n // 2] + copied.index(-n) % 3
    del copied[10:40]
    copied[5:9] = [1, 2]
    stack, heap, queue = [], [], collections.deque(maxlen=500)
    for n in items:
        if n % 3:
            stack.append((n, -n))
            heapq.heappush(heap, (n % 100, n))
        elif stack:
            total += stack.pop()[0] - heapq.heappop(heap)[1]
        queue.append(n)
        if n % 5 == 0:
            total += queue.popleft()
    bubbles = items[:60]
    for n in range(len(bubbles)):
        for m in range(len(bubbles) - 1 - n):
            if bubbles[m] > bubbles[m + 1]:
                bubbles[m], bubbles[m + 1] = bubbles[m + 1], bubbles[m]
    low, high = 0, len(copied)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if copied[middle] > 1500 else (low, middle)
    pairs = [(a, b) for a in range(30) for b in range(a, 30) if (a + b) % 3]
    flat = [x for pair in pairs for x in pair]
    names = sorted((WORDS[n % 15].upper() + str(n) for n in items[:700]), key=str.lower, reverse=True)
    total += sum(1 for x in reversed(flat) if x) + any(x > 28 for x in flat) + all(pairs) + bisect.bisect(bubbles, 1500)
    head, *middle, tail = flat
    return total + low + head + tail + len(middle) + len(names[3]) + sorted(items, reverse=True)[4] + items.count(7)


def strings():
    out = []
    for n in range(3000):
        word = WORDS[n % len(WORDS)]
        out.append(word.capitalize() + (" " if n % 10 else "\n"))
        if "ow" in word or word.startswith(("z", "q")) or word.endswith("s"):
            out.append(f"[{n:05d}|{word!r:>12}|{n / 7:.3f}]")
        if word.isalpha() and word.find("i") > 0:
            out.append("%s=%d;" % (word, n))
    joined = "".join(out)
    code = 0
    for character in joined[:6000]:
        code = (code * 31 + ord(character)) & 0xFFFFFFF
    lines = [line.rstrip().replace("-", "_").center(40, ".") for line in joined.split("\n")]
    pairs = dict(part.partition("=")[::2] for line in lines for part in line.split(";") if "=" in part)
    encoded = joined.encode()
    caesar = joined.translate(str.maketrans(string.ascii_lowercase, string.ascii_lowercase[3:] + string.ascii_lowercase[:3]))
    palindromes = sum(1 for n in range(2000) if str(n) == str(n)[::-1])
    text = ""
    for n in range(400):
        text += chr(97 + n % 26)
    distance = list(range(41))
    for n, a in enumerate(joined[:40], 1):
        before, distance[0] = distance[0], n
        for m, b in enumerate(caesar[:40], 1):
            before, distance[m] = distance[m], min(distance[m] + 1, distance[m - 1] + 1, before + (a != b))
    wrapped = textwrap.fill(joined[:1500], 60)
    return code + len(pairs) + len(encoded.decode()) + palindromes + len(text) + distance[-1] + len(wrapped) + len(joined.splitlines()) + lines[0].count(".")


def patterns():
    log = "".join(
        f"2024-0{1 + n % 9}-1{n % 10} 10:{10 + n % 50}:00,{n % 999:03} [{'WARN' if n % 4 else 'info'}] app.user_{n}: GET /api/v{n % 3}/things?id={n}&q=a%20b took {n}ms\n"
        for n in range(300)
    )
    line = re.compile(r"^(\d{4})-(\d\d)-(\d\d) (\S+) \[(?P<level>\w+)\] ([\w.]+): (GET|POST) (\S+) took (\d+)ms$", re.I)
    total = 0
    for entry in log.splitlines():
        if match := line.match(entry):
            total += int(match[9]) + len(match["level"]) + len(match.group(8).split("?"))
            total += len(urllib.parse.parse_qs(urllib.parse.urlsplit(match[8]).query))
    masked = re.sub(r"\d+", lambda found: "#" * len(found[0]), log)
    mails = re.findall(r"[\w.+-]+@[\w-]+\.[a-z]{2,}", "write to a.b@example.org, or c+d@test.example; not @x " * 60)
    tokens = re.compile(r"\s*(?:(\d+\.?\d*)|([a-z_]\w*)|(==|<=|[-+*/()=]))").finditer("total = (price + 3.5) * count - rate / 2 " * 60)
    kinds = collections.Counter(token.lastindex for token in tokens)
    return total + len(masked) + len(mails) + kinds[1] + len(re.split(r"[,;\s]+", log)) + bool(re.search(r"(x+x+)+y|took (?=9)", log))


def documents():
    """JSON, CSV and the like."""
    total = 0
    for n in range(60):
        event = {"kind": WORDS[n % 15], "at": n * 1.5, "ok": n % 2 == 0, "path": ["a", "b\n\"c\"", n], "more": {"é": None, "deep": [[], {}, [-n, 10**12]]}}
        line = json.dumps(event)
        total += len(line) + len(json.loads(line)["path"]) + len(json.dumps(event, indent=1, sort_keys=True, ensure_ascii=False))
        copied = copy.deepcopy(event)
        total += len(pickle.dumps(copied)) + len(pickle.loads(pickle.dumps(copied, 2))["kind"])
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "name", "note"])
    writer.writeheader()
    writer.writerows({"id": n, "name": WORDS[n % 15], "note": 'say "a, b"' if n % 9 == 0 else n / 4} for n in range(400))
    text.seek(0)
    total += sum(float(row["note"]) for row in csv.DictReader(text) if row["note"][0].isdigit())
    packed = b"".join(struct.pack("<IHd4s", n, n % 9, n / 3, b"abcd") for n in range(300))
    total += sum(number + small for number, small, _value, _text in struct.iter_unpack("<IHd4s", packed))
    digest = hashlib.sha256(packed).hexdigest() + base64.b64encode(packed).decode()
    page = html.escape("<p>a & b</p>" * 40)
    stream = io.BytesIO(packed)
    while piece := stream.read(37):
        total += piece[0] + piece.count(b"\0")
    return total + len(digest) + len(html.unescape(page)) + len(unicodedata.normalize("NFD", "größer ñandú" * 20)) + int(digest[:6], 16)


@dataclasses.dataclass(order=True)
class Job:
    priority: int
    name: str = dataclasses.field(compare=False)
    needs: list = dataclasses.field(default_factory=list, compare=False)


class Color(enum.Enum):
    RED = 1
    GREEN = 2


Point = collections.namedtuple("Point", "x y")


def graphs():
    edges = {n: [(n * 3 + 1) % 300, (n * 7 + 2) % 300, (n + 1) % 300] for n in range(300)}
    seen, queue, total = {0}, collections.deque([(0, 0)]), 0
    while queue:
        node, depth = queue.popleft()
        total += depth
        for other in edges[node]:
            if other not in seen:
                seen.add(other)
                queue.append((other, depth + 1))
    distances, heap = {0: 0}, [(0, 0)]
    while heap:
        distance, node = heapq.heappop(heap)
        if distance > distances.get(node, math.inf):
            continue
        for weight, other in enumerate(edges[node], 1):
            longer = distance + weight * (node % 5 + 1)
            if longer < distances.get(other, math.inf):
                distances[other] = longer
                heapq.heappush(heap, (longer, other))
    jobs = [Job(n * 17 % 23, f"job {n}", [n - 1] if n else []) for n in range(200)]
    points = [Point(n, -n)._replace(y=n * 2) for n in range(200)]
    total += sum(job.priority for job in sorted(jobs)) + sum(x + y for x, y in points)
    colors = [Color(1 + n % 2) for n in range(100)]
    return total + sum(distances.values()) + colors.count(Color.RED) + len({point.x for point in points}) + (jobs[0] == jobs[1])


@functools.lru_cache(maxsize=None)
def ways(amount, coins):
    if amount == 0:
        return 1
    if amount < 0 or not coins:
        return 0
    return ways(amount - coins[0], coins) + ways(amount, coins[1:])


def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def calls():
    def counter(start, step=1):
        count = start

        def advance(by=None, *more, **options):
            nonlocal count
            count += (by or step) + len(more) + options.get("extra", 0)
            return count

        return advance

    def decorated(function):
        @functools.wraps(function)
        def wrapper(*arguments, **options):
            return function(*arguments, **options)

        return wrapper

    @decorated
    def scaled(x, /, factor=2, *, offset=0):
        return x * factor + offset

    total, advance = 0, counter(3)
    for n in range(2500):
        total += advance(n) if n % 3 else advance(1, 2, 3, extra=n)
        total += scaled(n, offset=1) + (lambda a, b=2: a - b)(n)
    add = functools.partial(operator.add, 5)
    total += sum(map(add, range(1000))) + len(list(filter(None, range(500)))) + ackermann(2, 25)
    with contextlib.suppress(ZeroDivisionError):
        total += 1 // (total - total)
    return total + ways(120, (50, 20, 10, 5, 2, 1)) + sum(starred(*pair) for pair in zip(range(900), range(900)))


def starred(first, *rest, last=1):
    return first + sum(rest) + last


def naturals(limit):
    n = 0
    while n < limit:
        received = yield n
        n += received or 1


def walk(tree):
    if isinstance(tree, tuple):
        for child in tree:
            yield from walk(child)
    else:
        yield tree


@contextlib.contextmanager
def tagged(out, name):
    out.append(f"<{name}>")
    try:
        yield len(out)
    finally:
        out.append(f"</{name}>")


class Ready:
    def __await__(self):
        value = yield 5
        return value


def iterators():
    source, total, out = naturals(4000), next(naturals(1)), []
    for n in source:
        if n % 50 == 0:
            total += source.send(2)
    tree = tuple((n, (n + 1, (n + 2, str(n)))) for n in range(150))
    total += sum(1 for _leaf in walk(tree))
    for n in range(200):
        with tagged(out, "b") as depth:
            total += depth
        try:
            if n % 3 == 0:
                raise KeyError(n)
            [][n]
        except (KeyError, TypeError) as error:
            total += error.args[0]
        except IndexError:
            total += 2
        finally:
            total -= 1

    async def fetch(n):
        return await Ready() + n

    async def gather():
        return [await fetch(n) async for n in numbered(200)] + [await fetch(1)]

    async def numbered(limit):
        for n in range(limit):
            yield n

    task, sent = gather(), None
    with contextlib.suppress(StopIteration):
        while True:
            sent = task.send(sent)
    chained = itertools.chain(itertools.islice(itertools.count(3), 500), itertools.repeat(1, 200), itertools.product("ab", range(60)))
    total += sum(1 for _item in chained) + sum(a < b for a, b in itertools.pairwise(range(800)))
    return total + len(out) + sum(map(len, itertools.batched(range(700), 9))) + len(list(itertools.permutations(range(5), 3)))


def times():
    total, day = 0, datetime.date(2024, 1, 31)
    for n in range(250):
        moment = datetime.datetime(2023, n % 12 + 1, n % 28 + 1, n % 24, tzinfo=datetime.timezone.utc) + datetime.timedelta(hours=n * 7.5)
        total += (moment - datetime.datetime(2023, 1, 1, tzinfo=datetime.timezone.utc)).days + moment.weekday()
        total += len(moment.isoformat()) + len(moment.strftime("%Y-%m-%d %H:%M")) + datetime.datetime.fromisoformat("2024-02-03T04:05:06").minute
        day = day.replace(day=1) + datetime.timedelta(days=calendar.monthrange(day.year, day.month)[1])
    price = decimal.Decimal("19.99")
    for n in range(1, 250):
        price = (price * decimal.Decimal("1.07") + n).quantize(decimal.Decimal("0.01")) % 1000
    ratio = sum((fractions.Fraction(1, n) for n in range(1, 30)), fractions.Fraction(0))
    return total + int(price) + ratio.numerator % 97 + statistics.fmean([1, 2, 3.5]) + statistics.median([3, 1, 2])


SOURCE = '''
def area(shapes, /, scale: float = 1.0, *rest, unit="m", **more) -> float:
    """What a cell may define."""
    total = 0
    for index, (width, height) in enumerate(shapes):
        if width <= 0 or not height:
            raise ValueError(f"bad shape {index}: {width!r} x {height:.2f}")
        elif index in (3, 5) and unit != "cm":
            continue
        total += width * height ** 2 // 3 - ~index
    while total > 1e6:
        total, spare = total / 2, [x for x in rest if x is not None]
    try:
        return {"area": total * scale, **more}[unit]
    except KeyError as error:
        with open(unit) as file:
            return lambda *a: (file, error, a[1:-1])
class Table(list):
    rows: int = 0
    async def load(self):
        async for row in self:
            yield await row
match [1, {"a": 2}]:
    case [int(x), {"a": y}] if x:
        z = x + y
    case _:
        z = None
'''


def sources():
    """What happens to the source of a cell."""
    total = 0
    for n in range(6):
        tree = ast.parse(SOURCE + f"value_{n} = {n}\n")
        total += sum(1 for node in ast.walk(tree) if isinstance(node, ast.Name))
        names = {}
        exec(compile(tree, f"<cell {n}>", "exec"), names)
        total += names["z"] + len(ast.unparse(tree)) + eval("(1 + 2) * len('abc')", names)
        try:
            names["area"]([(1, 2), (-1, 3)])
        except ValueError as error:
            total += len("".join(traceback.format_exception(error)))
    kinds = [type(f"Kind{n}", (Account,), {"level": n, "__len__": lambda self: self.level}) for n in range(30)]
    total += sum(len(kind("x", 1)) for kind in kinds) + len(shlex.split("a 'b c' --d=e"))
    return total + len(list(difflib.unified_diff(SOURCE.split("\n"), SOURCE.replace("x", "y").split("\n")))) + len(types.SimpleNamespace(a=1).__dict__)


# How often each runs, so that none is much longer than the rest.
PARTS = {
    objects: 1, numbers: 1, matrices: 4, tables: 3, lists: 3, strings: 1, patterns: 1, documents: 3, graphs: 5, calls: 4,
    iterators: 5, times: 3, sources: 1,
}
# Counted from here on, so that neither starting nor importing is.
training.begin()
for part, rounds in PARTS.items():
    for _ in range(rounds):
        part()
        ways.cache_clear()
